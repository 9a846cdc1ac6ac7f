"""The corpus of ``--parts`` and ``--cluster``, and who works on its parts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from esnlm.options.common import group, option_name, set_options
from esnlm.options.values import Cluster, integer

if TYPE_CHECKING:
    from esnlm.text.shard_parts import PartedCorpus
    from esnlm.text.source import Source
    from esnlm.utils.sums import Reduce


@group(
    "Work in parts",
    "Shards are shared out in parts, and the model depends on --parts, not on who worked on them or"
    " how often. Counts of n-grams are those of one part; ridge readouts, alone or factored, but"
    " for rounding; softmax and lowrank ones learn a chunk of every part from the same weights, and"
    " the changes are averaged. Inputs are one-hot or spectral.",
)
class SharedOptions:
    """Parts of the corpus, and the workers that they are shared out to."""

    cluster: Cluster = None
    parts: Annotated[int | None, integer("P", 1)] = None
    """Parts of the corpus (default with --cluster: 64, or 8 of softmax and lowrank; one a chunk at
    most)."""


def read_in_parts(source: "Source", shared: SharedOptions) -> "PartedCorpus":
    """Return the shards in parts; refuse text."""
    if not source.is_shards:
        asked = " and ".join(option_name(name) for name in set_options(shared))
        raise ValueError(
            f"{asked} need shards, which others can read in parts: esnlm prepare TEXT --out SHARDS"
        )
    return source.parts


@contextmanager
def sharing(cluster: str | None) -> "Iterator[Reduce]":
    """Yield what works on parts: the workers of a cluster, or this process."""
    from esnlm.utils.sums import reduce_here

    if cluster is None:
        yield reduce_here
        return
    from esnlm.runs.workers import workers

    with workers(cluster) as found:
        yield found
