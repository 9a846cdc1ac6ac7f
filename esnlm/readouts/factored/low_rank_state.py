"""A low-rank readout as arrays: what predictions need, and what learning goes on from."""

from typing import Any

import numpy as np

from esnlm.readouts.base.state_dict import Arrays, after_start, with_start
from esnlm.readouts.two_level.pilot_sample import Findings


def restore_parameters(readout: Any, arrays: Arrays) -> None:
    """A solver that predicts with the parameters of a `LowRankReadout`."""
    names = "directions_", "shift_", "word_class_"
    readout._set_solver(Findings.kept(*(np.asarray(arrays[name]) for name in names)))
    solver = readout._solver
    solver.class_coef, solver.class_offset = arrays["class_coef_"], arrays["class_intercept_"]
    solver.word_coef, solver.word_offset = arrays["word_coef_"], arrays["word_intercept_"]
    solver.direct.coef, solver.direct.pair_coef = arrays["direct_coef_"], arrays["pair_coef_"]
    readout._take(solver)


def training_arrays(readout: Any) -> Arrays:
    """The survey or the solver of a `LowRankReadout`, and where in the passes it is."""
    arrays: Arrays = {
        "n_seen": np.asarray(readout._n_seen),
        "n_rows": np.asarray(readout._schedule.n_rows),
    }
    if readout._counts is not None:
        arrays["counts"] = readout._counts
    if readout._surveyed is not None:
        arrays |= with_start("survey.", readout._surveyed.to_arrays())
        arrays["pair_counts"] = readout._pair_counts.totals()
    if readout._solver is not None:
        arrays |= {"directions": readout.directions_, "shift": readout.shift_}
        arrays["word_class"] = readout.word_class_
        arrays["pairs"] = readout.pairs_
        arrays |= with_start("solver.", readout._solver.to_arrays())
    if readout.history_:
        arrays["history"] = np.array(readout.history_)
    return arrays


def restore(readout: Any, arrays: Arrays) -> None:
    """Set what `training_arrays` described in a readout that was started; arrays are taken over."""
    if "n_seen" in arrays and int(arrays["n_rows"]):
        readout._plan(int(arrays["n_rows"]), arrays.get("counts"))
        readout._n_seen = int(arrays["n_seen"])
    if survey := after_start("survey.", arrays):
        readout._surveyed.restore(survey)
        readout._pair_counts.restore(arrays["pair_counts"])
    if solved := after_start("solver.", arrays):
        readout._surveyed = None
        readout.pairs_ = arrays["pairs"]
        findings = (arrays[name] for name in ("directions", "shift", "word_class"))
        readout._set_solver(Findings.kept(*findings))
        readout._solver.restore(solved)
        readout._take(readout._solver)
    readout.history_ = arrays.get("history", np.zeros(0)).tolist()
