"""A reservoir that reads what its readout predicts."""

from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from esnlm.utils.arrays import Array, checked_tokens
from esnlm.utils.validation import Count


def closed_loop(reservoir: Any, readout: Any, state: Array, n: int) -> Array:
    """Return predictions (n,) or (n, n_inputs) of `Reservoir.run_closed_loop`."""
    Count(0).check("n", n)
    check_is_fitted(readout)
    n_units, n_inputs = len(state), reservoir.n_inputs_
    n_columns = getattr(readout, "n_features_in_", n_units)
    if n_columns != n_units:
        raise ValueError(
            f"the readout reads {n_columns} columns, and the states have {n_units}: fit it on"
            " states of this reservoir"
        )
    if is_classifier(readout):
        outputs = np.empty(n, dtype=checked_tokens(readout.classes_, n_inputs).dtype)
    else:
        outputs = np.empty((n, n_inputs))
    for t in range(n):
        if t:
            state = reservoir._states(outputs[t - 1 : t], state)[0]
        prediction = np.ravel(readout.predict(state[None]))
        if len(prediction) != outputs[t].size:
            raise ValueError(
                f"the readout predicts {len(prediction)} numbers a step, and the reservoir reads"
                f" {n_inputs}: fit it on the next inputs"
            )
        outputs[t] = prediction if outputs.ndim == 2 else prediction[0]
    return outputs
