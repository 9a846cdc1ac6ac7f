"""Networks of scikit-learn, trained pass by pass and stopped by held-out rows."""

import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from esnlm.utils.arrays import Array, Ints

#: Each learning rate is this share of the one before; there are so many.
FALL, N_RATES = 0.3, 3
_NEEDED = {"learning_rate_init", "max_iter", "random_state", "warm_start"}


def learns_in_passes(classifier: Any) -> bool:
    """Whether `stopped_early` can train it: an `MLPClassifier` of solver adam or sgd."""
    given = classifier.get_params()
    in_passes = hasattr(classifier, "partial_fit") and given.keys() >= _NEEDED
    return in_passes and not given.get("early_stopping", False)


def stopped_early(
    network: Any, X: Array, codes: Ints, score: Callable[[Any], float], patience: int
) -> Any:
    """Train a network on X (n, N), codes (n,) to the highest ``score(network)``; returns it.

    After ``patience`` passes without a higher score, the best weights go on at a lower learning
    rate, of `N_RATES` in all. ``max_iter`` of the network is the most passes; every pass reads the
    rows in an order of its own.
    """
    own = {name: network.get_params()[name] for name in _NEEDED - {"random_state"}}
    rng = check_random_state(network.random_state)
    best, kept, left = -np.inf, network, int(own["max_iter"])
    for rate in own["learning_rate_init"] * FALL ** np.arange(N_RATES):
        network, since = deepcopy(kept), 0
        network.set_params(warm_start=True, max_iter=1, learning_rate_init=float(rate))
        learn = network.fit  # begins with new moments of the gradient, from the weights there are
        while since < patience and left > 0:
            order = rng.permutation(len(X))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                learn(X[order], codes[order])
            learn, left, since = network.partial_fit, left - 1, since + 1
            if (found := score(network)) > best:
                best, kept, since = found, deepcopy(network), 0
    return kept.set_params(**own)
