"""Entropy and rank of tokens, against the distributions themselves."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import entropy
from small_models import DOCS, MODELS, ngrams, of_bytes, reservoir_model

from esnlm.models.token_scores import token_scores


@pytest.mark.parametrize("make", MODELS)
def test_entropy_and_rank_are_those_of_the_distribution(make: Any) -> None:
    model = make()
    stream = model.tokenize(DOCS[:3])
    scores = token_scores(model, stream)
    assert scores.boundary_bits is None  # tokens are words
    starts = np.append(stream.starts, len(stream.tokens))
    for first, after in pairwise(starts):
        for t in range(first + 1, after):
            shares = model.predict_proba(np.asarray(stream.tokens[first:t]))
            own = shares[stream.tokens[t]]
            assert scores.entropy_bits[t] == pytest.approx(entropy(shares, base=2), rel=1e-4)
            assert scores.rank[t] == 1 + (shares > own * (1 + 1e-6)).sum()


@pytest.mark.parametrize("make", [reservoir_model, ngrams])
def test_a_word_is_one_of_those_that_may_begin(make: Any) -> None:
    model = make(tokenizer=of_bytes())
    text = "the boy sees"
    table = model.surprisal(text)
    begins = model.tokenizer_.begins_word
    prefix = [model.tokenizer_.bos_id, *model.tokenizer_.encode("the boy").tolist()]
    shares = model.predict_proba(prefix)
    expected = entropy(shares[begins] / shares[begins].sum(), base=2)
    assert table["entropy_bits"][2] == pytest.approx(expected, rel=1e-4)
    space = model.tokenizer_.encode("a b")[1]
    assert table["rank"][2] == 1 + (shares[begins] > shares[space] * (1 + 1e-6)).sum()
    plain = model.surprisal(text, correct_boundaries=False)
    assert plain["entropy_bits"][2] == pytest.approx(entropy(shares, base=2), rel=1e-4)
