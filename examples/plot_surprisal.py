"""
Surprisal of each word, beside the exact one
============================================

Studies of reading times regress on surprisal, ``-log2 P(word | what precedes)``. A grammar has the
exact value beside it: where does a reservoir know that a verb must agree with a noun some words
earlier?
"""

import matplotlib.pyplot as plt
import numpy as np

from esnlm import (
    ElmanGrammar,
    LanguageModel,
    MixtureOfExpertsReadout,
    NgramLanguageModel,
    Reservoir,
)

grammar = ElmanGrammar()
train = [" ".join(words) for words in grammar.sample(3000, random_state=0)]
reservoir = Reservoir(100, input_scaling=0.1, spectral_radius=1.0, random_state=0)
readout = MixtureOfExpertsReadout(n_experts=4, random_state=0)
models = {
    "reservoir": LanguageModel(reservoir, readout, tokenizer="word").fit(train),
    "trigrams": NgramLanguageModel(order=3, tokenizer="word").fit(train),
}

# %%
# Two sentences
# -------------
# They differ in the last verb: "boys ... live" agrees, "boys ... lives" does not. Between noun
# and verb stands a clause with a noun in the singular.

SENTENCES = ["boys who Mary sees live .", "boys who Mary sees lives ."]


def surprisal(model: LanguageModel | NgramLanguageModel, sentence: str) -> np.ndarray:
    """Bits of each word; the last prediction, the end of the sentence, is left out."""
    return model.log_likelihood(sentence)[0][:-1] / -np.log(2)


def exact(sentence: str) -> np.ndarray:
    words = sentence.split()
    bits = []
    for place, word in enumerate(words):
        chance = grammar.next_word_distribution(words[:place])[grammar.vocabulary.index(word)]
        bits.append(np.log2(1 / chance) if chance else np.inf)
        if not chance:  # what the grammar forbids has no continuation
            break
    return np.array(bits)


for sentence in SENTENCES:
    print(sentence)
    print("  exact    ", exact(sentence).round(2))
    for name, model in models.items():
        print(f"  {name:9}", surprisal(model, sentence).round(2))

# %%
# Word by word
# ------------
# The bar of the exact process for "lives" is infinite and cut off.

figure, axes = plt.subplots(2, 1, figsize=(7, 5), sharey=True)
for axis, sentence in zip(axes, SENTENCES, strict=True):
    words = sentence.split()
    place = np.arange(len(words))
    bits = exact(sentence)
    axis.bar(place[: len(bits)] - 0.27, np.minimum(bits, 20), 0.25, color="0.3", label="exact")
    for offset, (name, model) in zip((0, 0.27), models.items(), strict=True):
        axis.bar(place + offset, surprisal(model, sentence), 0.25, label=name)
    axis.set(xticks=place, xticklabels=words, ylabel="surprisal, bits", ylim=(0, 12))
axes[0].legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
figure.suptitle("Surprisal of each word where the verb agrees, and where it does not")
figure.tight_layout()
plt.show()
