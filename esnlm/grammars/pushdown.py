"""Word sequences from a stack of pending symbols, exactly, under a condition on their length."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from esnlm.utils.arrays import Floats

Stack: TypeAlias = tuple[str, ...]
RandomState: TypeAlias = "int | np.random.Generator | np.random.RandomState | None"


@dataclass(frozen=True)
class Rule:
    """One expansion of a symbol: at most one word, then the symbols left to expand after it."""

    probability: float
    word: str | None
    then: Stack = ()


@dataclass(frozen=True)
class State:
    """Possible next words after ``n_words`` words, when the symbols ``stack`` are pending.

    ``probabilities`` (V,) of the next word; ``choices`` are the tokens that are possible and
    ``cumulative`` their summed probabilities; ``successors`` the stack after each of them.
    """

    n_words: int
    probabilities: Floats
    choices: list[int]
    cumulative: list[float]
    successors: dict[int, Stack]


class PushdownProcess:
    """A probabilistic grammar conditioned on sentence length, read from left to right.

    The grammar expands the top of a stack that starts as ("S",). Every production emits its first
    word, or is empty; no word may both continue a symbol that can be empty and what lies below it,
    so a prefix has one stack. ``vocabulary[-1]`` ends the sentence, once all that is pending can
    be empty, and does not count for the length.

    Because each symbol's number of words is independent of the others', the probability that a
    stack yields r words is a convolution, and the exact next-word distribution follows without
    enumeration:

        P(word | prefix) = P(rule) h(rest after it, t + 1) / h(stack, t)
        h(stack, t) = sum over r of P(stack yields r words) weight[t + r]
    """

    def __init__(
        self, rules: Mapping[str, Sequence[Rule]], vocabulary: Sequence[str], max_length: int
    ) -> None:
        """Compute the law of each symbol's length; at first every length weighs one."""
        self._rules = {
            name: [r for r in several if r.probability] for name, several in rules.items()
        }
        self._vocabulary = tuple(vocabulary)
        self._token = {word: token for token, word in enumerate(self._vocabulary)}
        self._end = len(self._vocabulary) - 1
        self._max_length = max_length
        self._symbol_lengths = self._count_words()
        self._stack_lengths: dict[Stack, Floats] = {(): np.eye(1, max_length + 1)[0]}
        self._weights = np.ones(max_length + 1)
        self._states: dict[tuple[Stack, int], State] = {}

    def _count_words(self) -> dict[str, Floats]:
        """Return symbol -> probability (max_length + 1,) that it yields exactly that many words.

        Every production but the empty one emits a word, so after k rounds the lengths below k
        are exact.
        """
        size = self._max_length + 1
        kinds: dict[str, dict[tuple[bool, Stack], float]] = {symbol: {} for symbol in self._rules}
        for symbol, masses in kinds.items():
            for rule in self._rules[symbol]:
                kind = (rule.word is not None, rule.then)
                masses[kind] = masses.get(kind, 0.0) + rule.probability
        lengths = {symbol: np.zeros(size) for symbol in kinds}
        for _ in range(size + 1):
            longer = {symbol: np.zeros(size) for symbol in kinds}
            for symbol, masses in kinds.items():
                for (emits, then), mass in masses.items():
                    after = _convolve([lengths[below] for below in then], size)
                    longer[symbol][int(emits) :] += mass * after[: size - emits]
            lengths = longer
        return lengths

    def lengths(self, stack: Stack = ("S",)) -> Floats:
        """Return the probability (max_length + 1,) that the stack yields exactly so many words."""
        if stack not in self._stack_lengths:
            top = self._symbol_lengths[stack[0]]
            self._stack_lengths[stack] = _convolve([top, self.lengths(stack[1:])], len(top))
        return self._stack_lengths[stack]

    def condition(self, weights: Floats) -> None:
        """Weigh sentences by ``weights[length]`` (max_length + 1,), relative to the grammar."""
        self._weights = np.asarray(weights, dtype=np.float64)
        self._states.clear()

    def _mass(self, stack: Stack, n_words: int) -> float:
        """Return h(stack, n_words): weighted probability of all ways to finish the sentence."""
        if n_words > self._max_length:
            return 0.0
        weights = self._weights[n_words:]
        return float(weights @ self.lengths(stack)[: len(weights)])

    def _state(self, stack: Stack = ("S",), n_words: int = 0) -> State:
        """Return the state of a stack after ``n_words`` words, with exact probabilities (V,)."""
        if (stack, n_words) in self._states:
            return self._states[stack, n_words]
        probabilities = np.zeros(len(self._vocabulary))
        successors: dict[int, Stack] = {}
        skipped, rest = 1.0, stack
        while rest and skipped:
            empty = 0.0
            for rule in self._rules[rest[0]]:
                if rule.word is None:
                    empty += rule.probability
                    continue
                token, after = self._token[rule.word], rule.then + rest[1:]
                mass = skipped * rule.probability * self._mass(after, n_words + 1)
                if mass:
                    probabilities[token] = mass
                    successors[token] = after
            skipped, rest = skipped * empty, rest[1:]
        if not rest:
            probabilities[self._end] = skipped * self._mass((), n_words)
        probabilities /= probabilities.sum()
        choices = np.flatnonzero(probabilities)
        cumulative = np.cumsum(probabilities[choices])
        cumulative[-1] = 1.0
        state = State(n_words, probabilities, choices.tolist(), cumulative.tolist(), successors)
        self._states[stack, n_words] = state
        return state

    def walk(self, tokens: Iterable[int]) -> Iterator[State]:
        """Yield the states before each token of whole sentences, and after the last."""
        state = self._state()
        yield state
        for token in tokens:
            if not state.probabilities[token] > 0:
                possible = " ".join(self._vocabulary[choice] for choice in state.choices)
                raise ValueError(
                    f"{self._vocabulary[token]!r} cannot be word {state.n_words + 1} of this "
                    f"sentence, possible are: {possible}"
                )
            if token == self._end:
                state = self._state()
            else:
                state = self._state(state.successors[token], state.n_words + 1)
            yield state

    def draw(self, uniforms: Iterator[float]) -> list[str]:
        """Draw one sentence with its end, each word by one number in [0, 1): none is rejected."""
        state, words = self._state(), []
        while True:
            token = state.choices[bisect_right(state.cumulative, next(uniforms))]
            words.append(self._vocabulary[token])
            if token == self._end:
                return words
            state = self._state(state.successors[token], state.n_words + 1)


def uniforms(random_state: RandomState) -> Iterator[float]:
    """Yield numbers in [0, 1) without end."""
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31)
    rng = np.random.default_rng(random_state)
    while True:
        yield from rng.random(4096).tolist()


def _convolve(parts: Iterable[Floats], size: int) -> Floats:
    """Return the distribution of a sum of independent lengths, cut at ``size``."""
    total = np.eye(1, size)[0]
    for part in parts:
        total = np.convolve(total, part)[:size]
    return total
