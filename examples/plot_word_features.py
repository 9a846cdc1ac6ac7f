"""
Word features: inputs that put like words together
==================================================

One-hot words drive a reservoir in directions that have nothing in common. `WordFeatures` learns a
few dimensions by gradient through one recurrent step, `SpectralWordFeatures` solves them from
bigram counts: words of a class come to lie together, and a small reservoir gets further.
"""

import matplotlib.pyplot as plt
import numpy as np

from esnlm import ElmanGrammar, LanguageModel, Reservoir, SpectralWordFeatures, WordFeatures

grammar = ElmanGrammar()
train = grammar.encode(grammar.sample(3000, random_state=0))
test = grammar.encode(grammar.sample(1000, random_state=1))

# %%
# The same reservoir, three kinds of input
# ----------------------------------------

fitted = {}
for name, features in {
    "one-hot words": None,
    "WordFeatures": WordFeatures(n_features=5, n_passes=5, random_state=0),
    "SpectralWordFeatures": SpectralWordFeatures(n_features=5, random_state=0),
}.items():
    model = LanguageModel(
        Reservoir(50, random_state=0), "softmax", features=features, reset="never", n_tokens=24
    )
    fitted[name] = model.fit([train])
    print(f"{name:20} perplexity {model.perplexity([test]):.2f}")

# %%
# Where the words lie
# -------------------
# The first two principal components; colours are the word classes of the grammar. Words of a class
# lie on each other, so classes are named and not words.

figure, axes = plt.subplots(1, 2, figsize=(9, 4.6), layout="constrained")
classes = sorted(set(grammar.word_class.values()))
for axis, name in zip(axes, ("WordFeatures", "SpectralWordFeatures"), strict=True):
    rows = fitted[name].features_.embedding_
    plane = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    points = plane.U[:, :2] * plane.S[:2]
    of = np.array([grammar.word_class[word] for word in grammar.vocabulary])
    for number, kind in enumerate(classes):
        marker = "osD^v"[number % 5]
        axis.plot(*points[of == kind].T, marker, color=f"C{number}", alpha=0.8, label=kind)
    axis.set_title(f"{name}: words by class")
figure.legend(*axis.get_legend_handles_labels(), ncols=4, loc="outside lower center")
plt.show()
