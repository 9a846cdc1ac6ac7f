"""Classes of words: closed ones of English, or those of a file."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from esnlm.evaluation.token_groups import Grouping
from esnlm.text.stimuli import column_of, read_table
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.arrays import Tokens

#: Name of the list of determiners, pronouns, auxiliaries and so on that is part of esnlm.
ENGLISH = "english"
_MARK, _OTHER = "mark", "other words"


def read_classes(name: str) -> dict[str, str]:
    """Return the class of each word of a CSV with columns word and class, or of `ENGLISH`."""
    path = Path(name) if name != ENGLISH else Path(__file__).with_name("english_classes.csv")
    if not path.is_file():
        raise ValueError(f"--classes {name}: no such file; name a CSV, or {ENGLISH}")
    table = read_table(path)
    words, classes = (column_of(table, column, path) for column in ("word", "class"))
    return {word: kind for word, kind in zip(words, classes, strict=True) if kind}


def by_class(tokens: Tokens, tokenizer: Tokenizer, classes: Mapping[str, str]) -> Grouping:
    """Group tokens (n,) by the class of the word, as it is spelled or in lower case.

    Words without a class are marks where they have no letter, and other words.

    >>> tokenizer = Tokenizer.train_words(["The dog ."])
    >>> grouping = by_class(tokenizer.encode("The dog ."), tokenizer, {"the": "determiner"})
    >>> [grouping.names[place] for place in grouping.places]
    ['determiner', 'other words', 'mark']
    """
    if not tokenizer.has_words:
        raise ValueError("--classes needs tokens that are words: train with --tokenizer word")
    names = list(dict.fromkeys([*classes.values(), _MARK, _OTHER]))
    of_token = [
        classes.get(word) or classes.get(word.lower()) or (_MARK if is_mark else _OTHER)
        for word, is_mark in zip(tokenizer.vocabulary, tokenizer.is_mark, strict=True)
    ]
    places = np.array([names.index(name) for name in of_token], dtype=np.int64)
    return Grouping("class", names, places[tokens])
