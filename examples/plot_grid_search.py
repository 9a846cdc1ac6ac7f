"""
Searching settings with scikit-learn
====================================

A language model is an estimator of scikit-learn: ``fit(docs)`` learns, ``score(docs)`` is the
mean log-likelihood of a token, and ``reservoir__...`` and ``readout__...`` name the settings of
its parts. So `GridSearchCV <sklearn.model_selection.GridSearchCV>` searches them, with
cross-validation over documents.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV

from esnlm import ElmanGrammar, LanguageModel, Reservoir, RidgeReadout, SpectralWordFeatures

# %%
# Sentences are the documents that cross-validation divides.

grammar = ElmanGrammar()
docs = [" ".join(words) for words in grammar.sample(1500, random_state=0)]

# %%
# The grid
# --------
# Radius and input scaling decide together how long a reservoir remembers and how far it bends
# what it reads.

search = GridSearchCV(
    LanguageModel(
        Reservoir(100, random_state=0),
        RidgeReadout(),
        tokenizer="word",
        features=SpectralWordFeatures(n_features=8, random_state=0),
    ),
    {
        "reservoir__spectral_radius": [0.3, 0.6, 0.9, 1.0],
        "reservoir__input_scaling": [0.03, 0.1, 0.3, 1.0],
    },
    cv=3,
)
search.fit(docs)
print("best:", search.best_params_)
print(f"held-out perplexity there: {np.exp(-search.best_score_):.3f}")

# %%
# The best model has been fitted once more, on all documents:

print(search.best_estimator_.sample(8, prompt="boys who", random_state=0))

# %%
# As a picture
# ------------

results = pd.DataFrame(search.cv_results_).assign(
    perplexity=lambda frame: np.exp(-frame["mean_test_score"])
)
table = results.pivot(
    index="param_reservoir__input_scaling",
    columns="param_reservoir__spectral_radius",
    values="perplexity",
)
figure, axis = plt.subplots(figsize=(5, 4))
image = axis.imshow(table, cmap="viridis_r", origin="lower")
for (row, column), value in np.ndenumerate(table.to_numpy()):
    colour = "k" if value < table.to_numpy().mean() else "w"
    axis.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour)
axis.set(
    xlabel="spectral radius", ylabel="input scaling",
    xticks=range(table.shape[1]), xticklabels=table.columns,
    yticks=range(table.shape[0]), yticklabels=table.index,
)  # fmt: skip
axis.set_title("Held-out perplexity of each pair of settings")
figure.colorbar(image, label="held-out perplexity")
figure.tight_layout()
plt.show()
