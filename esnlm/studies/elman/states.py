"""Corpora of Elman's grammar, and the states of the reservoirs that read them."""

import json
import time
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from esnlm.features.online import WordFeatures
from esnlm.features.spectral import SpectralWordFeatures
from esnlm.grammars.elman import ElmanGrammar
from esnlm.grammars.elman_rules import END
from esnlm.reservoir.reservoir import Reservoir
from esnlm.studies.elman.presets import Settings
from esnlm.utils.arrays import Array, Floats, Tokens

#: Share of the training sentences, the last ones, on which penalties and stops are chosen.
HELD_OUT = 0.1
#: Kinds of word features.
WORD_FEATURES: dict[str, Any] = {"gradient": WordFeatures, "spectral": SpectralWordFeatures}


class Corpora(NamedTuple):
    """Two corpora, each one long sequence of tokens, and the grammar that generated them.

    An oracle (T - 1, V) is the exact distributions of all tokens (T,) but the first.
    """

    grammar: ElmanGrammar
    train: Tokens
    test: Tokens
    train_oracle: Floats
    test_oracle: Floats
    held_out: int  #: position in ``train`` where the held-out sentences begin


class Driven(NamedTuple):
    """A reservoir's states on both corpora; row t predicts token t + 1."""

    train: Array
    test: Array
    embedding: Floats | None
    train_seconds: float  #: of word features and training states
    test_seconds: float


def make_grammar(text: str) -> ElmanGrammar:
    """Return the grammar of `Settings.grammar`.

    >>> make_grammar('{"length_quotas": {"3": 1, "4": 1}}').mean_length
    3.5
    """
    options = json.loads(text)
    if quotas := options.get("length_quotas"):
        options["length_quotas"] = {int(length): weight for length, weight in quotas.items()}
    return ElmanGrammar(**options)


def contexts_of(tokens: Tokens, end: int) -> pd.DataFrame:
    """Contexts of ``tokens[1:]``, where ``end`` is the token of the full stop.

    Columns: ``last`` token just read; ``position`` words read of the sentence, 0 before its first;
    ``length`` words of the sentence that the next token belongs to, without the full stop;
    ``target`` the next token.

    >>> contexts = contexts_of(np.array([0, 1, 9, 2, 1, 1, 9]), end=9)
    >>> contexts["position"].tolist(), contexts["length"].tolist()
    ([1, 2, 0, 1, 2, 3], [2, 2, 3, 3, 3, 3])
    """
    sentence = np.append(0, np.cumsum(tokens[:-1] == end))
    words = pd.DataFrame({"target": tokens}).groupby(sentence)["target"]
    position, length = words.cumcount(), words.transform("size") - 1
    contexts = pd.DataFrame({"position": position, "length": length, "target": tokens}).iloc[1:]
    return contexts.assign(last=tokens[:-1]).reset_index(drop=True)


@lru_cache(maxsize=2)
def make_corpora(settings: Settings, seed: int) -> Corpora:
    """Return the corpora of a seed, the same for every readout, size and feature count."""
    grammar = make_grammar(settings.grammar)
    draws = np.random.SeedSequence([seed, 0]).spawn(2)
    rng, other = map(np.random.default_rng, draws)
    train = grammar.sample(settings.train_sentences, random_state=rng)
    test = grammar.sample(settings.test_sentences, random_state=other)
    n_kept = max(1, round(len(train) * (1 - HELD_OUT)))
    train_tokens, test_tokens = grammar.encode(train), grammar.encode(test)
    train_oracle, test_oracle = grammar.oracle(train_tokens), grammar.oracle(test_tokens)
    held_out = sum(map(len, train[:n_kept]))
    return Corpora(grammar, train_tokens, test_tokens, train_oracle, test_oracle, held_out=held_out)


def make_reservoir(settings: Settings, n_units: int, seed: int) -> Reservoir:
    """Return the reservoir of the settings, without weights."""
    names = "spectral_radius", "input_scaling", "degree", "leak_rate"
    options = {name: getattr(settings, name) for name in names}
    return Reservoir(n_units, random_state=seed, **options)


@lru_cache(maxsize=1)
def drive(settings: Settings, n_units: int, features: int, seed: int) -> Driven:
    """States of both corpora of a seed.

    With ``features`` F > 0 the word features are learned on the training corpus first
    (section 3.2), then drive the same recurrent weights.
    """
    corpora = make_corpora(settings, seed)
    start = time.perf_counter()
    n_tokens = len(corpora.grammar.vocabulary)
    reservoir = make_reservoir(settings, n_units, seed).fit(n_inputs=features or n_tokens)
    embedding = None
    if features:
        words = WORD_FEATURES[settings.word_features](n_features=features, random_state=seed)
        embedding = words.fit(corpora.train, reservoir=reservoir, n_tokens=n_tokens).embedding_
    train = _states(reservoir, embedding, corpora.train, corpora, settings.reset)
    mean, deviation = np.float32(0), np.float32(1)
    if settings.standardised:
        mean, deviation = train.mean(axis=0), train.std(axis=0)
        deviation[deviation == 0] = 1
    train = (train - mean) / deviation
    trained_at = time.perf_counter()
    test = _states(reservoir, embedding, corpora.test, corpora, settings.reset)
    test = (test - mean) / deviation
    return Driven(train, test, embedding, trained_at - start, time.perf_counter() - trained_at)


def _states(
    reservoir: Reservoir, embedding: Floats | None, tokens: Tokens, corpora: Corpora, reset: str
) -> Array:
    """States (T - 1, n_units) of tokens (T,), one long sequence, or sentence by sentence.

    A sentence is then read from the zero state, after the full stop that ends the one before.
    """
    if reset == "never":
        return reservoir.transform(tokens, features=embedding)[:-1]
    end = corpora.grammar.vocabulary.index(END)
    starts = np.append(0, np.flatnonzero(tokens[:-1] == end) + 1)
    shifted = starts + np.arange(len(starts))
    states = np.empty((len(tokens), reservoir.n_units), dtype=reservoir.W_.dtype)
    text = np.insert(tokens, starts, end)
    for block, _, positions in reservoir.harvest(
        text, starts=shifted, washout=0, features=embedding, return_positions=True, reuse=True
    ):
        # One full stop more for each sentence: the state is that before this token.
        states[positions + 1 - np.searchsorted(shifted, positions, side="right")] = block
    return states[1:]
