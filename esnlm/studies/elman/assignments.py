"""Which expert of the supervised mixture predicts a word (Rachez & Hagiwara, section 3.3.2)."""

import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from esnlm.grammars.elman_rules import END
from esnlm.studies.elman.states import Corpora, contexts_of
from esnlm.utils.arrays import Floats, Ints

#: Assignments that give each expert a part of the vocabulary.
OF_WORDS = ("clusters", "frequency")
#: Assignments by a property of the sentence, whose experts know all words.
OF_CONTEXTS = ("position", "length")
ASSIGNMENTS = (*OF_WORDS, *OF_CONTEXTS)


def word_clusters(embedding: Floats, n_experts: int, seed: int) -> Ints:
    """Clusters (V,) of words by their features (V, F), one an expert."""
    n_clusters = min(n_experts, len(np.unique(embedding, axis=0)))
    with threadpool_limits(1):  # sums in one order, so that clusters are those of the seed
        means = KMeans(n_clusters, n_init=10, random_state=seed).fit(embedding)
    return means.labels_.astype(np.intp)


def context_experts(assignment: str, corpora: Corpora, n_experts: int) -> Ints:
    """Experts (T - 1,) of the training words but the first, by ``position`` or ``length``.

    ``position`` counts the words of the sentence before the word, and ``length`` those of its
    sentence; the last expert has all larger numbers too.
    """
    end = corpora.grammar.vocabulary.index(END)
    values = contexts_of(corpora.train, end)[assignment].to_numpy()
    return np.minimum(values, n_experts - 1).astype(np.intp)
