"""
Classifying whole sequences
===========================

One label for a sequence, not one for each step: the states of a sequence are averaged to one row,
and any classifier takes the rows. The sequences are of three shapes, cylinder, bell and funnel
(Saito 1994), of lengths that differ.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from esnlm import Reservoir, SoftmaxReadout

SHAPES = ["cylinder", "bell", "funnel"]

# %%
# The sequences
# -------------


def drawn(n: int, rng: np.random.Generator) -> tuple[list[np.ndarray], list[str]]:
    """Noisy plateaus, rises and falls: arrays (T, 1) with T from 100 to 150, and their names."""
    sequences, names = [], []
    for name in rng.choice(SHAPES, n):
        t = np.arange(rng.integers(100, 151))
        a, b = rng.integers(10, 35), rng.integers(60, 100)
        form = {"cylinder": 1.0, "bell": (t - a) / (b - a), "funnel": (b - t) / (b - a)}[name]
        inside = (a <= t) & (t <= b)
        x = (6 + rng.standard_normal()) * inside * form + rng.standard_normal(len(t))
        sequences.append(x[:, None])
        names.append(name)
    return sequences, names


rng = np.random.default_rng(0)
train, train_names = drawn(200, rng)
test, test_names = drawn(500, rng)

figure, axes = plt.subplots(1, 3, figsize=(9, 2.2), sharey=True)
for axis, shape in zip(axes, SHAPES, strict=True):
    axis.plot(train[train_names.index(shape)], lw=1)
    axis.set_title(shape)
figure.tight_layout()

# %%
# Reservoir, mean, classifier
# ---------------------------
# The reservoir's weights are drawn once, and each sequence is read from a zero state. Averages
# over the three thirds of a sequence keep something of the order.

reservoir = Reservoir(200, spectral_radius=0.9, leak_rate=0.2, input_scaling=0.3, random_state=0)
reservoir.fit(n_inputs=1)


def thirds(sequences: list[np.ndarray]) -> np.ndarray:
    """Sequences (T, 1) -> mean states of their thirds, (n, 3 * n_units)."""
    parts = [np.array_split(reservoir.transform(x), 3) for x in sequences]
    return np.array([np.concatenate([p.mean(axis=0) for p in three]) for three in parts])


for readout in (SoftmaxReadout(alpha=1.0), LogisticRegression(max_iter=1000)):
    model = make_pipeline(FunctionTransformer(thirds), StandardScaler(), readout)
    model.fit(train, train_names)
    print(f"{type(readout).__name__}: {model.score(test, test_names):.1%} of 500 sequences right")

# %%
# Who is taken for whom
# ---------------------

figure, axis = plt.subplots(figsize=(4, 3.4))
ConfusionMatrixDisplay.from_predictions(
    test_names, model.predict(test), ax=axis, colorbar=False, cmap="Blues"
)
axis.set_title("Predicted and true shapes")
figure.tight_layout()
plt.show()
