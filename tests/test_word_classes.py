"""Classes of words, against the closed classes that grammars of English list."""

import numpy as np
import pytest

from esnlm.studies.timescales.word_classes import ENGLISH, by_class, read_classes
from esnlm.text.tokenizers import Tokenizer


def test_closed_classes_of_english():
    classes = read_classes(ENGLISH)
    expected = {"the": "determiner", "they": "pronoun", "of": "preposition", "and": "conjunction",
                "would": "auxiliary", "n't": "negation", "N": "number"}  # fmt: skip
    assert expected.items() <= classes.items()
    assert not {"stock", "sell", "new", "quickly"} & classes.keys()


def test_every_token_has_one_class():
    text = "The dog and US see 3 ; dogs"
    tokenizer = Tokenizer.train_words([text])
    tokens = np.asarray(tokenizer.encode(text))
    grouping = by_class(
        tokens, tokenizer, {"the": "determiner", "and": "conjunction", "US": "name"}
    )
    assert [grouping.names[place] for place in grouping.places] == [
        "determiner", "other words", "conjunction", "name", "other words", "other words", "mark",
        "other words",
    ]  # fmt: skip


def test_parts_of_words_have_no_class():
    tokenizer = Tokenizer.train_characters(["the dog"])
    with pytest.raises(
        ValueError, match="needs tokens that are words: train with --tokenizer word"
    ):
        by_class(np.array([0]), tokenizer, {})
