"""
Kneser-Ney n-grams beside the reservoir
=======================================

Every figure of a language model needs the n-gram's beside it: modified Kneser-Ney, counted in a
moment on the same tokens. On little text the two see different things, and their mean is better
than either. The text is one that every Python brings along: the reference manual that ``help()``
reads.
"""

import re
from pydoc_data.topics import topics

import matplotlib.pyplot as plt
import numpy as np

from esnlm import LanguageModel, LowRankReadout, NgramLanguageModel, Reservoir

# %%
# Sentences of prose, lower-cased; every tenth is held out.

sentences = []
for topic in topics.values():
    for paragraph in re.split(r"\n\s*\n", topic):
        if re.match(r"[A-Z]", paragraph) and paragraph.rstrip().endswith("."):
            sentences += re.split(r"(?<=[.!?])\s+(?=[A-Z])", " ".join(paragraph.split()))
sentences = [re.sub(r"([.,;:()\"])", r" \1 ", s).lower() for s in dict.fromkeys(sentences)]
test = sentences[::10]
train = [s for place, s in enumerate(sentences) if place % 10]
print(len(train), "sentences to train on,", sum(len(s.split()) for s in train), "words")

# %%
# The reservoir
# -------------
# A low-rank softmax over classes of words and the words of a class, which also reads the last
# three tokens past the reservoir: *direct connections*.

model = LanguageModel(
    Reservoir(300, topology="offsets", leak_rate=("uniform", 0.0, 1.0), random_state=0),
    LowRankReadout(n_components=128, n_direct=3, alpha=100.0, random_state=0),
    tokenizer="word",
).fit(train)  # fmt: skip
scores = {"reservoir": model.log_likelihood(test)}
for order in range(1, 6):
    ngrams = NgramLanguageModel(order, tokenizer=model.tokenizer_).fit(train)
    scores[f"{order}-grams"] = ngrams.log_likelihood(test)

# %%
# The mean of probabilities
# -------------------------

WEIGHTS = np.linspace(0, 1, 21)
ours = np.exp(np.concatenate(scores["reservoir"]))
theirs = np.exp(np.concatenate(scores["5-grams"]))
mixed = [np.exp(-np.log(w * ours + (1 - w) * theirs).mean()) for w in WEIGHTS]
perplexities = {name: np.exp(-np.concatenate(rows).mean()) for name, rows in scores.items()}
for name, value in perplexities.items():
    print(f"{name:10} {value:6.1f}")
print(f"{'mean':10} {min(mixed):6.1f} with {WEIGHTS[np.argmin(mixed)]:.2f} of the reservoir")

# %%
# (The weight is chosen on the test text here, to draw the curve; ``esnlm evaluate --interpolate``
# takes ``--held-out`` to choose it on other text.)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
orders = range(1, 6)
left.plot(orders, [perplexities[f"{order}-grams"] for order in orders], "o-", label="n-grams")
left.axhline(perplexities["reservoir"], color="C1", label="reservoir")
left.set(xlabel="order", ylabel="perplexity", xticks=orders)
left.legend(frameon=False)
right.plot(WEIGHTS, mixed, "C2.-")
right.set(xlabel="share of the reservoir in the mean", ylabel="perplexity")
figure.tight_layout()
plt.show()
