"""
Leak rates and how long a word is remembered
============================================

A unit with leak rate ``a`` keeps ``1 - a`` of its last value: its timescale is ``-1 / log(1 -
a)`` steps. How much of one word is left in the state some words later? The same text is read
twice, once with another word in one place, and the distance of the two states is followed.
"""

import matplotlib.pyplot as plt
import numpy as np

from esnlm import Reservoir

LAWS = {
    "no leak": 1.0,
    "0.2": 0.2,
    "uniform in (0, 1)": ("uniform", 0.0, 1.0),
    "inverse gamma, 0.56": ("inverse_gamma", 0.56),
}
LAGS = 60
rng = np.random.default_rng(0)
texts = rng.integers(0, 50, (40, 20 + LAGS))
others = texts.copy()
others[:, 20] = (others[:, 20] + rng.integers(1, 50, 40)) % 50

# %%
# The distance that one word makes
# --------------------------------

left_over, rates = {}, {}
for name, law in LAWS.items():
    reservoir = Reservoir(500, leak_rate=law, spectral_radius=0.97, random_state=0).fit(n_inputs=50)
    distances = [
        np.linalg.norm(reservoir.transform(a) - reservoir.transform(b), axis=1)[20:]
        for a, b in zip(texts, others, strict=True)
    ]
    mean = np.mean(distances, axis=0)
    left_over[name], rates[name] = mean / mean[0], np.sort(reservoir.leak_rate_)
    shares = ", ".join(f"{left_over[name][lag]:.3f} after {lag}" for lag in (5, 20, 50))
    print(f"{name:20} {shares}")

# %%
# Slow units keep words
# ---------------------

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
for name in LAWS:
    left.plot(np.linspace(0, 1, 500), rates[name])
    right.semilogy(np.maximum(left_over[name], 1e-7), label=name)
left.set(xlabel="share of the units", ylabel="leak rate")
right.set(xlabel="words later", ylabel="share of the difference left", ylim=(1e-5, 1.5))
right.legend(frameon=False)
figure.suptitle("Leak rates, and what a word leaves in the state")
figure.tight_layout()
plt.show()
