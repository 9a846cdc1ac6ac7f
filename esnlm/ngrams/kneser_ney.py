"""Interpolated Kneser-Ney n-grams on token sequences: the baseline every model stands beside."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from esnlm.ngrams.counts import (
    Floats,
    Ints,
    NgramCounts,
    Table,
    estimate_discounts,
    find,
    find_contexts,
    find_ngrams,
    followers,
    places,
)
from esnlm.utils.arrays import check_arrays, checked_positions, checked_tokens
from esnlm.utils.state_dict import Arrays, Stateful
from esnlm.utils.validation import Count, OneOf, check_parameters, limited

_SCORED_AT_ONCE = 1 << 20


@dataclass(eq=False, repr=False)
class KneserNey(Stateful, BaseEstimator):
    """Interpolated Kneser-Ney n-gram model of tokens in ``range(n_tokens)``.

    The lower orders count distinct left contexts. An n-gram at the very start of a document has
    no left context and keeps its plain count, as in SRILM and KenLM. The unigrams are interpolated
    with the uniform distribution over ``n_tokens``, so no token has probability zero.

    The model predicts every token of a document but the first, from at most ``order - 1``
    preceding tokens of the same document. `esnlm.NgramLanguageModel` reads text with it.

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
    """

    # Places in a document are kept in 16 bits up to the order.
    _: KW_ONLY
    order: int = limited(5, Count(most=1_000))
    n_tokens: int | None = limited(None, Count(none=True))
    discounts: str = limited("modified", OneOf(("modified", "single")))

    def fit(self, tokens: ArrayLike, *, starts: ArrayLike | None = None) -> Self:
        """Count the n-grams of integers (T,), where ``starts`` (n,) says where documents begin.

        0 is among the starts; None: one document. Memory peaks at about 120 bytes a token. Raises
        ValueError for an empty corpus, tokens that are not integers or outside ``range(n_tokens)``.
        """
        counts = self.count(tokens, starts=starts)
        if not len(counts.keys[0]):
            raise ValueError("the corpus holds no token to predict: documents need two or more")
        return self.fit_counts(counts)

    def count(self, tokens: ArrayLike, *, starts: ArrayLike | None = None) -> NgramCounts:
        """Return the counts of a text for `fit_counts`; those of parts add up with ``n_tokens``."""
        check_parameters(self)
        words = checked_tokens(tokens, self.n_tokens)
        offsets = places(checked_documents(starts, words), len(words), self.order)
        n_tokens = int(words.max(initial=0)) + 1 if self.n_tokens is None else int(self.n_tokens)
        return NgramCounts.of(words, offsets, self.order, n_tokens)

    def fit_counts(self, counts: NgramCounts) -> Self:
        """Return the model of a text of these counts, or of the texts that they are the sum of."""
        self.n_tokens_ = counts.n_tokens
        self._tables: list[Table] = []
        self.discounts_ = np.zeros((self.order, 3))
        for row, (keys, times, n_contexts) in zip(self.discounts_, counts.types(), strict=True):
            row[:] = estimate_discounts(times, self.discounts)
            self._tables.append(Table(keys, times, row, n_contexts, self.n_tokens_))
        return self

    @property
    def n_parameters_(self) -> int:
        """Return the number of distinct n-grams of all orders."""
        return sum(len(table.keys) for table in self._fitted())

    def log_probabilities(self, tokens: ArrayLike, starts: ArrayLike | None = None) -> Floats:
        """Return natural-log probability (T,) of each token given its document; 0 at first tokens.

        ``starts`` (n,): where documents begin in ``tokens`` (T,), 0 among them; None: one does.
        The memory used beyond the answer does not depend on T.
        """
        self._fitted()
        words = checked_tokens(tokens, self.n_tokens_)
        where = checked_documents(starts, words)
        result = np.empty(len(words))
        reach = max(self.order - 1, 1)
        for first in range(0, len(words), _SCORED_AT_ONCE):
            end = min(first + _SCORED_AT_ONCE, len(words))
            early = max(first - reach, 0)
            low, high = np.searchsorted(where, [early, end])
            # No context that is scored reaches past ``early``: documents from before just go on.
            offsets = places(where[low:high] - early, end - early, self.order)
            scored = np.log(self._probabilities(words[early:end], offsets))
            result[first:end] = scored[first - early :]
        return result

    def _probabilities(self, tokens: Ints, offsets: Ints) -> Floats:
        """Return probability (T,) of each token given its document so far; 1 for first tokens."""
        tokens = tokens.astype(np.int64)
        table = self._tables[0]
        nowhere = np.zeros(len(tokens), dtype=np.int64)
        ids = find(table.keys, tokens)
        result = table.own(ids, nowhere) + table.left_over[0] / self.n_tokens_
        longer = find_ngrams(self._keys(), tokens, offsets, self.n_tokens_)
        for table, (positions, contexts, ids) in zip(self._tables[1:], longer, strict=True):
            own = table.own(ids, contexts)
            result[positions] = own + table.left_over[contexts] * result[positions]
        result[offsets == 0] = 1.0
        return result

    def next_token_distribution(self, context: ArrayLike) -> Floats:
        """Return probabilities (n_tokens,) of the token after any ``context``, empty or not."""
        return self.next_token_distributions([context])[0]

    def next_token_distributions(self, contexts: Sequence[ArrayLike]) -> Floats:
        """Return probabilities (n, n_tokens) of the token after each of n contexts."""
        (unigrams, *longer), n_tokens = self._fitted(), self.n_tokens_
        row = np.full(n_tokens, unigrams.left_over[0] / n_tokens)
        row[unigrams.keys] += unigrams.own(np.arange(len(unigrams.keys)), 0 * unigrams.keys)
        result = np.tile(row, (len(contexts), 1))
        histories = [checked_tokens(context, n_tokens) for context in contexts]
        known = find_contexts(self._keys(), histories, n_tokens)
        for table, nodes in zip(longer, known, strict=False):
            rows = np.flatnonzero(nodes >= 0)
            ids, owners = followers(table.keys, nodes[rows], n_tokens)
            shares = np.ones(len(result))
            shares[rows] = table.left_over[nodes[rows]]
            result *= shares[:, None]
            result[rows[owners], table.keys[ids] % n_tokens] += table.own(ids, nodes[rows[owners]])
        return result

    def _fitted(self) -> list[Table]:
        if not hasattr(self, "_tables"):
            raise ValueError("this KneserNey has no counts yet: call fit first")
        return self._tables

    def _keys(self) -> list[Ints]:
        return [table.keys for table in self._fitted()]

    def state_dict(self, *, training: bool = False) -> Arrays:
        """Return the fitted model as arrays: n-grams, their counts, and those of each context.

        For each order k: ``tokens.k`` (n_grams,), ``counts.k`` (n_grams,), ``children.k``
        (n_contexts,), all unsigned and as narrow as they fit; ``discounts`` (order, 3).
        """
        arrays: Arrays = {"discounts": self.discounts_.copy()}
        for order, table in enumerate(self._fitted(), start=1):
            contexts, tokens = np.divmod(table.keys, self.n_tokens_)
            children = np.bincount(contexts, minlength=len(table.totals))
            arrays[f"tokens.{order}"] = _narrow(tokens)
            arrays[f"counts.{order}"] = _narrow(table.counts)
            arrays[f"children.{order}"] = _narrow(children)
        return arrays

    def load_state_dict(self, arrays: Arrays, *, training: bool = False) -> Self:
        """Return the model whose `state_dict` it is. ``n_tokens`` is known."""
        check_parameters(self)
        assert self.n_tokens is not None, "the size of the vocabulary is known"
        self.n_tokens_ = n_tokens = int(self.n_tokens)
        _check_tables(arrays, self.order, n_tokens)
        self.discounts_ = arrays["discounts"]
        self._tables = []
        for order, row in enumerate(self.discounts_, start=1):
            children = arrays[f"children.{order}"]
            keys = np.repeat(np.arange(len(children), dtype=np.int64) * n_tokens, children)
            keys += arrays[f"tokens.{order}"]
            counts = arrays[f"counts.{order}"].astype(np.int32)
            self._tables.append(Table(keys, counts, row, len(children), n_tokens))
        return self


def _check_tables(arrays: Arrays, order: int, n_tokens: int) -> None:
    """Raise ValueError unless they are the tables of n-grams up to ``order``, sorted."""
    check_arrays(arrays, {"discounts": "f K D"}, K=order, D=3)
    discounts = arrays["discounts"]
    if (discounts <= 0).any() or (discounts >= [1, 2, 3]).any():
        raise ValueError("discounts must lie between 0 and the counts 1, 2 and 3 that they are of")
    n_contexts = 1
    for k in range(1, order + 1):
        layouts = {f"tokens.{k}": "i G", f"counts.{k}": "i G", f"children.{k}": "i C"}
        check_arrays(arrays, layouts, C=n_contexts)
        tokens, counts, children = (arrays[name] for name in layouts)
        if len(tokens) and not (tokens.min() >= 0 and tokens.max() < n_tokens):
            limits = f"{tokens.min()} to {tokens.max()}"
            raise ValueError(f"tokens.{k} must lie in [0, {n_tokens}), got {limits}")
        if len(counts) and not (counts.min() > 0 and counts.max() < 2**31):
            limits = f"{counts.min()} to {counts.max()}"
            raise ValueError(f"counts.{k} must lie in [1, 2^31), got {limits}")
        ends = np.cumsum(children, dtype=np.float64)  # floats: no sum wraps around
        total = ends[-1] if len(ends) else 0  # none where no n-gram is so long
        if (children < 0).any() or total != len(tokens):
            raise ValueError(f"children.{k} must add up to the {len(tokens)} n-grams")
        rising = tokens[1:] > tokens[:-1]
        rising[ends[(ends > 0) & (ends < len(tokens))].astype(np.int64) - 1] = True
        if not rising.all():
            raise ValueError(f"tokens.{k} must rise within each context")
        n_contexts = n_tokens if k == 1 else len(tokens)


def checked_documents(starts: ArrayLike | None, tokens: Ints) -> Ints:
    """Return the positions (n,) at which documents begin in the tokens."""
    where = checked_positions([0] if starts is None else starts)
    if len(tokens) and (not len(where) or where[0] or np.any(np.diff(where) < 0)):
        raise ValueError(f"starts must begin at 0 and rise, got {where[:5].tolist()} and on")
    return where


def longest_seen(model: KneserNey, tokens: ArrayLike, starts: ArrayLike | None = None) -> Ints:
    """Return the length (T,) of the longest n-gram ending at each token that the model has counted.

    0: the token itself never was one to predict; ``model.order``: a longest n-gram was seen.
    N-grams do not reach over ``starts`` (n,), where documents begin; None: one document.

    >>> model = KneserNey(order=3, n_tokens=5).fit([0, 1, 2, 3])
    >>> longest_seen(model, [0, 1, 2, 4, 2])
    array([0, 2, 3, 0, 1])
    """
    words = checked_tokens(tokens, model.n_tokens_).astype(np.int64)
    offsets = places(checked_documents(starts, words), len(words), model.order)
    tables = model._keys()
    result = (find(tables[0], words) >= 0).astype(np.int64)
    longer = find_ngrams(tables, words, offsets, model.n_tokens_)
    for order, (positions, _, ids) in enumerate(longer, start=2):
        result[positions[ids >= 0]] = order
    return result


def _narrow(values: Ints) -> Ints:
    """Return the numbers in the narrowest unsigned type that holds them, of 16 bits or more."""
    top = int(values.max(initial=0))
    return values.astype(np.uint16 if top < 1 << 16 else np.min_scalar_type(top))
