"""What a class-factored readout goes on learning from, as arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

Arrays = dict[str, NDArray[Any]]


def with_start(start: str, arrays: Arrays) -> Arrays:
    """Arrays under names that begin with ``start``."""
    return {f"{start}{name}": array for name, array in arrays.items()}


def after_start(start: str, arrays: Arrays) -> Arrays:
    """The inverse of `with_start`, leaving out all others."""
    return {k.removeprefix(start): array for k, array in arrays.items() if k.startswith(start)}


def factored_arrays(readout: Any) -> Arrays:
    """Classes, statistics and the state of every factor of a `ClassFactoredReadout`."""
    if not hasattr(readout, "_layout"):
        return {}
    arrays: Arrays = {"word_class": readout.word_class_}
    if readout.class_factor_ is not None:
        arrays |= with_start("class.", readout.class_factor_.training_arrays())
    for c, factor in readout.word_factors_.items():
        arrays |= with_start(f"word{c}.", factor.training_arrays())
    return arrays


def restore_factored(readout: Any, arrays: Arrays) -> None:
    """Set what `factored_arrays` described; the arrays are taken over."""
    if "word_class" not in arrays:
        return
    readout._set_classes(arrays["word_class"].astype(np.intp))
    layout = readout._layout
    if part := after_start("class.", arrays):
        labels = np.arange(layout.n_classes)
        readout.class_factor_ = _restored(readout._class, labels, readout.n_features_in_, part)
    for c in range(layout.n_classes):
        if part := after_start(f"word{c}.", arrays):
            words = layout.words(c)
            readout.word_factors_[c] = _restored(
                readout._words, words, readout.n_features_in_, part
            )


def _restored(template: Any, classes: NDArray[Any], n_units: int, arrays: Arrays) -> Any:
    """A factor that goes on where its training arrays were taken."""
    factor = clone(template)
    factor.classes_, factor.n_features_in_ = np.asarray(classes), n_units
    factor._start()
    factor.restore_training(arrays)
    return factor
