"""Jointly learned factors as arrays: what predictions need, and what learning goes on from."""

import numpy as np

from esnlm.readouts.base.moments import Moments
from esnlm.readouts.base.state_dict import Arrays, after_start, with_start
from esnlm.readouts.two_level.pilot_sample import Assignment, Findings
from esnlm.readouts.two_level.solver import FactorSettings, JointFactors
from esnlm.readouts.two_level.word_factors import ClassLayout, WordFactors

_TRAINED = (
    "directions_", "class_weights_", "gate_", "class_coef_", "class_intercept_", "coef_",
    "intercept_",
)  # fmt: skip


def parameter_arrays(factors: JointFactors) -> Arrays:
    """What predictions need, as views.

    ``class_weights_`` (P + 1, K * C) and, of several experts, ``gate_`` (P + 1, K) have their
    intercepts last; ridge has ``class_coef_`` (C, P), ``class_intercept_`` and ``class_floor_``.
    """
    arrays: Arrays = {
        "directions_": factors.directions,
        "shift_": factors.shift,
        "word_class_": factors.layout.word_class,
        "coef_": factors.words.coef,
        "intercept_": factors.words.intercept,
    }
    if factors.words.floor is not None:
        arrays["floor_"] = factors.words.floor
    if factors.class_solver is not None:
        arrays["class_weights_"] = factors.class_solver.weights
        if factors.settings.n_experts > 1:
            arrays["gate_"] = factors.class_solver.gate
    else:
        ridge = factors.class_ridge
        arrays |= {"class_coef_": ridge.coef, "class_intercept_": ridge.intercept}
        assert ridge.floor is not None
        arrays["class_floor_"] = ridge.floor
    return arrays


def n_parameters(factors: JointFactors) -> int:
    """Trained parameters."""
    arrays = parameter_arrays(factors)
    return sum(int(arrays[name].size) for name in _TRAINED if name in arrays)


def with_parameters(settings: FactorSettings, assign: Assignment, arrays: Arrays) -> JointFactors:
    """Factors that predict as those of `parameter_arrays`, and have nothing to learn on with."""
    names = "directions_", "shift_", "word_class_"
    findings = Findings.kept(*(np.asarray(arrays[name]) for name in names))
    sizes = len(findings.directions), len(findings.word_class)
    factors = JointFactors(settings, assign, *sizes, n_rows=1)
    factors.begin(findings)
    coef, intercept = np.asarray(arrays["coef_"]), np.asarray(arrays["intercept_"])
    factors.words = WordFactors(factors.layout, coef, intercept, arrays.get("floor_"))
    if factors.class_solver is not None:
        factors.class_solver.weights = np.asarray(arrays["class_weights_"])
        if "gate_" in arrays:
            factors.class_solver.gate = np.asarray(arrays["gate_"])
    else:
        one = ClassLayout(np.zeros(factors.layout.n_classes, dtype=np.intp))
        parts = (np.asarray(arrays[f"class_{name}_"]) for name in ("coef", "intercept", "floor"))
        factors.class_ridge = WordFactors(one, *parts)
    return factors


def training_arrays(factors: JointFactors) -> Arrays:
    """All that learning goes on from, as views."""
    arrays: Arrays = {
        "n_seen": np.asarray(factors.n_seen),
        "n_rows": np.asarray(factors.schedule.n_rows),
    }
    if factors.counts is not None:
        arrays["counts"] = factors.counts
    if factors.surveyed is not None:
        return arrays | with_start("survey.", factors.surveyed.to_arrays())
    arrays |= {"directions": factors.directions, "shift": factors.shift}
    arrays["word_class"] = factors.layout.word_class
    for name in ("moments", "class_solver", "word_solver", "class_rows", "word_rows"):
        part = getattr(factors, name)
        if part is not None:
            arrays |= with_start(f"{name}.", part.to_arrays())
    return arrays


def restored(
    settings: FactorSettings, assign: Assignment, n_units: int, n_words: int, arrays: Arrays
) -> JointFactors:
    """Factors that go on where `training_arrays` was called; the arrays are taken over."""
    n_rows, counts = int(arrays["n_rows"]), arrays.get("counts")
    factors = JointFactors(settings, assign, n_units, n_words, n_rows, counts)
    factors.n_seen = int(arrays["n_seen"])
    if survey := after_start("survey.", arrays):
        factors.begin_survey()
        assert factors.surveyed is not None
        factors.surveyed.restore(survey)
        return factors
    findings = (arrays[name] for name in ("directions", "shift", "word_class"))
    factors.begin(Findings.kept(*findings))
    if moments := after_start("moments.", arrays):
        factors.moments = Moments.from_arrays(moments)
        factors.ridge_behind = True
    for name in ("class_solver", "word_solver", "class_rows", "word_rows"):
        part = getattr(factors, name)
        if part is not None:
            part.restore(after_start(f"{name}.", arrays))
    if factors.word_solver is not None:
        factors.words = factors.word_solver.factors
    return factors
