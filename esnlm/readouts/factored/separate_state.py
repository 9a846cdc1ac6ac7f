"""Separate factors as arrays: what predictions need, and what learning goes on from."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from esnlm.readouts.base.state_dict import Arrays, after_start, with_start
from esnlm.readouts.factored.separate import SeparateFactors


def parameter_arrays(factors: SeparateFactors) -> Arrays:
    """What predictions need; factors' arrays stand under ``class.`` and, of words, ``word0.``"""
    arrays: Arrays = {"word_class_": factors.layout.word_class}
    for c, factor in factors.word_factors.items():
        arrays |= with_start(f"word{c}.", factor.to_arrays())
    if factors.class_factor is not None:
        arrays |= with_start("class.", factors.class_factor.to_arrays())
    return arrays


def set_parameters(factors: SeparateFactors, arrays: Arrays) -> None:
    """Give factors what `parameter_arrays` described."""
    nested: dict[str, Arrays] = {}
    for name, array in arrays.items():
        prefix, _, rest = name.partition(".")
        if rest:
            nested.setdefault(prefix, {})[rest] = array
    for prefix, part in nested.items():
        of_class = prefix == "class"
        template = factors.class_template if of_class else factors.word_template
        factor = type(template).from_arrays(template.get_params(deep=False), part)
        if of_class:
            factors.class_factor = factor
        else:
            factors.word_factors[int(prefix.removeprefix("word"))] = factor


def training_arrays(factors: SeparateFactors) -> Arrays:
    """Classes, statistics and the state of every factor."""
    arrays: Arrays = {"word_class": factors.layout.word_class}
    if factors.class_factor is not None:
        arrays |= with_start("class.", factors.class_factor.training_arrays())
    for c, factor in factors.word_factors.items():
        arrays |= with_start(f"word{c}.", factor.training_arrays())
    return arrays


def restore(factors: SeparateFactors, n_units: int, arrays: Arrays) -> None:
    """Set what `training_arrays` described; the arrays are taken over."""
    layout = factors.layout
    if part := after_start("class.", arrays):
        labels = np.arange(layout.n_classes)
        factors.class_factor = _restored(factors.class_template, labels, n_units, part)
    for c in range(layout.n_classes):
        if part := after_start(f"word{c}.", arrays):
            words = layout.words(c)
            factors.word_factors[c] = _restored(factors.word_template, words, n_units, part)


def _restored(template: Any, classes: NDArray[Any], n_units: int, arrays: Arrays) -> Any:
    """A factor that goes on where its training arrays were taken."""
    factor = clone(template)
    factor.classes_, factor.n_features_in_ = np.asarray(classes), n_units
    factor._start()
    factor.restore_training(arrays)
    return factor
