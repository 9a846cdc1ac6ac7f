"""Drawing tokens from distributions, and showing them as text while they come."""

from collections.abc import Callable, Iterable, Iterator
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.validation import check_count, check_finite


class Choice:
    """How the next token is drawn from its log-probabilities.

    Parameters
    ----------
    temperature : float
        Divides log-probabilities; 0 takes the most probable token.
    top_k : int, optional
        Draw among the k most probable tokens.
    top_p : float, optional
        Draw among the fewest tokens whose probabilities add up to ``top_p``.
    random_state : int, Generator or None

    Examples
    --------
    >>> logs = np.log([0.6, 0.3, 0.1])
    >>> Choice(temperature=0).draw(logs)
    0
    >>> {Choice(top_k=1, random_state=seed).draw(logs) for seed in range(20)}
    {0}
    >>> sorted({Choice(top_p=0.8, random_state=seed).draw(logs) for seed in range(50)})
    [0, 1]
    """

    def __init__(
        self,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        check_finite("temperature", temperature)
        if temperature < 0:
            raise ValueError(
                f"temperature must be a finite number of at least 0, got {temperature}"
            )
        if top_k is not None:
            check_count("top_k", top_k)
        if top_p is not None and not (isinstance(top_p, Real) and 0 < top_p <= 1):
            raise ValueError(f"top_p must lie in (0, 1], got {top_p!r}")
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.rng = np.random.default_rng(random_state)

    def draw(self, log_probabilities: NDArray[np.floating], forbidden: int | None = None) -> int:
        """One token from log-probabilities (V,), which need not be normalised."""
        logs = np.array(log_probabilities, dtype=np.float64)
        if forbidden is not None:
            logs[forbidden] = -np.inf
        best = int(np.argmax(logs))
        if self.temperature == 0:
            return best
        weights = np.exp((logs - logs[best]) / self.temperature)
        candidates = self._candidates(weights)
        total = np.cumsum(weights[candidates])
        place = int(np.searchsorted(total, self.rng.random() * total[-1], side="right"))
        return int(candidates[min(place, len(candidates) - 1)])

    def _candidates(self, weights: NDArray[np.float64]) -> NDArray[np.int64]:
        """Tokens to draw among: all, or the most probable, of equal ones the lower number."""
        if self.top_k is None and self.top_p is None:
            return np.arange(len(weights))
        found = np.arange(len(weights))
        if self.top_k is not None and self.top_k < len(weights):
            least = np.partition(weights, -self.top_k)[-self.top_k]
            found = np.flatnonzero(weights >= least)
        order = found[np.argsort(-weights[found], kind="stable")][: self.top_k]
        if self.top_p is None:
            return order
        total = np.cumsum(weights[order])
        return order[: int(np.searchsorted(total, self.top_p * total[-1])) + 1]


def drawn_tokens(
    n_tokens: int,
    prompt: NDArray[Any],
    choice: Choice,
    *,
    read: Callable[[NDArray[Any], Any], Any],
    log_probabilities: Callable[[Any], NDArray[np.floating]],
    tokenizer: Tokenizer | None,
    reset: str,
) -> Iterator[int]:
    """Tokens drawn one after the other, each from what the model says of those before.

    Parameters
    ----------
    prompt : array (n,) of integers
        Read first.
    read : function (ids (n,), state or None) -> state
        The model's state after reading tokens, from ``state`` or from the beginning.
    log_probabilities : function (state) -> (V,)
    tokenizer, reset
        The model's. BOS is never drawn, and after EOS a new sentence begins with
        ``reset="sentence"``.
    """
    bos = None if tokenizer is None else tokenizer.bos_id
    eos = None if tokenizer is None else tokenizer.eos_id
    forbidden = bos if bos != eos else None
    state = read(prompt, None)
    for _ in range(n_tokens):
        token = choice.draw(log_probabilities(state), forbidden)
        yield token
        if token == eos and reset == "sentence" and bos is not None:
            state = read(np.array([bos]), None)
        else:
            state = read(np.array([token]), state)


class TextPieces:
    """Text of tokens as they come, in pieces that together are the decoded continuation.

    Parameters
    ----------
    tokenizer : Tokenizer
    before : array (n,) of integers
        Tokens already shown, which decide on a space before the next word.
    tokens : iterable of int
        Tokens to show; EOS is a line end.
    """

    def __init__(self, tokenizer: Tokenizer, before: Iterable[int], tokens: Iterable[int]) -> None:
        self.tokenizer = tokenizer
        self.shown = [int(token) for token in before][-16:]
        self.tokens = tokens

    def __iter__(self) -> Iterator[str]:
        shown, waiting = self.shown, list[int]()
        for token in self.tokens:
            if token == self.tokenizer.eos_id:
                yield self._piece(shown, waiting) + "\n"
                shown, waiting = [], []
                continue
            waiting.append(token)
            piece = self._piece(shown, waiting)
            if piece.endswith("\ufffd"):  # the rest of the character is in tokens to come
                continue
            yield piece
            shown, waiting = (shown + waiting)[-16:], []
        if waiting:
            yield self._piece(shown, waiting)

    def _piece(self, shown: list[int], waiting: list[int]) -> str:
        if not waiting:
            return ""
        known = self.tokenizer.decode(shown)
        return self.tokenizer.decode(shown + waiting)[len(known) :]
