"""The Dyck-2 grammar, nested brackets of two kinds: its sampler and its exact oracle."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import KW_ONLY, astuple, dataclass
from functools import cached_property

import numpy as np
import scipy.special

from esnlm.grammars.elman_rules import END
from esnlm.grammars.pushdown import RandomState, uniforms
from esnlm.utils.arrays import Bools, Floats, Ints64
from esnlm.utils.memory import check_memory
from esnlm.utils.validation import Count, Number, check_parameters, limited

#: Kind of bracket -> its opener and its closer.
PAIRS = ("()", "[]")
#: The brackets; the position of one is its token.
BRACKETS = "".join(PAIRS)
#: Opener -> the kind of its bracket.
_OPENERS = {pair[0]: kind for kind, pair in enumerate(PAIRS)}
_SHARE = Number(0, 1, open="both")


@dataclass(eq=False, repr=False)
class DyckGrammar:
    """Bracket sequences of two kinds, and the exact distribution of the next bracket.

    ::

        S -> ( S ) with p1 | [ S ] with p2 | S S with q | nothing with 1 - p1 - p2 - q

    conditioned on a number of brackets in ``[min_length, max_length]`` (Suzgun et al. 2019; Mahto
    et al. 2021, section 3.1.2 and appendix A.10, whose settings are the defaults).

    The grammar derives a sequence in many ways, but what follows a prefix depends only on how many
    pairs each open level has completed. Where T_k is the coefficient of z^k in
    ``B = z + e + q B²``, e the probability of nothing, and Z the probability that a derivation
    ends, a level has k pairs with probability ``T_k ((p1 + p2) Z)^k / Z``, and the levels are
    independent given their lengths. The position of a symbol in ``vocabulary`` is its token.

    >>> grammar = DyckGrammar()
    >>> grammar.vocabulary
    ('(', ')', '[', ']', '.')
    >>> grammar.next_word_distribution("([").round(4).tolist()
    [0.3537, 0.0, 0.3537, 0.2927, 0.0]
    """

    _: KW_ONLY
    p1: float = limited(0.25, _SHARE)
    p2: float = limited(0.25, _SHARE)
    q: float = limited(0.25, _SHARE)
    min_length: int = limited(2, Count(0))
    max_length: int = 200

    def __post_init__(self) -> None:
        """Check the probabilities and lengths, and compute the law of pairs in a level."""
        check_parameters(self)
        p1, p2, q, min_length, max_length = astuple(self)
        if not p1 + p2 + q < 1:
            raise ValueError(f"p1 + p2 + q must be below 1, got {p1 + p2 + q:g}")
        Count(max(2, min_length)).check("max_length", max_length)
        if min_length == max_length and max_length % 2:
            raise ValueError(f"brackets come in pairs: no sequence has {max_length}")
        self.vocabulary: tuple[str, ...] = (*BRACKETS, END)
        self._kinds = np.array([p1, p2]) / (p1 + p2)
        p = p1 + p2
        self._ends = min(1.0, (1 - p - q) / q)
        self._root = float(np.sqrt((1 - 2 * q) ** 2 + 4 * p * q))  # of 1 - 4 q e
        ratio = 4 * q * p * self._ends / self._root**2
        # P(one more pair after j).
        self._continue = _continuations(ratio, p / self._root, max_length // 2 + 1)

    @cached_property
    def _rest(self) -> Floats:
        """Law (j, max_length + 1) of the number of brackets that a level with j pairs still gets.

        Entries that only longer sequences reach are left out. Samples need none of it.
        """
        p, q, root, continues = self.p1 + self.p2, self.q, self._root, self._continue
        e, n_pairs = 1 - p - q, len(continues)
        check_memory("the laws of lengths", 8 * n_pairs * self.max_length, "lower max_length")
        # Lengths of a derivation: s = e + p x² s + q s².
        lengths = np.zeros(self.max_length + 1)
        lengths[0] = 2 * e / (1 + root)
        for n in range(2, self.max_length + 1, 2):
            both = lengths[1:n] @ lengths[n - 1 : 0 : -1]
            lengths[n] = (p * lengths[n - 2] + q * both) / root
        pair = np.concatenate([[0.0, 0.0], lengths[:-2]]) / self._ends
        rest = np.zeros((n_pairs + 1, self.max_length + 1))
        for j in range(n_pairs - 1, -1, -1):
            rest[j] = continues[j] * np.convolve(pair, rest[j + 1])[: self.max_length + 1]
            rest[j, 0] += 1 - continues[j]
        return rest

    def sample(
        self,
        n_sequences: int,
        random_state: RandomState = None,
        *,
        distinct: bool = False,
        unlike: Container[str] = (),
    ) -> list[str]:
        """Draw ``n_sequences`` independent sequences, without their end.

        With ``distinct``, one that came before, or that is in ``unlike``, is drawn anew, as the
        authors' published code does: short ones are then rare, and rarer the more are drawn.

        >>> DyckGrammar(max_length=8).sample(3, random_state=5)
        ['[]', '()', '[()]']
        """
        Count(0).check("n_sequences", n_sequences)
        check_memory(f"{n_sequences} sequences", 100 * n_sequences, "draw fewer")
        numbers = uniforms(random_state)
        earlier: dict[str, None] = {}
        sequences: list[str] = []
        while len(sequences) < n_sequences:
            sequence = self._draw(numbers)
            if sequence is None or (distinct and (sequence in earlier or sequence in unlike)):
                continue
            earlier[sequence] = None
            sequences.append(sequence)
        return sequences

    def _draw(self, numbers: Iterator[float]) -> str | None:
        """Draw one sequence, or None where its length is out of bounds."""
        brackets: list[str] = []
        closers: list[str] = []
        pairs = [0]
        first = float(self._kinds[0])
        while len(brackets) + len(closers) <= self.max_length:
            if next(numbers) < self._continue[pairs[-1]]:
                pair = PAIRS[0] if next(numbers) < first else PAIRS[1]
                brackets.append(pair[0])
                closers.append(pair[1])
                pairs.append(0)
            elif closers:
                brackets.append(closers.pop())
                pairs.pop()
                pairs[-1] += 1
            else:
                return "".join(brackets) if len(brackets) >= self.min_length else None
        return None

    def next_word_distribution(self, prefix: Sequence[str] = "") -> Floats:
        """Return exact probabilities (5,) of what follows, in the order of ``vocabulary``."""
        *_, row = self._rows(prefix)
        return row

    def oracle(self, sequence: Sequence[str]) -> Floats:
        """Return exact distributions (T + 1, 5), row t of what follows the first t brackets."""
        return np.array(list(self._rows(sequence)))

    def log_probability(self, sequence: Sequence[str]) -> float:
        """Return the natural-log probability of a sequence and its end; -inf for a wrong length.

        >>> grammar = DyckGrammar(max_length=2)
        >>> [round(float(np.exp(grammar.log_probability(s))), 4) for s in ("()", "[]")]
        [0.5, 0.5]
        """
        tokens = [self.vocabulary.index(symbol) for symbol in (*sequence, END)]
        picked = [row[token] for row, token in zip(self._rows(sequence), tokens, strict=True)]
        with np.errstate(divide="ignore"):
            return float(np.log(picked).sum())

    def _rows(self, sequence: Sequence[str]) -> Iterator[Floats]:
        """Yield the distribution (5,) before the first bracket and after each one."""
        levels = [_Level(0, np.eye(1, self.max_length + 1)[0], None)]
        yield self._row(levels, 0)
        for n_read, bracket in enumerate(sequence, 1):
            level = levels[-1]
            if bracket in _OPENERS:
                levels.append(_Level(0, self._below(level), _OPENERS[bracket]))
            elif level.kind is not None and bracket == PAIRS[level.kind][1]:
                levels.pop()
                levels[-1].pairs += 1
            else:
                raise ValueError(f"{bracket!r} cannot be bracket {n_read} of this sequence")
            if n_read + len(levels) - 1 > self.max_length:
                raise ValueError(f"no sequence of {self.max_length} brackets starts like this")
            yield self._row(levels, n_read)

    def _below(self, level: "_Level") -> Floats:
        """Return the law of what is left after the pair opened in ``level``, with its closer."""
        after = np.convolve(level.below, self._rest[level.pairs + 1])[: self.max_length]
        return np.concatenate([[0.0], after])

    def _row(self, levels: "list[_Level]", n_read: int) -> Floats:
        """Return the distribution (5,) of the next symbol after ``n_read`` brackets."""
        level = levels[-1]
        row = np.zeros(len(self.vocabulary))
        more = self._continue[level.pairs]
        opened = self._mass(np.convolve(self._below(level), self._rest[0]), n_read + 1)
        row[[0, 2]] = more * opened * self._kinds
        if level.kind is None:
            row[4] = (1 - more) * (self.min_length <= n_read <= self.max_length)
        else:
            row[2 * level.kind + 1] = (1 - more) * self._mass(level.below[1:], n_read + 1)
        return row / row.sum()

    def _mass(self, law: Floats, n_read: int) -> float:
        """Return the probability that what is left, by ``law``, ends at a length within bounds."""
        least = max(0, self.min_length - n_read)
        return float(law[least : max(0, self.max_length - n_read + 1)].sum())


@dataclass
class _Level:
    """An open pair: pairs completed inside, law of what follows its end, its kind of bracket."""

    pairs: int
    below: Floats
    kind: int | None


def allowed_closers(sequence: Sequence[str]) -> Bools:
    """Return which closer may come next after each bracket, of the innermost open pair: (T, 2).

    >>> allowed_closers("([])").astype(int).tolist()
    [[1, 0], [0, 1], [1, 0], [0, 0]]
    """
    allowed = np.zeros((len(sequence), len(PAIRS)), dtype=bool)
    pending: list[int] = []
    for t, bracket in enumerate(sequence):
        if bracket in _OPENERS:
            pending.append(_OPENERS[bracket])
        else:
            pending.pop()
        if pending:
            allowed[t, pending[-1]] = True
    return allowed


def bracket_distances(sequence: Sequence[str]) -> Ints64:
    """Return steps from each opener to its closer, in the order of the closers: the timescales.

    >>> bracket_distances("([])()").tolist()
    [1, 3, 1]
    """
    distances: list[int] = []
    pending: list[int] = []
    for t, bracket in enumerate(sequence):
        if bracket in _OPENERS:
            pending.append(t)
        else:
            distances.append(t - pending.pop())
    return np.array(distances, dtype=np.int64)


def _continuations(ratio: float, one: float, n_pairs: int) -> list[float]:
    """Return P(more than j pairs | at least j) for j < n_pairs; ``one`` is P(exactly one pair).

    ``B(z) = (1 - sqrt(1 - 4 q (z + e))) / (2 q)``, so that the probabilities of k + 1 and k >= 1
    pairs are in the ratio (k - 1/2) / (k + 1) times ``ratio``. At least k pairs are a series of
    Gauss times as probable as k.
    """
    k = np.arange(1, n_pairs + 1)
    series = scipy.special.hyp2f1(1, k - 0.5, k + 1, ratio)
    more = ratio * ((k - 0.5) / (k + 1))[:-1] * series[1:] / series[:-1]
    return [float(one * series[0]), *more.tolist()]
