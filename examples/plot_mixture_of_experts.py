"""
A mixture of experts on a small reservoir
=========================================

A softmax bends the states' linear map once. A mixture of softmax experts, whose gate chooses
between them by the same state, gets more from the same units (Rachez & Hagiwara). It is fitted by
expectation-maximisation on a penalised likelihood that never falls.
"""

import matplotlib.pyplot as plt
import numpy as np

from esnlm import (
    ElmanGrammar,
    MixtureOfExpertsReadout,
    Reservoir,
    SoftmaxReadout,
    SpectralWordFeatures,
)

# %%
# States and next words
# ---------------------

grammar = ElmanGrammar()
train_sentences = grammar.sample(2000, random_state=0)
test_sentences = grammar.sample(1000, random_state=1)
train, test = grammar.encode(train_sentences), grammar.encode(test_sentences)
floor = grammar.oracle_perplexity(test_sentences)
features = SpectralWordFeatures(n_features=8, random_state=0).fit(train)
reservoir = Reservoir(50, random_state=0).fit(n_inputs=8)
X, y = reservoir.transform(features.transform(train[:-1])), train[1:]
X_test, y_test = reservoir.transform(features.transform(test[:-1])), test[1:]


def perplexity(readout: SoftmaxReadout | MixtureOfExpertsReadout) -> float:
    log_probabilities = readout.predict_log_proba(X_test)
    columns = np.searchsorted(readout.classes_, y_test)
    return float(np.exp(-log_probabilities[np.arange(len(y_test)), columns].mean()))


# %%
# How many experts
# ----------------

COUNTS = [1, 2, 4, 8]
readouts = {1: SoftmaxReadout().fit(X, y)}
for n_experts in COUNTS[1:]:
    readouts[n_experts] = MixtureOfExpertsReadout(n_experts=n_experts, random_state=0).fit(X, y)
perplexities = [perplexity(readouts[n_experts]) for n_experts in COUNTS]
for n_experts, value in zip(COUNTS, perplexities, strict=True):
    print(f"{n_experts:2} experts:  perplexity {value:.2f}")
print(f"the floor:   perplexity {floor:.2f}")

# %%
# What the gate looks at
# ----------------------
# Its mean choice after each word: experts share out the words, roughly by class.

mixture = readouts[8]
gate = mixture.gate_proba(X_test)
words = sorted(grammar.vocabulary, key=lambda word: (grammar.word_class.get(word, ""), word))
tokens = [grammar.vocabulary.index(word) for word in words]
choice = np.array([gate[test[:-1] == token].mean(axis=0) for token in tokens])

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), width_ratios=[2, 3])
left.plot(COUNTS, perplexities, "o-", label="mixture")
left.axhline(floor, color="k", label="oracle")
left.set(xlabel="experts", ylabel="perplexity", xticks=COUNTS)
left.legend(frameon=False)
image = right.imshow(choice.T, aspect="auto", cmap="Blues", vmin=0)
right.set(ylabel="expert", xticks=range(len(words)), xlabel="word just read")
right.set_xticklabels(words, rotation=90)
figure.colorbar(image, label="mean choice of the gate")
figure.suptitle("Perplexity by experts, and the choice of the gate after each word")
figure.tight_layout()
plt.show()
