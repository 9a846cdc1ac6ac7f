"""
In a reservoirpy model
======================

``reservoir >> readout`` makes a model of reservoirpy, an initialised node of reservoirpy becomes
one of our reservoirs, and a fitted reservoir becomes a node. The three ways, on the next token of
a noisy cycle, and how long each takes for one stream and for many.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import reservoirpy.nodes

from esnlm import Reservoir, SoftmaxReadout

# %%
# A series of one-hot rows
# ------------------------
# Tokens count 0, 1, 2, 3, 0, ... and stumble once in ten.

rng = np.random.default_rng(0)
tokens = np.arange(2000) % 4
stumbles = rng.random(2000) < 0.1
tokens[stumbles] = rng.integers(0, 4, stumbles.sum())
rows = np.eye(4)[tokens]
x, y = rows[:1500], rows[1:1501]

# %%
# Our parts in their model
# ------------------------

model = Reservoir(100, degree=10, dtype="float64", random_state=0) >> SoftmaxReadout()
model.fit(x, y, warmup=10)
probabilities = model.run(rows[1500:-1])
right = (probabilities.argmax(axis=1) == tokens[1501:]).mean()
print(type(model), f"\n{right:.1%} of the next tokens right")

# %%
# Their node as our reservoir
# ---------------------------
# The same states, to rounding. One stream reads all weights for each token, so little is gained;
# a corpus is read as many streams, which share that reading.

node = reservoirpy.nodes.Reservoir(1000, sr=0.9, lr=0.5, seed=0)
node.run(x[:1])
node.reset()
start = time.perf_counter()
theirs = node.run(x)
between = time.perf_counter()
ours = Reservoir.from_reservoirpy(node)
ours.transform(x[:10])  # compiled on first use
again = time.perf_counter()
states = ours.transform(x)
seconds = {"reservoirpy": (between - start) / len(x)}
seconds["esnlm,\none stream"] = (time.perf_counter() - again) / len(x)
corpus = np.tile(tokens, 100)
for n in (2000, len(corpus)):  # compiled on first use
    start = time.perf_counter()
    for _ in ours.harvest(corpus[:n], n_streams=64):
        pass
seconds["esnlm,\n64 streams"] = (time.perf_counter() - start) / len(corpus)
for name, value in seconds.items():
    print(f"{' '.join(name.split()):18} {1e6 * value:6.1f} microseconds a token")
print(f"largest difference of a state: {np.abs(states - theirs).max():.1e}")

# %%
# Our reservoir as their node
# ---------------------------

drawn = Reservoir(100, degree=10, dtype="float64", random_state=0).fit(n_inputs=4)
back = drawn.to_reservoirpy() >> reservoirpy.nodes.Ridge(ridge=1e-6)
back.fit(x, y)
print(f"{(back.run(x).argmax(axis=1) == y.argmax(axis=1)).mean():.1%} right in training")

# %%
# Probabilities and seconds
# -------------------------

figure, (left, right_axis) = plt.subplots(1, 2, figsize=(9, 3.4), width_ratios=[2, 1])
image = left.imshow(probabilities[:60].T, aspect="auto", cmap="Greys", vmin=0, vmax=1)
left.plot(np.arange(60), tokens[1501:1561], "C1.", label="the token that came")
left.set(xlabel="time", ylabel="token", yticks=range(4))
left.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
figure.colorbar(image, label="probability")
right_axis.bar(list(seconds), 1e6 * np.array(list(seconds.values())))
right_axis.tick_params(axis="x", labelsize="small")
right_axis.set_ylabel("microseconds a token,\n1 000 units")
figure.suptitle("Probabilities of the next token, and time for each token")
figure.tight_layout()
plt.show()
