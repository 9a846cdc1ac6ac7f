# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Online gradient descent for word features, back-propagated through one recurrent step.

Equation numbers are those of Rachez & Hagiwara (2014). Arrays are float64 and C-contiguous.
"""

import math

import numpy as np

from esnlm.kernels.activations import RELU, TANH
from esnlm.kernels.cache import kernel

_REORDER = {"reassoc", "contract", "nsz"}


@kernel(fastmath=_REORDER)
def advance(reservoir, feature, state, slope):
    """Advance `state` (n_units,) by one feature vector (n_features,), in place (eq. 13-15).

    x = (1 - leak) h + leak g(W h + W_in f + b). `slope` (n_units,) receives dx/da = leak g'(a), a
    the argument of g. `reservoir` holds the parts of W in CSR form, W_in, bias, leak and the code
    of g.
    """
    indptr, indices, data, W_in, bias, leak, activation = reservoir
    n_units, n_features = W_in.shape
    drive = slope
    for i in range(n_units):
        total = bias[i]
        for k in range(indptr[i], indptr[i + 1]):
            total += data[k] * state[indices[k]]
        for k in range(n_features):
            total += W_in[i, k] * feature[k]
        drive[i] = total
    for i in range(n_units):
        a = drive[i]
        value = a
        derivative = 1.0
        if activation == TANH:
            value = math.tanh(a)
            derivative = 1.0 - value * value
        elif activation == RELU and a <= 0.0:
            value = 0.0
            derivative = 0.0
        state[i] = (1.0 - leak[i]) * state[i] + leak[i] * value
        slope[i] = leak[i] * derivative


@kernel(fastmath=_REORDER)
def backpropagate(W_in, coef, state, slope, target, error, delta, feature_gradient):
    """Return the loss: squared error of one prediction; set its gradient by the feature vector.

    error (n_tokens,) = W_out x - u (eq. 24), whose outer product with x is the gradient by W_out;
    delta (n_units,) = W_outᵀ error * dx/da (eq. 23-24); feature_gradient (n_features,) =
    W_inᵀ delta (eq. 19). The previous state is a constant: nothing passes through W.
    """
    n_tokens, n_units = coef.shape
    n_features = W_in.shape[1]
    delta.fill(0.0)
    loss = 0.0
    for v in range(n_tokens):
        y = 0.0
        for i in range(n_units):
            y += coef[v, i] * state[i]
        if v == target:
            y -= 1.0
        error[v] = y
        loss += y * y
        for i in range(n_units):
            delta[i] += y * coef[v, i]
    feature_gradient.fill(0.0)
    for i in range(n_units):
        delta[i] *= slope[i]
        for k in range(n_features):
            feature_gradient[k] += W_in[i, k] * delta[i]
    return 0.5 * loss


@kernel(fastmath=_REORDER)
def descend(tokens, restart, reservoir, embedding, coef, rate, readout_rate, largest_step):
    """Descend once over `tokens` (T,) int64: return (loss sum, predictions).

    Updates `embedding` (n_tokens, n_features) and `coef` (n_tokens, n_units) in place after every
    prediction. `restart` (T,) bool marks tokens before which the state returns to zero. A readout
    step η on a state x contracts the error by η‖x‖²: it is held at or below `largest_step`.
    `reservoir` is that of `advance`.
    """
    W_in = reservoir[3]
    n_units, n_features = W_in.shape
    n_tokens = coef.shape[0]
    state = np.zeros(n_units)
    slope = np.empty(n_units)
    delta = np.empty(n_units)
    error = np.empty(n_tokens)
    feature_gradient = np.empty(n_features)
    total = 0.0
    count = 0
    for t in range(tokens.shape[0] - 1):
        if restart[t]:
            state.fill(0.0)
        token = tokens[t]
        advance(reservoir, embedding[token], state, slope)
        if restart[t + 1]:
            continue
        total += backpropagate(
            W_in, coef, state, slope, tokens[t + 1], error, delta, feature_gradient
        )
        count += 1
        power = 0.0
        for i in range(n_units):
            power += state[i] * state[i]
        step = readout_rate
        if step * power > largest_step:
            step = largest_step / power
        for v in range(n_tokens):
            scale = step * error[v]
            for i in range(n_units):
                coef[v, i] -= scale * state[i]
        for k in range(n_features):
            embedding[token, k] -= rate * feature_gradient[k]
    return total, count
