"""Parts of minimal pairs: known words, and no mere reordering."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from esnlm.evaluation.minimal_pairs.records import Pair
from esnlm.text.backends import is_of_word
from esnlm.text.corpus import TextCorpus
from esnlm.text.shards import Shards
from esnlm.utils.arrays import Bools

_PERMUTED_SHARE = 0.95
_SENTENCES_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class TrainingWords:
    """The words of a training text: what stands between white space, punctuation and case kept.

    ``normal`` is applied to a sentence before its words are looked up.

    >>> TrainingWords(frozenset({"The", "dog", "walks"})).hold("The dog walks.")
    False
    """

    words: frozenset[str]
    normal: Callable[[str], str] = str

    def hold(self, sentence: str) -> bool:
        """Whether all words of a sentence occur in the text."""
        return self.words.issuperset(self.normal(sentence).split())


def words_of_text(paths: Sequence[str]) -> TrainingWords:
    """Return the words of text files, plain or ``.gz``, and of folders of them."""
    words: set[str] = set()
    for line in TextCorpus(paths, "line"):
        words.update(line.split())
    return TrainingWords(frozenset(words))


def words_of_shards(folder: str) -> TrainingWords:
    """Return the words of shards, decoded sentence by sentence.

    What their tokenizer does to a text that it cuts and puts together again, as one that
    lower-cases or parts punctuation, is done to sentences before their words are looked up.
    """
    shards = Shards(folder)
    stream, backend = shards.stream(), shards.tokenizer.backend
    assert stream.starts is not None
    ends = np.append(stream.starts, len(stream.tokens))
    words: set[str] = set()
    for first in range(0, len(stream.starts), _SENTENCES_AT_ONCE):
        places = ends[first : first + _SENTENCES_AT_ONCE + 1]
        tokens = np.asarray(stream.tokens[places[0] : places[-1]])
        sentences = [part.tolist() for part in np.split(tokens, places[1:-1] - places[0])]
        words.update(" ".join(backend.decode_batch(sentences)).split())
    # An empty one is false, but not None.
    normaliser, cutter, decoder = backend.normalizer, backend.pre_tokenizer, backend.decoder

    def normal(text: str) -> str:
        text = text if normaliser is None else normaliser.normalize_str(text)
        pieces = [text] if cutter is None else [piece for piece, _ in cutter.pre_tokenize_str(text)]
        return " ".join(pieces) if decoder is None else str(decoder.decode(pieces))

    return TrainingWords(frozenset(words), normal)


def permuting_paradigms(pairs: Sequence[Pair]) -> list[str]:
    """Names of the paradigms that permute words: the two sentences of a pair have the same ones.

    Case and punctuation do not count, and it is enough that 95 % of a paradigm's pairs are so. A
    model that knows no order of words scores the sentences of such a pair nearly alike, and a
    unigram model of words in lower case exactly alike.

    >>> pair = Pair("p", "f", "q", "1", "Whose hat had Ann seen?", "Whose had Ann seen hat?")
    >>> permuting_paradigms([pair])
    ['p']
    """
    counts: dict[str, list[bool]] = defaultdict(list)
    for pair in pairs:
        counts[pair.paradigm].append(_sorted_words(pair.good) == _sorted_words(pair.bad))
    return sorted(name for name, same in counts.items() if np.mean(same) >= _PERMUTED_SHARE)


def _sorted_words(sentence: str) -> list[str]:
    text = sentence.lower()
    for character in set(text):
        if not is_of_word(character) and character not in "'-":
            text = text.replace(character, " ")
    return sorted(word.strip("'-") for word in text.split())


def subsets(pairs: Sequence[Pair], words: TrainingWords | None = None) -> dict[str, Bools]:
    """Name of a part -> which of the n pairs belong to it (n,).

    ``seen_words``: all words occur in the training text, where there are ``words``.
    ``not_permuted``: of paradigms that do not permute words, see `permuting_paradigms`.
    ``other_items``: these, but for pairs that the data's authors mark as of the same lexical items.
    The last two are left out where they have all pairs or none.
    """
    permuting = set(permuting_paradigms(pairs))
    ordered = np.array([pair.paradigm not in permuting for pair in pairs])
    same_items = np.array([pair.same_items for pair in pairs])
    parts = {"not_permuted": ordered, "other_items": ordered & ~same_items}
    parts = {name: part for name, part in parts.items() if part.any() and not part.all()}
    if words is not None:
        marks = [words.hold(pair.good) and words.hold(pair.bad) for pair in pairs]
        parts = {"seen_words": np.array(marks), **parts}
    return parts
