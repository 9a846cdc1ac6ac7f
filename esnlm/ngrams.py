"""Interpolated Kneser-Ney n-grams on token sequences: the baseline every model stands beside."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.integer[Any]]
Docs: TypeAlias = "NDArray[np.integer] | Sequence[ArrayLike]"

#: Discounts where the counts of counts are too few to estimate them (as KenLM falls back).
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)
#: Places in a document are kept in 16 bits up to the order.
MAX_ORDER = 1_000


@dataclass
class _Level:
    """All k-grams of one order, sorted by context and then by token.

    ``keys`` (n_grams,) int64: context * n_tokens + token, where the context is the position of
    the (k - 1)-gram in its own level (its token for k = 2, 0 for k = 1).
    ``values`` (n_grams,): (c - D(c)) / c(context), the part of the probability that is its own.
    ``left_over`` (n_contexts,): weight of the next shorter context; 1 where nothing follows.
    """

    keys: Ints
    values: Floats
    left_over: Floats


class KneserNey(BaseEstimator):
    """Interpolated Kneser-Ney n-gram model of tokens in ``range(n_tokens)``.

    The lower orders count distinct left contexts. An n-gram at the very start of a document has
    no left context and keeps its plain count, as in SRILM and KenLM. The unigrams are interpolated
    with the uniform distribution over ``n_tokens``, so no token has probability zero.

    The model predicts every token of a document but the first, from at most ``order - 1``
    preceding tokens of the same document: the tokens that a ``LanguageModel`` predicts. Contexts
    never cross documents; for contexts that cross sentences pass one long array.

    Parameters
    ----------
    order : longest n-gram, at least 1.
    n_tokens : size of the vocabulary; None takes the largest token of the fit plus one.
    discounts : "modified", three per order, for counts 1, 2 and above (Chen & Goodman 1998), or
        "single", one per order (Kneser & Ney 1995). Orders whose counts of counts are too few to
        estimate them take 0.5, 1 and 1.5 ("single": 0.5).

    Attributes
    ----------
    discounts_ : (order, 3) discounts of counts 1, 2 and above, unigrams first.
    n_tokens_ : size of the vocabulary.
    n_parameters_ : number of distinct n-grams of all orders.

    References
    ----------
    S. F. Chen and J. Goodman (1998), An empirical study of smoothing techniques for language
    modeling, equations 4.29 to 4.33.

    Examples
    --------
    >>> model = KneserNey(order=3, n_tokens=4).fit([[0, 1, 2, 1, 2, 3], [0, 1, 2, 3]])
    >>> after = model.next_token_distribution([1, 2])
    >>> int(after.argmax()), round(float(after.sum()), 12)
    (3, 1.0)
    >>> [len(scores) for scores in model.log_likelihood([[0, 1, 2, 3], [0, 3]])]
    [3, 1]
    """

    def __init__(
        self, order: int = 5, *, n_tokens: int | None = None, discounts: str = "modified"
    ) -> None:
        self.order = order
        self.n_tokens = n_tokens
        self.discounts = discounts

    def fit(self, docs: Docs) -> Self:
        """Count the n-grams of ``docs``: integer arrays, or one long integer array.

        Memory peaks at about 120 bytes a token. Raises ValueError for an empty corpus,
        tokens that are not integers or lie outside ``range(n_tokens)``.
        """
        self._check_parameters()
        arrays = _as_arrays(docs)
        tokens, offsets = _join(arrays, self.order)
        if not np.any(offsets > 0):
            raise ValueError("the corpus holds no token to predict: documents need two or more")
        largest = int(tokens.max()) + 1
        self.n_tokens_ = largest if self.n_tokens is None else int(self.n_tokens)
        _check_range(tokens, self.n_tokens_)
        self._count(tokens, offsets)
        self.n_parameters_ = sum(len(level.keys) for level in self._levels)
        return self

    def _check_parameters(self) -> None:
        if not 1 <= self.order <= MAX_ORDER:
            raise ValueError(f"order must lie in [1, {MAX_ORDER}], got {self.order}")
        if self.discounts not in ("modified", "single"):
            raise ValueError(f"discounts must be 'modified' or 'single', got {self.discounts!r}")
        if self.n_tokens is not None and self.n_tokens < 1:
            raise ValueError(f"n_tokens must be at least 1, got {self.n_tokens}")

    def _count(self, tokens: Ints, offsets: Ints) -> None:
        """Build the levels from short to long; the types of one level count for the one below."""
        self._levels: list[_Level] = []
        self.discounts_ = np.zeros((self.order, 3))
        unigrams = np.unique(tokens[offsets > 0])
        keys, n_contexts = unigrams, 1
        ids: Ints = tokens.astype(np.int32)
        for order in range(2, self.order + 1):
            longer_keys, longer_ids = _next_order(ids, tokens, offsets, order, self.n_tokens_)
            inside = offsets >= order - 1
            below = np.empty(len(longer_keys), dtype=np.int32)
            below[longer_ids[inside]] = ids[inside]
            at_start = ids[offsets == order - 2] if order > 2 else ids[:0]
            size = self.n_tokens_ if order == 2 else len(keys)
            counts = np.bincount(below, minlength=size) + np.bincount(at_start, minlength=size)
            if order == 2:
                counts = counts[unigrams]
            self._add_level(keys, counts, n_contexts)
            n_contexts = size
            keys, ids = longer_keys, longer_ids
        ending = ids[offsets >= max(self.order - 1, 1)]
        counts = np.bincount(ending, minlength=len(keys))
        self._add_level(keys, counts[unigrams] if self.order == 1 else counts, n_contexts)

    def _add_level(self, keys: Ints, counts: Ints, n_contexts: int) -> None:
        """Discount the counts of one order and share what that leaves over."""
        row = self.discounts_[len(self._levels)]
        row[:] = _estimate_discounts(counts, self.discounts)
        taken = row[np.minimum(counts, 3) - 1]
        contexts = keys // self.n_tokens_
        totals = np.bincount(contexts, weights=counts, minlength=n_contexts)
        left_over = np.ones(n_contexts)
        freed = np.bincount(contexts, weights=taken, minlength=n_contexts)
        np.divide(freed, totals, out=left_over, where=totals > 0)
        self._levels.append(_Level(keys, (counts - taken) / totals[contexts], left_over))

    def log_likelihood(self, docs: Docs) -> list[Floats]:
        """Natural-log probabilities of ``doc[1:]``, one array (len(doc) - 1,) per document."""
        arrays = _as_arrays(docs)
        tokens, offsets = _join(arrays, self.order)
        _check_range(tokens, self._fitted_n_tokens())
        scores = np.log(self._probabilities(tokens, offsets))
        ends = np.cumsum([len(doc) for doc in arrays])
        return [
            scores[end - len(doc) + 1 : end] for doc, end in zip(arrays, ends.tolist(), strict=True)
        ]

    def _probabilities(self, tokens: Ints, offsets: Ints) -> Floats:
        """Probability (T,) of each token given its document so far; 1 for first tokens."""
        uniform = np.full(len(tokens), 1.0 / self.n_tokens_)
        level = self._levels[0]
        ids = _find(level.keys, tokens)
        result = _own(level, ids) + level.left_over[0] * uniform
        ids = tokens
        for order, level in enumerate(self._levels[1:], start=2):
            contexts = np.concatenate([[-1], ids[:-1]])
            contexts[offsets < order - 1] = -1
            known = np.flatnonzero(contexts >= 0)
            ids = np.full(len(tokens), -1, dtype=np.int64)
            context = contexts[known]
            ids[known] = _find(level.keys, context * self.n_tokens_ + tokens[known])
            result[known] = _own(level, ids[known]) + level.left_over[context] * result[known]
        result[offsets == 0] = 1.0
        return result

    def perplexity(self, docs: Docs) -> float:
        """exp of the mean negative log-likelihood per predicted token."""
        scores = np.concatenate([np.empty(0), *self.log_likelihood(docs)])
        if not len(scores):
            raise ValueError("perplexity needs at least one predicted token, got none")
        return float(np.exp(-scores.mean()))

    def next_token_distribution(self, context: ArrayLike) -> Floats:
        """Probabilities (n_tokens,) of the token after ``context``, seen or not, empty or not."""
        history = np.asarray(context, dtype=np.int64)
        _check_range(history, self._fitted_n_tokens())
        level = self._levels[0]
        result = np.full(self.n_tokens_, level.left_over[0] / self.n_tokens_)
        result[level.keys] += level.values
        for length in range(1, min(self.order - 1, len(history)) + 1):
            context_id = self._context_id(history[len(history) - length :])
            if context_id < 0:
                break
            level = self._levels[length]
            low, high = np.searchsorted(
                level.keys, [context_id * self.n_tokens_, (context_id + 1) * self.n_tokens_]
            )
            result *= level.left_over[context_id]
            result[level.keys[low:high] % self.n_tokens_] += level.values[low:high]
        return result

    def _context_id(self, words: Ints) -> int:
        """Position of an n-gram in its level, or -1."""
        found = words[:1]
        for level, word in zip(self._levels[1:], words[1:], strict=False):
            found = _find(level.keys, found * self.n_tokens_ + word)
            if found[0] < 0:
                break
        return int(found[0])

    def _fitted_n_tokens(self) -> int:
        if not hasattr(self, "_levels"):
            raise ValueError("this KneserNey has no counts yet: call fit first")
        return self.n_tokens_


def kneser_ney_perplexities(
    train: Docs,
    test: Docs,
    *,
    orders: Iterable[int] = range(1, 6),
    n_tokens: int | None = None,
) -> dict[int, float]:
    """Order -> perplexity on ``test`` of the interpolated model fitted on ``train``.

    >>> kneser_ney_perplexities([[0, 1, 0, 1, 0, 1]], [[0, 1, 0]], orders=[2], n_tokens=2)[2] < 2
    True
    """
    return {
        order: KneserNey(order, n_tokens=n_tokens).fit(train).perplexity(test) for order in orders
    }


def _next_order(
    ids: Ints, tokens: Ints, offsets: Ints, order: int, n_tokens: int
) -> tuple[Ints, Ints]:
    """Distinct keys of the n-grams of ``order``, and which one ends at each position (or -1).

    ``ids`` (T,) are the n-grams one shorter that end at each position: the context is at t - 1.
    """
    ends = np.flatnonzero(offsets >= order - 1)
    keys = ids[ends - 1].astype(np.int64) * n_tokens + tokens[ends]
    by_key = np.argsort(keys)
    keys = keys[by_key]
    first = np.empty(len(keys), dtype=bool)
    first[:1] = True
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    longer = np.full(len(tokens), -1, dtype=np.int32)
    longer[ends[by_key]] = np.cumsum(first, dtype=np.int32) - 1
    return keys[first], longer


def _estimate_discounts(counts: Ints, kind: str) -> tuple[float, float, float]:
    """Discounts of counts 1, 2 and above, from the numbers of n-grams counted 1 to 4 times."""
    n1, n2, n3, n4 = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].astype(float)
    if not (n1 and n2):
        return FALLBACK_DISCOUNTS if kind == "modified" else (0.5, 0.5, 0.5)
    share = n1 / (n1 + 2 * n2)
    if kind == "single":
        return share, share, share
    if not n3:
        return FALLBACK_DISCOUNTS
    found = (1 - 2 * share * n2 / n1, 2 - 3 * share * n3 / n2, 3 - 4 * share * n4 / n3)
    usable = all(0 < discount < count for count, discount in enumerate(found, start=1))
    return found if usable else FALLBACK_DISCOUNTS


def _find(keys: Ints, wanted: Ints) -> Ints:
    """Positions of ``wanted`` in the sorted ``keys``, -1 where missing."""
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    at = np.searchsorted(keys, wanted)
    np.minimum(at, len(keys) - 1, out=at)
    return np.where(keys[at] == wanted, at, -1)


def _own(level: _Level, ids: Ints) -> Floats:
    """The n-grams' own parts of the probability, 0 where unseen."""
    if not len(level.values):
        return np.zeros(len(ids))
    return np.where(ids >= 0, level.values[ids], 0.0)


def _as_arrays(docs: Docs) -> list[NDArray[np.integer]]:
    if isinstance(docs, np.ndarray) and docs.dtype != object:
        if docs.ndim != 1:
            raise ValueError(f"docs must be 1-D integer arrays, got one {docs.ndim}-D array")
        return [_integers(docs)]
    if isinstance(docs, str):
        raise ValueError("docs must be integer arrays, got a string: tokenize it first")
    return [_integers(np.asarray(doc)) for doc in docs]


def _integers(doc: NDArray[Any]) -> NDArray[np.integer]:
    if doc.ndim != 1 or (doc.size and not np.issubdtype(doc.dtype, np.integer)):
        raise ValueError(f"a document must be 1-D integers, got {doc.ndim}-D {doc.dtype}")
    return doc


def _join(docs: list[NDArray[np.integer]], order: int) -> tuple[Ints, Ints]:
    """All tokens (T,), and the place (T,) of each in its document, cut at ``order``."""
    empty = np.empty(0, dtype=np.int64)
    tokens = np.concatenate([empty, *(doc.astype(np.int64, copy=False) for doc in docs)])
    offsets = np.full(len(tokens), order, dtype=np.int16)
    lengths = np.array([len(doc) for doc in docs], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    for place in range(order):
        offsets[starts[lengths > place] + place] = place
    return tokens, offsets


def _check_range(tokens: Ints, n_tokens: int) -> None:
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < n_tokens):
        raise ValueError(
            f"tokens must lie in [0, {n_tokens}), got {tokens.min()} to {tokens.max()}"
        )
