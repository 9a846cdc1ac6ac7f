"""Training states of two-level learners as version 0.1.0 saved them."""

import numpy as np

from esnlm.utils.state_dict import Arrays, under_prefix, with_prefix

# What the names of arrays began with, and begin with today.
_PREFIXES = {
    "survey.": "pilot.moments.", "pair_counts": "pair_counts.totals",
    "solver.word_coef": "word_solver.coef", "solver.word_offset": "word_solver.intercept",
    "solver.curvature": "word_solver.curvature", "solver.variances": "class_solver.variances",
    "solver.n_steps": "class_solver.n_steps", "solver.": "",
}  # fmt: skip
# Arrays that are one today.
_PARTS = {
    "class_solver.weights": ("class_coef", "class_offset"),
    "class_solver.velocity": ("class_velocity", "class_offset_velocity"),
}


def from_version_0_1_0(arrays: Arrays, batch: int, counts_pairs: bool) -> Arrays:
    """The arrays of such a state under the names of today.

    Of the rows that waited, those beyond a multiple of ``batch`` wait for the classes and the
    others, where their class has more than one word, for the words. Counts of pairs are left out
    where the learner ``counts_pairs`` no more.
    """
    out: Arrays = {}
    for name, array in arrays.items():
        old = next((old for old in _PREFIXES if name.startswith(old)), "")
        out[_PREFIXES.get(old, "") + name.removeprefix(old)] = array
    for name, parts in _PARTS.items():
        if parts[0] in out:
            out[name] = np.vstack([out.pop(part) for part in parts])
    if not counts_pairs:
        out.pop("pair_counts.totals", None)
    found = under_prefix("word_rows", arrays) or under_prefix("class_rows", arrays)
    cut = 0
    if found:  # those that waited for the words held those for the classes
        Z, words = found["Z"], found["codes"].astype(np.intp)
        last = np.empty((len(Z), 0), dtype=np.int64)
        cut = len(Z) - len(Z) % batch
        word_class = arrays["word_class"].astype(np.intp)
        kept = np.flatnonzero(np.bincount(word_class)[word_class[words[:cut]]] > 1)
        for name, part in (("rows", slice(cut, None)), ("word_rows", kept)):
            rows = {"Z": Z[part], "words": words[part], "last": last[part]}
            out |= with_prefix(name, rows) if len(Z[part]) else {}
    return out | {"n_word_rows": np.array(cut)}
