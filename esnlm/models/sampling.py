"""Drawing tokens from distributions, and showing them as text while they come."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.arrays import Floats, Ints64
from esnlm.utils.validation import Count, Flag, Number, check_parameters, limited


@dataclass
class SamplingOptions:
    """Draws the next token from its log-probabilities.

    ``temperature`` divides these; 0 takes the most probable token. ``top_k`` draws among the k most
    probable tokens, ``top_p`` among the fewest whose probabilities add up to it. ``unknown``: may
    the token of unknown words be drawn, too?
    """

    temperature: float = limited(1.0, Number(0))
    top_k: int | None = limited(None, Count(none=True))
    top_p: float | None = limited(None, Number(0, 1, open="low", none=True))
    random_state: int | np.random.Generator | None = None
    unknown: bool = limited(False, Flag())

    def __post_init__(self) -> None:
        check_parameters(self)
        self.rng = np.random.default_rng(self.random_state)

    def draw(self, log_probabilities: NDArray[np.floating], forbidden: Sequence[int] = ()) -> int:
        """One token, none of the forbidden, from log-probabilities (V,), normalised or not."""
        logs = np.array(log_probabilities, dtype=np.float64)
        logs[list(forbidden)] = -np.inf
        best = int(np.argmax(logs))
        if self.temperature == 0:
            return best
        with np.errstate(over="ignore"):  # to -inf, as the temperature goes to 0
            weights = np.exp((logs - logs[best]) / self.temperature)
        candidates = self._candidates(weights)
        total = np.cumsum(weights[candidates])
        place = int(np.searchsorted(total, self.rng.random() * total[-1], side="right"))
        return int(candidates[min(place, len(candidates) - 1)])

    def _candidates(self, weights: Floats) -> Ints64:
        """Tokens to draw among: all, or the most probable, of equal ones the lower number."""
        candidates = np.arange(len(weights))
        if self.top_k is None and self.top_p is None:
            return candidates
        if self.top_k is not None and self.top_k < len(weights):
            least = np.partition(weights, -self.top_k)[-self.top_k]
            candidates = np.flatnonzero(weights >= least)
        order = candidates[np.argsort(-weights[candidates], kind="stable")][: self.top_k]
        if self.top_p is None:
            return order
        total = np.cumsum(weights[order])
        return order[: int(np.searchsorted(total, self.top_p * total[-1])) + 1]


class NextWord(NamedTuple):
    """A token that may come next, as text (its number without a tokenizer)."""

    word: str | int
    probability: float


def most_probable(probabilities: Floats, k: int, tokenizer: Tokenizer | None) -> list[NextWord]:
    """Return the k tokens of largest probability, of (V,); see `SequenceModel.next_words`."""
    best = np.argsort(-probabilities, kind="stable")[:k].tolist()
    words: list[Any] = best
    if tokenizer is not None:
        words = [_spelled(tokenizer, token) for token in best]
    return [NextWord(w, float(probabilities[i])) for w, i in zip(words, best, strict=True)]


def _spelled(tokenizer: Tokenizer, token: int) -> str:
    """Return a token as text; a boundary or part of a letter as the vocabulary spells it."""
    if token >= len(tokenizer):
        return ""
    text = tokenizer.decode([token])
    return text if text and "\ufffd" not in text else tokenizer.spelling(token)


def text_pieces(
    tokenizer: Tokenizer, before: Iterable[int], tokens: Iterable[int]
) -> Iterator[str]:
    """Text of tokens as they come, in pieces that together are the decoded continuation.

    Tokens ``before``, already shown, decide on a space before the next word; EOS is a line end.
    """
    context, waiting = [int(token) for token in before][-16:], list[int]()

    def piece() -> str:
        start = len(tokenizer.decode(context))
        return tokenizer.decode(context + waiting)[start:] if waiting else ""

    for token in tokens:
        if token == tokenizer.eos_id:
            yield piece() + "\n"
            context, waiting = [], []
            continue
        waiting.append(token)
        if (text := piece()).endswith("\ufffd"):  # the rest of the character is still to come
            continue
        yield text
        context, waiting = (context + waiting)[-16:], []
    if waiting:
        yield piece()
