"""
Kneser-Ney n-grams and the reservoir together
=============================================

Report modified Kneser-Ney n-grams beside every language model: they are counted in a moment on
the same tokens. The two see different things, and the mean of their probabilities is better than
either. The text is Python's reference manual, which ``help()`` reads.
"""

import re
from pydoc_data.topics import topics

import matplotlib.pyplot as plt
import numpy as np

from esnlm import (
    LanguageModel,
    LowRankReadout,
    NgramLanguageModel,
    Reservoir,
    SpectralWordFeatures,
)

# %%
# Sentences of prose, lower-cased; every tenth is held out.

sentences = []
for topic in topics.values():
    for paragraph in re.split(r"\n\s*\n", topic):
        if re.match(r"[A-Z]", paragraph) and paragraph.rstrip().endswith("."):
            sentences += re.split(r"(?<=[.!?])\s+(?=[A-Z])", " ".join(paragraph.split()))
sentences = [re.sub(r"([.,;:()\"`])", r" \1 ", s).lower() for s in dict.fromkeys(sentences)]
test = sentences[::10]
train = [s for place, s in enumerate(sentences) if place % 10]
print(len(train), "sentences to train on,", sum(len(s.split()) for s in train), "words")

# %%
# The models
# ----------
# The reservoir is a bank of leaky traces of word vectors. The readout also reads the last three
# tokens and frequent n-grams of them past it: *direct connections*. A manual repeats its phrases,
# so n-grams alone are ahead here. On a hundred thousand words of varied text the reservoir is
# (:doc:`/guide/surprisal`).

model = LanguageModel(
    Reservoir(
        500, topology="diagonal", spectral_radius=0, leak_rate=("uniform", 0.0, 1.0), random_state=0
    ),
    LowRankReadout(n_components=128, n_direct=3, n_ngrams=131072, alpha=30.0, random_state=0),
    tokenizer="word",
    features=SpectralWordFeatures(n_features=128, random_state=0),
).fit(train)
scores = {}
for order in range(1, 6):
    ngrams = NgramLanguageModel(order=order, tokenizer=model.tokenizer_).fit(train)
    scores[f"{order}-grams"] = np.concatenate(ngrams.log_likelihood(test))
scores["reservoir"] = np.concatenate(model.log_likelihood(test))

# %%
# The mean of probabilities
# -------------------------
# Half of each; ``esnlm evaluate --interpolate`` chooses the weight on other text.

scores["both"] = np.logaddexp(scores["5-grams"], scores["reservoir"]) - np.log(2)
perplexities = {name: float(np.exp(-rows.mean())) for name, rows in scores.items()}
for name, value in perplexities.items():
    print(f"{name:10} {value:6.1f}")

figure, axis = plt.subplots(figsize=(7, 3.6))
shown = list(perplexities)[1:]
bars = axis.bar(shown, [perplexities[name] for name in shown], color=["0.6"] * 4 + ["C0", "C2"])
axis.bar_label(bars, fmt="{:.1f}")
axis.set(ylabel="perplexity", title="Perplexity of n-grams, of a reservoir and of their mean")
axis.margins(y=0.12)
figure.tight_layout()
plt.show()
