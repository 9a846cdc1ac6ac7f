"""
Elman's grammar and the floor that no model passes
==================================================

Sentences drawn from a known grammar have an exact next-word distribution. Its perplexity is the
*floor*: no model can be below it. So the distance to the floor says how much a model misses.
Natural text cannot say that.
"""

import matplotlib.pyplot as plt

from esnlm import (
    ElmanGrammar,
    LanguageModel,
    MixtureOfExpertsReadout,
    NgramLanguageModel,
    Reservoir,
    SpectralWordFeatures,
)

# %%
# Sentences
# ---------

grammar = ElmanGrammar()
train_sentences = grammar.sample(2500, random_state=0)
test_sentences = grammar.sample(1000, random_state=1)
for words in test_sentences[:4]:
    print(" ".join(words))

# %%
# What may come next
# ------------------
# After "boys who Mary" the verb is Mary's, so it is singular; and it is one that can take an
# object, because "boys" is that object.

after = grammar.next_word_distribution(["boys", "who", "Mary"])
print({w: round(float(p), 2) for w, p in zip(grammar.vocabulary, after, strict=True) if p > 0})

# %%
# Models beside the floor
# -----------------------
# The sentences are read as one long sequence of integers, as the oracle reads them: the same
# tokens are predicted by all. Word features put words of a class together before the reservoir
# reads them.

train, test = grammar.encode(train_sentences), grammar.encode(test_sentences)
floor = grammar.oracle_perplexity(test_sentences)
print(f"{'oracle':18} {floor:.2f}")
trigrams = NgramLanguageModel(order=3, reset="never", n_tokens=24).fit([train]).perplexity([test])
print(f"{'trigrams':18} {trigrams:.2f}")

SIZES = [10, 25, 50, 100]
READOUTS = {
    "ridge": "ridge",
    "softmax": "softmax",
    "mixture of experts": MixtureOfExpertsReadout(n_experts=4, random_state=0),
}
curves: dict[str, list[float]] = {name: [] for name in READOUTS}
for name, curve in curves.items():
    for n_units in SIZES:
        model = LanguageModel(
            Reservoir(n_units, random_state=0), READOUTS[name], reset="never", n_tokens=24,
            features=SpectralWordFeatures(n_features=8, random_state=0),
        ).fit([train])  # fmt: skip
        curve.append(model.perplexity([test]))
    print(f"{name:18} {curve[-1]:.2f} with {SIZES[-1]} units")

# %%
# Larger reservoirs come nearer
# -----------------------------

figure, axis = plt.subplots(figsize=(6, 4))
for name, curve in curves.items():
    axis.semilogx(SIZES, curve, "o-", label=name)
axis.axhline(trigrams, color="0.5", ls="--", label="trigrams")
axis.axhline(floor, color="k", label="oracle: the floor")
axis.set(xlabel="units of the reservoir", ylabel="perplexity", xticks=SIZES, xticklabels=SIZES)
axis.set_title("Perplexity by size, the trigrams' and the floor")
axis.minorticks_off()
axis.legend(frameon=False)
figure.tight_layout()
plt.show()
