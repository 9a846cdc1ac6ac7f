"""
Forecasting Mackey-Glass with scikit-learn's Ridge
==================================================

A reservoir is a transformer: vectors (T, n_inputs) in, states (T, n_units) out. Behind it stands
any regressor. Here they forecast the Mackey-Glass series, the classical test of reservoirs: how
far ahead can a linear map of the states see?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from esnlm import Reservoir

# %%
# The series
# ----------
# ``x' = 0.2 x(t - 17) / (1 + x(t - 17)^10) - 0.1 x``, by Euler steps of 0.1, every tenth of which
# is kept.


def mackey_glass(length: int, delay: int = 170) -> np.ndarray:
    x = np.full(10 * length + delay, 1.2)
    for t in range(delay, len(x) - 1):
        late = x[t - delay]
        x[t + 1] = x[t] + 0.1 * (0.2 * late / (1 + late**10) - 0.1 * x[t])
    return x[delay::10][:length]


series = mackey_glass(5500)[500:]
series = (series - series.mean()) / series.std()

# %%
# A pipeline
# ----------
# The first state is zero, so the first 100 forecasts are left out of the scores: the *washout*.

HORIZONS = [1, 5, 10, 20, 40, 80]
TRAIN, WASHOUT = 3000, 100
errors = []
for horizon in HORIZONS:
    X, y = series[:-horizon, None], series[horizon:]
    model = make_pipeline(
        Reservoir(300, spectral_radius=0.95, leak_rate=0.5, bias_scaling=0.2, dtype="float64",
                  random_state=0),
        Ridge(alpha=1e-6),
    )  # fmt: skip
    model.fit(X[:TRAIN], y[:TRAIN])
    forecast = model.predict(X[TRAIN:])[WASHOUT:]
    truth, last = y[TRAIN:][WASHOUT:], X[TRAIN:, 0][WASHOUT:]
    errors.append([np.sqrt(np.mean((guess - truth) ** 2)) for guess in (forecast, last)])
    if horizon == 20:
        shown = forecast[:400], truth[:400]
    ours, persistence = errors[-1]
    print(f"{horizon:3} steps ahead: error {ours:.4f}, of the last value {persistence:.4f}")

# %%
# What it looks like
# ------------------

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), width_ratios=[2, 1])
left.plot(shown[1], "k", lw=1, label="series")
left.plot(shown[0], "C1--", lw=1, label="20 steps ahead")
left.set(xlabel="time", ylabel="x, standardised")
left.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
right.loglog(HORIZONS, np.array(errors), "o-", label=["reservoir and ridge", "the last value"])
right.set(xlabel="steps ahead", ylabel="root mean squared error")
right.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
figure.suptitle("Mackey-Glass: the series with its forecast, and the error by horizon")
figure.tight_layout()
plt.show()
