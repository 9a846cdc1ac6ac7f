"""
Spectral radius and memory capacity
===================================

How many past inputs can a linear map read from the state? Jaeger's memory capacity sums, over
lags, the squared correlation of the best linear reconstruction of white noise with that noise. It
grows with the spectral radius up to the edge where the recurrence no longer forgets, and strong
inputs shorten it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge

from esnlm import Reservoir

N_UNITS, LAGS, WASHOUT = 100, 110, 200
noise = np.random.default_rng(0).uniform(-1, 1, 4000)


def memory(reservoir: Reservoir) -> np.ndarray:
    """Squared correlation (LAGS,) of noise 1, 2, ... steps ago with what the states say."""
    states = reservoir.transform(noise[:, None])[WASHOUT:]
    past = np.array([noise[WASHOUT - lag : len(noise) - lag] for lag in range(1, LAGS + 1)]).T
    half = len(states) // 2
    read = Ridge(alpha=1e-7).fit(states[:half], past[:half]).predict(states[half:])
    both = zip(read.T, past[half:].T, strict=True)
    return np.array([np.corrcoef(told, truth)[0, 1] ** 2 for told, truth in both])


# %%
# By radius and input scaling
# ---------------------------

RADII = [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2]
SCALINGS = [0.01, 0.1, 1.0]
curves = {}
for scaling in SCALINGS:
    for radius in RADII:
        reservoir = Reservoir(
            N_UNITS, spectral_radius=radius, input_scaling=scaling, degree=10, dtype="float64",
            random_state=0,
        )  # fmt: skip
        curves[scaling, radius] = memory(reservoir)
    totals = {radius: round(float(curves[scaling, radius].sum()), 1) for radius in (0.5, 0.9, 1.0)}
    print(f"input scaling {scaling}: capacity {totals}")

# %%
# Topologies
# ----------
# A delay line is memory and nothing else: each unit keeps the input of one step earlier.

topologies = (
    "random", "offsets", "ring", "small_world", "orthogonal", "diagonal", "delay_line",
)  # fmt: skip
for topology in topologies:
    reservoir = Reservoir(
        N_UNITS, spectral_radius=0.95, input_scaling=0.01, topology=topology, dtype="float64",
        random_state=0,
    )  # fmt: skip
    if topology in ("random", "offsets", "small_world"):
        reservoir.set_params(degree=10)
    print(f"{topology:12} {memory(reservoir).sum():5.1f}")

# %%
# The edge
# --------

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
for scaling in SCALINGS:
    left.plot(RADII, [curves[scaling, radius].sum() for radius in RADII], "o-", label=f"{scaling}")
left.axvline(1, color="0.7", lw=1)
left.set(xlabel="spectral radius", ylabel="memory capacity, inputs")
left.legend(title="input scaling", frameon=False)
for radius in (0.5, 0.9, 1.0):
    right.plot(range(1, LAGS + 1), curves[0.1, radius], label=f"{radius}")
right.set(xlabel="steps ago", ylabel="squared correlation")
right.legend(title="spectral radius", frameon=False)
figure.suptitle("Memory capacity by spectral radius, and what is left of each input")
figure.tight_layout()
plt.show()
