"""A text that was encoded at once: its sentences and words, and the tokens of each."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from esnlm.models.token_scores import BEGINS, GOES_ON, LEAVES, STARTS, TokenScores
from esnlm.text.backends import is_of_word, is_punctuation
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.arrays import Array, Bools, Floats, Ints64


def bare_word(word: str) -> str:
    """Return a word in lower case without punctuation at its ends; a mark alone as it is.

    >>> bare_word("Dogs,"), bare_word("--")
    ('dogs', '--')
    """
    places = [place for place, character in enumerate(word) if is_of_word(character)]
    return word[places[0] : places[-1] + 1].lower() if places else word


@dataclass
class EncodedText:
    """A text that was encoded at once: its words, its lines, and the word of each token.

    ``end`` spells the last token where that is the end of the sentence. ``unknown``: tokens that
    training did not have. ``of_words`` is needed for `word_rows`.
    """

    text: str
    offsets: list[tuple[int, int]]
    end: str | None
    tokens: Array
    predicted: Bools
    unknown: Bools
    bits: Floats
    of_words: TokenScores | None
    tokenizer: Tokenizer

    def __post_init__(self) -> None:
        """Find sentences and words in the text, and map words to lines and tokens to words."""
        shape = self._without_spaces_in_words()
        self.sentences, ends_of_sentences = _matches(r"\S(?:.*\S)?", self.text, shape)
        self.strings, ends_of_words = _matches(r"\S+", self.text, shape)
        self.n_lines = len(self.sentences)
        self.lines = _first_after(ends_of_words - 1, ends_of_sentences)
        self.firsts = np.searchsorted(self.lines, np.arange(self.n_lines + 1))
        self.owners = _first_after([low for low, _ in self.offsets], ends_of_words)
        if self.end is not None:
            self.owners = np.append(self.owners, len(self.strings))
            self.lines = np.append(self.lines, self.lines[-1:])
            self.strings.append(self.end)

    def sentence_rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield line, string, n_words, n_characters, and `_sums`."""
        sums = self._sums(self.lines[self.owners], self.n_lines)
        for line, (string, values) in enumerate(zip(self.sentences, sums, strict=True)):
            n_words = int(self.firsts[line + 1] - self.firsts[line])
            yield (line, string, n_words, len(string), *values)

    def word_rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield line and the other columns of words; log frequencies are not known here."""
        if self.of_words is None:
            raise ValueError("rows of words need the scores of whole distributions")
        whole, bare = self._word_bits(self.of_words)
        firsts = np.searchsorted(self.owners, np.arange(len(self.strings)))
        firsts = np.minimum(firsts, max(len(self.tokens) - 1, 0))
        entropy, rank = self.of_words.entropy_bits[firsts], self.of_words.rank[firsts]
        sums = self._sums(self.owners, len(self.strings))
        for word, (string, (n_tokens, n_unknown, _)) in enumerate(
            zip(self.strings, sums, strict=True)
        ):
            line, position = self._place(word)
            is_end = self.end is not None and word == len(self.strings) - 1
            is_last = not is_end and position == self.firsts[line + 1] - self.firsts[line]
            length = nan if is_end else len(bare_word(string))
            about = (length, nan, position == 1 and not is_end, bool(is_last), n_tokens, n_unknown)
            bits = float(whole[word]), float(bare[word])
            yield (line, position, string, *about, *bits, float(entropy[word]), int(rank[word]))

    def token_rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield line, position, token, string, id and bits."""
        inside = self.lines[self.owners]
        order = np.arange(len(inside)) - np.searchsorted(inside, inside) + 1
        for t in np.flatnonzero(self.predicted).tolist():
            word = int(self.owners[t])
            string = self.text[slice(*self.offsets[t])] if t < len(self.offsets) else self.end
            values = (int(order[t]), string, int(self.tokens[t]), float(self.bits[t]))
            yield (*self._place(word), *values)

    def _without_spaces_in_words(self) -> str:
        """Return the text with a letter for each white space within a token that holds words.

        To KenLM only spaces and tabs part words, so its vocabularies have words with U+00A0. A
        token may have been added for several words, such as "New York".
        """
        inside = r"(?<=\S)[^\S\r\n]+(?=\S)" + r"|[^\S \t\r\n]" * self.tokenizer.has_words
        spaces, letters = re.compile(inside), list(self.text)
        for low, high in self.offsets:
            if spaces.search(token := self.text[low:high]):
                letters[low:high] = spaces.sub(lambda space: "_" * len(space[0]), token)
        return "".join(letters)

    def _word_bits(self, scores: TokenScores) -> tuple[Floats, Floats]:
        """Return the bits (n_words,) of words with and without the marks at their ends.

        The bits of a word are those of its tokens and of its end, less those of the boundary
        before it. Without marks, a mark ends a word as well. After an opening mark, the letters
        are compared only with tokens that continue a word.
        """
        n = len(self.tokens)
        if not n:
            return np.zeros(len(self.strings)), np.zeros(len(self.strings))
        cumulative = np.append(0.0, np.cumsum(self.bits * self.predicted))
        bounds = np.searchsorted(self.owners, np.arange(len(self.strings) + 1))
        first, after = bounds[:-1], bounds[1:]
        begin, leave, go_on = self._boundaries(scores.boundary_bits, n)
        whole = cumulative[after] - cumulative[first] + begin[after] - begin[first]
        is_mark: list[bool] = []
        for span in reversed(self.offsets):
            text = self.text[slice(*span)]  # of a part of a character it is the whole
            # A space alone is of the word if letters come next.
            is_mark.append(is_punctuation(text) or (not text.strip() and is_mark[-1:] != [False]))
        letters = np.flatnonzero([*(not mark for mark in is_mark[::-1]), self.end is not None])
        low = np.append(letters, n)[np.searchsorted(letters, first)]
        high = np.append(letters, -1)[np.searchsorted(letters, after) - 1] + 1
        before = np.where(low == first, begin[first], go_on[np.minimum(low, n)])
        core = np.clip(low, first, after), np.clip(high, first, after)
        bits = cumulative[core[1]] - cumulative[core[0]] + leave[core[1]] - before
        return whole, np.where((low < after) & (high > first), bits, whole)

    def _boundaries(self, bits: Floats | None, n: int) -> tuple[Floats, Floats, Floats]:
        """Return bits (n + 1,) of a beginning, a leaving and a going on before each token."""
        if bits is None:
            return (np.zeros(n + 1),) * 3
        begin, leave, go_on = (np.append(bits[kind], 0.0) for kind in (BEGINS, LEAVES, GOES_ON))
        begins = self.tokenizer.begins_word
        if begins is not None and not begins[self.tokens[0]]:
            begin[0] = bits[STARTS, 0]
        return begin, leave, go_on

    def _place(self, word: int) -> tuple[int, int]:
        """Return the line of a word, and its place there, counted from 1; the end comes last."""
        line = int(self.lines[word])
        return line, word - int(self.firsts[line]) + 1

    def _sums(self, groups: Ints64, n_groups: int) -> Iterator[tuple[Any, ...]]:
        """Return tokens, unknown tokens and bits of each group, of the predicted tokens."""
        columns = (
            np.bincount(groups[self.predicted], minlength=n_groups),
            np.bincount(groups[self.unknown], minlength=n_groups),
            np.bincount(groups, weights=self.bits * self.predicted, minlength=n_groups),
        )
        return zip(*(column.tolist() for column in columns), strict=True)


def _matches(pattern: str, text: str, shape: str) -> tuple[list[str], Ints64]:
    """Return the strings where a shape of the text has a pattern, and the places where they end."""
    spans = [match.span() for match in re.finditer(pattern, shape)]
    return [text[slice(*span)] for span in spans], np.array([end for _, end in spans], dtype=int)


def _first_after(places: ArrayLike, ends: Ints64) -> Ints64:
    """Return number of the first string that ends after each place, or else the last."""
    return np.minimum(np.searchsorted(ends, places, side="right"), max(len(ends) - 1, 0))
