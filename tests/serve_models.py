"""Two small models that the tests of ``esnlm serve`` share."""

from esnlm import LanguageModel, NgramLanguageModel, Reservoir, RidgeReadout

DOCS = ["the boy sees the dog", "the dog sees the boy", "a boy walks", "Mary sees a dog"] * 10


def reservoir_model() -> LanguageModel:
    """A reservoir of 30 units on words."""
    return LanguageModel(Reservoir(30, random_state=0), RidgeReadout(), tokenizer="word").fit(DOCS)


def counts_model() -> NgramLanguageModel:
    """Trigrams of words."""
    return NgramLanguageModel(order=3, tokenizer="word").fit(DOCS)
