"""N-gram language model with the interface of `LanguageModel`."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from esnlm.models.base import SequenceModel
from esnlm.models.checks import check_no_labels
from esnlm.models.saving import Contents, counted, counts_in
from esnlm.ngrams.backoff import BackoffNgrams
from esnlm.ngrams.counts import NgramCounts
from esnlm.ngrams.kneser_ney import KneserNey
from esnlm.storage.model_folder import WEIGHTS
from esnlm.text.boundaries import RESETS
from esnlm.text.corpus import TokenStream
from esnlm.text.shard_parts import Part, PartedCorpus
from esnlm.text.shuffling import target_counts
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.arrays import Array, Arrays, Floats, Ints64
from esnlm.utils.sums import Reduce, reduce_here
from esnlm.utils.validation import (
    Count,
    OneOf,
    check_parameters,
    limited,
    restored_after_error,
)

#: The kind of model in the configuration of a saved one.
KIND = "ngrams"
_PARTS, _PART_TOKENS = 64, 1 << 16
_SETTINGS = ("order", "reset", "n_tokens", "discounts")


@dataclass(frozen=True)
class _Counted:
    """Counts of predicted tokens (V,), and of n-grams."""

    of_tokens: Ints64
    of_ngrams: NgramCounts

    def __add__(self, other: Self) -> Self:
        return type(self)(self.of_tokens + other.of_tokens, self.of_ngrams + other.of_ngrams)

    def __sizeof__(self) -> int:
        return int(self.of_tokens.nbytes) + self.of_ngrams.__sizeof__()


def _counted(ngrams: KneserNey, part: Part) -> _Counted:
    stream, n_tokens = part.stream(), int(ngrams.n_tokens or 0)
    counts = ngrams.count(stream.tokens, starts=stream.starts)
    return _Counted(target_counts(stream, n_tokens), counts)


@dataclass(eq=False, repr=False)
class NgramLanguageModel(SequenceModel):
    """Interpolated Kneser-Ney n-grams on documents: the baseline on the same tokens.

    Documents, boundary tokens and predicted tokens are those of `esnlm.LanguageModel`, so the
    log-probabilities of both compare token by token.

    Parameters
    ----------
    order : int
        Longest n-gram.
    tokenizer, reset, n_tokens
        As those of `esnlm.LanguageModel`; ``reset`` is where contexts begin anew.
    discounts : {"modified", "single"}
        See `esnlm.ngrams.kneser_ney.KneserNey`.

    Attributes
    ----------
    ngrams_ : KneserNey, or BackoffNgrams of an ARPA file
    tokenizer_, n_tokens_, token_counts_
        As those of `esnlm.LanguageModel`.

    Examples
    --------
    >>> docs = ["the boy sees the dog", "the dog sees the boy"] * 5
    >>> model = NgramLanguageModel(order=3, tokenizer="word").fit(docs)
    >>> model.perplexity(docs) < 2
    True
    >>> model.tokenizer_.vocabulary[model.predict_proba("the boy sees").argmax()]
    'the'
    """

    _kind: ClassVar[str | None] = KIND

    order: int = limited(5, Count())
    tokenizer: Tokenizer | str | None = None
    _: KW_ONLY
    reset: str = limited("sentence", OneOf(RESETS))
    n_tokens: int | None = limited(None, Count(none=True))
    discounts: str = "modified"

    def fit(self, docs: Any, y: None = None) -> Self:
        """Count the n-grams of documents (an iterable of str or int arrays) or a TokenStream.

        Raises ``CorpusError`` where there is no token to predict, ValueError for tokens that are
        no integers in ``[0, n_tokens)`` and parameters out of range.
        """
        check_no_labels(y)
        check_parameters(self)
        with restored_after_error(self):
            stream = self._learn_vocabulary(docs)
            self.token_counts_ = target_counts(stream, self.n_tokens_)
            ngrams = KneserNey(order=self.order, n_tokens=self.n_tokens_, discounts=self.discounts)
            self.ngrams_: KneserNey | BackoffNgrams = ngrams.fit(
                stream.tokens, starts=stream.starts
            )
        return self

    def fit_parts(
        self, corpus: PartedCorpus, *, n_parts: int | None = None, reduce: Reduce = reduce_here
    ) -> Self:
        """Fit on shards whose counts others add up part by part: exactly the model of `fit`.

        ``n_parts`` (default: 64, or one for each 65 536 tokens where these are fewer) decide about
        memory, some 120 bytes for each token of a part, and about who can help.
        """
        check_parameters(self)
        if self.reset != "sentence":
            raise ValueError(f"shards hold sentences: reset must be sentence, got {self.reset}")
        n_tokens = len(corpus.tokenizer)
        most = min(_PARTS, -(-corpus.n_tokens // _PART_TOKENS)) if n_parts is None else n_parts
        ngrams = KneserNey(order=self.order, n_tokens=n_tokens, discounts=self.discounts)
        sums = reduce("n-grams", _counted, ngrams, corpus.parts(most), lambda part: None)
        self.token_counts_, self.ngrams_ = sums.of_tokens, ngrams.fit_counts(sums.of_ngrams)
        self._fitted_reset = self.reset
        self.tokenizer_, self.n_tokens_ = corpus.tokenizer, n_tokens
        return self

    @property
    def n_parameters_(self) -> int:
        """Number of distinct n-grams of all orders."""
        check_is_fitted(self, "ngrams_")
        return self.ngrams_.n_parameters_

    def _contents(self) -> Contents:
        check_is_fitted(self, "ngrams_")
        settings = {name: getattr(self, name) for name in _SETTINGS}
        settings |= {"order": self.ngrams_.order, "reset": self.reset_}
        settings["n_tokens"] = self.n_tokens and self.n_tokens_
        config = {"kind": KIND, "n_tokens": self.n_tokens_, "settings": settings}
        return config, {WEIGHTS: self.ngrams_.state_dict() | counted(self.token_counts_)}

    @classmethod
    def _rebuilt(
        cls, config: dict[str, Any], arrays: dict[str, Arrays], tokenizer: Tokenizer | None
    ) -> Self:
        """Return the fitted model of a config, its arrays and its tokenizer."""
        model = cls(tokenizer=tokenizer, **config["settings"])
        model.tokenizer_, model._fitted_reset = tokenizer, model.reset
        n_tokens = int(config["n_tokens"])
        ngrams = KneserNey(order=model.order, n_tokens=n_tokens, discounts=model.discounts)
        model.token_counts_ = counts_in(arrays[WEIGHTS], n_tokens)
        if "keys.1" in arrays[WEIGHTS]:  # read from an ARPA file
            model.ngrams_ = BackoffNgrams.of_state(arrays[WEIGHTS], model.order, n_tokens)
        else:
            model.ngrams_ = ngrams.load_state_dict(arrays[WEIGHTS])
        return model

    def _log_probabilities(self, stream: TokenStream) -> Floats:
        return self.ngrams_.log_probabilities(stream.tokens, stream.starts)

    def _read(self, ids: Array, state: Any = None) -> Ints64:
        """Return the last order - 1 tokens, which are all that a distribution depends on."""
        before = np.empty(0, dtype=np.int64) if state is None else state
        read = np.concatenate([before, ids]).astype(np.int64)
        return read[max(0, len(read) - self.ngrams_.order + 1) :]

    def _next_probabilities(self, states: Sequence[Any]) -> Floats:
        with np.errstate(divide="ignore"):  # an ARPA file's weights may leave nothing to a word
            return np.exp(np.log(self.ngrams_.next_token_distributions(states)))

    def _next_log_probabilities(self, state: Any) -> Floats:
        with np.errstate(divide="ignore"):
            return np.log(self.ngrams_.next_token_distribution(state))
