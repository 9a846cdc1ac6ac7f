"""N-grams with back-off weights: what ARPA files hold.

log P(w | h) = log p(h w)               where the n-gram h w is in its table,
             = b(h) + log P(w | h')     elsewhere; h' is h without its first word, b(h) is 0
                                        where h is in no table.
"""

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from esnlm.ngrams.counts import Floats, Ints, find, find_contexts, find_ngrams, followers, places
from esnlm.ngrams.kneser_ney import KneserNey
from esnlm.utils.arrays import check_arrays, checked_tokens
from esnlm.utils.state_dict import Arrays


class BackoffNgrams:
    """Natural-log probabilities and back-off weights of n-grams of tokens in ``range(n_tokens)``.

    For each order k: ``keys`` (n_grams,) int64, rising: the place of the context in the table one
    shorter (its token for k = 2, 0 for k = 1) times n_tokens, and the token; ``logs`` and
    ``backoffs`` (n_grams,) float64. Every token is a unigram.
    """

    def __init__(
        self, n_tokens: int, keys: list[Ints], logs: list[Floats], backoffs: list[Floats]
    ) -> None:
        self.n_tokens_ = n_tokens
        self.keys, self.logs, self.backoffs = keys, logs, backoffs

    @classmethod
    def of(cls, model: KneserNey) -> Self:
        """Return the n-grams of a fitted model, with the same probabilities."""
        n_tokens = model.n_tokens_
        keys: list[Ints] = [np.arange(n_tokens)]
        logs: list[Floats] = [np.log(model.next_token_distribution([]))]
        backoffs: list[Floats] = []
        shorter: Ints = np.zeros(n_tokens, dtype=np.int64)
        for table in model._fitted()[1:]:
            contexts, tokens = np.divmod(table.keys, n_tokens)
            backoffs.append(np.log(table.left_over))
            own = table.own(np.arange(len(table.keys)), contexts)
            # The same n-gram without its first word: its place in the table one shorter.
            shorter = find(keys[-1], shorter[contexts] * n_tokens + tokens)
            logs.append(np.log(own + table.left_over[contexts] * np.exp(logs[-1][shorter])))
            keys.append(table.keys)
        return cls(n_tokens, keys, logs, [*backoffs, np.zeros(len(keys[-1]))])

    @property
    def order(self) -> int:
        """Return the longest n-gram."""
        return len(self.keys)

    @property
    def n_parameters_(self) -> int:
        """Return the number of n-grams of all orders."""
        return sum(map(len, self.keys))

    def tokens_of(self, order: int) -> Ints:
        """Return the tokens (n_grams, order) of all n-grams of an order."""
        contexts, last = np.divmod(self.keys[order - 1], self.n_tokens_)
        if order == 1:
            return last[:, None]
        return np.column_stack([self.tokens_of(order - 1)[contexts], last])

    def log_probabilities(self, tokens: ArrayLike, starts: ArrayLike | None = None) -> Floats:
        """Return what `KneserNey.log_probabilities` does: natural logs (T,), 0 at first tokens."""
        words = checked_tokens(tokens, self.n_tokens_).astype(np.int64)
        offsets = places(np.asarray([0] if starts is None else starts), len(words), self.order)
        result = self.logs[0][words]
        longer = find_ngrams(self.keys, words, offsets, self.n_tokens_)
        for k, (positions, contexts, ids) in enumerate(longer, start=1):
            result[positions] += self.backoffs[k - 1][contexts]
            known = ids >= 0
            result[positions[known]] = self.logs[k][ids[known]]
        result[offsets == 0] = 0.0
        return result

    def next_token_distribution(self, context: ArrayLike) -> Floats:
        """Return probabilities (n_tokens,) of the token after any ``context``, empty or not."""
        return self.next_token_distributions([context])[0]

    def next_token_distributions(self, contexts: Sequence[ArrayLike]) -> Floats:
        """Return probabilities (n, n_tokens) of the token after each of n contexts."""
        result = np.tile(self.logs[0], (len(contexts), 1))
        histories = [checked_tokens(context, self.n_tokens_) for context in contexts]
        known = find_contexts(self.keys, histories, self.n_tokens_)
        for k, nodes in enumerate(known, start=1):
            rows = np.flatnonzero(nodes >= 0)
            ids, owners = followers(self.keys[k], nodes[rows], self.n_tokens_)
            backed = np.zeros(len(result))
            backed[rows] = self.backoffs[k - 1][nodes[rows]]
            result += backed[:, None]
            result[rows[owners], self.keys[k][ids] % self.n_tokens_] = self.logs[k][ids]
        return np.exp(result)

    def state_dict(self) -> Arrays:
        """Return ``keys.k`` int64, ``logs.k``, ``backoffs.k`` float64 (n_grams,) for each order."""
        return {
            f"{name}.{order}": array
            for name in ("keys", "logs", "backoffs")
            for order, array in enumerate(getattr(self, name), start=1)
        }

    @classmethod
    def of_state(cls, arrays: Arrays, order: int, n_tokens: int) -> Self:
        """Return the n-grams whose `state_dict` it is.

        Raise ValueError where arrays do not fit together.
        """
        n_contexts = 1
        for k in range(1, order + 1):
            layouts = {f"keys.{k}": "i G", f"logs.{k}": "f G", f"backoffs.{k}": "f G"}
            check_arrays(arrays, layouts)
            keys = arrays[f"keys.{k}"]
            inside = not len(keys) or 0 <= keys[0] <= keys[-1] < n_contexts * n_tokens
            if not inside or (np.diff(keys) <= 0).any():
                raise ValueError(f"keys.{k} must rise within [0, {n_contexts * n_tokens})")
            n_contexts = len(keys)
        if len(arrays["keys.1"]) != n_tokens:
            raise ValueError(f"keys.1 must be the {n_tokens} tokens, got {len(arrays['keys.1'])}")
        parts = ([arrays[f"{name}.{k}"] for k in range(1, order + 1)] for name in
                 ("keys", "logs", "backoffs"))  # fmt: skip
        return cls(n_tokens, *parts)
