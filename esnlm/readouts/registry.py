"""Readouts by name: on the command line, as a class, and the module that holds it."""

from importlib import import_module
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A readout's class, its module, and its name on the command line (None: not offered)."""

    class_name: str
    module: str
    option: str | None = None

    def load(self) -> Any:
        """Return the class; nothing is imported before."""
        return getattr(import_module(f"esnlm.readouts.{self.module}"), self.class_name)


READOUTS = (
    Entry("RidgeReadout", "linear.ridge", "ridge"),
    Entry("SoftmaxReadout", "softmax.softmax", "softmax"),
    Entry("MixtureOfExpertsReadout", "mixture.mixture", "moe"),
    Entry("ClassFactoredReadout", "class_based.factored", "factored"),
    Entry("ClassifierReadout", "sklearn.classifier"),
    Entry("LowRankReadout", "class_based.low_rank", "lowrank"),
    Entry("NormalisedSoftmaxReadout", "softmax.variants"),
    Entry("ReducedRankSoftmaxReadout", "softmax.variants"),
    Entry("TokenGatedReadout", "token_gated.token_gated", "gated"),
)
#: Names on the command line -> readouts that it offers.
BY_OPTION = {entry.option: entry for entry in READOUTS if entry.option is not None}
#: Names of classes -> readouts that a model folder may name.
BY_CLASS = {entry.class_name: entry for entry in READOUTS}
