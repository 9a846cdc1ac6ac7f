"""What every model of token sequences offers, whatever it computes probabilities by."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from esnlm.models.sampling import Choice, text_pieces
from esnlm.models.saving import SavedModel
from esnlm.text.boundaries import as_documents, framed, framed_prefix
from esnlm.text.corpus import CorpusError, TokenStream, join_sequences
from esnlm.utils.validation import check_count


class SequenceModel(SavedModel, BaseEstimator, ABC):
    """Scores and continuations, from three things that a subclass defines.

    ``_log_probabilities(stream)`` -> (T,) float64: natural logs at predicted tokens, zero
    elsewhere. ``_read(ids (n,), state or None)`` -> the state after more tokens.
    ``_next_log_probabilities(state)`` -> (V,) float64. A fitted one has ``tokenizer_`` (or None),
    ``n_tokens_`` and ``reset``; documents and predicted tokens are those of `LanguageModel`.
    """

    reset: str

    @abstractmethod
    def _log_probabilities(self, stream: TokenStream) -> NDArray[np.float64]: ...

    @abstractmethod
    def _read(self, ids: NDArray[Any], state: Any = None) -> Any: ...

    @abstractmethod
    def _next_log_probabilities(self, state: Any) -> NDArray[np.float64]: ...

    def predict_proba(self, prefix: str | ArrayLike = ()) -> NDArray[np.float64]:
        """Distribution (V,) of the token after ``prefix``, a string or integers (n,).

        A string is read after BOS where sentences or documents have one.
        """
        self._check_fitted()
        ids = framed_prefix(prefix, self.tokenizer_, self.reset)
        return np.exp(self._next_log_probabilities(self._read(ids)))

    def log_likelihood(self, docs: Any) -> list[NDArray[np.float64]]:
        """Natural-log probability of each predicted token: one array (n_predicted,) a document."""
        stream = self.tokenize(docs)
        return stream.by_document(self._log_probabilities(stream))

    def score(self, docs: Any, y: None = None) -> float:
        """Mean natural-log likelihood of a predicted token; higher is better."""
        stream = self.tokenize(docs)
        if not stream.n_predicted:
            raise CorpusError("docs hold no token to predict: each needs at least two tokens")
        return float(self._log_probabilities(stream)[stream.predicted()].mean())

    def perplexity(self, docs: Any) -> float:
        """exp of the mean negative log-likelihood of a predicted token."""
        return float(np.exp(-self.score(docs)))

    def sample(
        self,
        n_tokens: int = 100,
        prompt: str | ArrayLike = (),
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        random_state: int | np.random.Generator | None = None,
    ) -> Any:
        """Continue ``prompt`` by ``n_tokens`` drawn tokens; the prompt is not repeated.

        The other parameters are those of `esnlm.models.sampling.Choice`.

        Returns
        -------
        str with a tokenizer (after EOS comes a line end, and a new sentence begins), otherwise
        int64 array (n_tokens,).
        """
        tokens = self.generate(n_tokens, prompt, Choice(temperature, top_k, top_p, random_state))
        if self.tokenizer_ is None:
            return np.array(list(tokens), dtype=np.int64)
        before = framed_prefix(prompt, self.tokenizer_, self.reset)
        return "".join(text_pieces(self.tokenizer_, before, tokens))

    def generate(
        self, n_tokens: int, prompt: str | ArrayLike = (), choice: Choice | None = None
    ) -> Iterator[int]:
        """The tokens of `sample`, one by one, as they are drawn."""
        self._check_fitted()
        check_count("n_tokens", n_tokens, least=0)
        before = framed_prefix(prompt, self.tokenizer_, self.reset)
        return self._draw(int(n_tokens), before, choice or Choice())

    def _draw(self, n_tokens: int, prompt: NDArray[Any], choice: Choice) -> Iterator[int]:
        """Draw tokens one after the other, each from the distribution after those before.

        BOS is never drawn; after EOS a new sentence begins with ``reset="sentence"``.
        """
        bos = None if self.tokenizer_ is None else self.tokenizer_.bos_id
        eos = None if self.tokenizer_ is None else self.tokenizer_.eos_id
        forbidden = bos if bos != eos else None
        state = self._read(prompt)
        for _ in range(n_tokens):
            token = choice.draw(self._next_log_probabilities(state), forbidden)
            yield token
            if token == eos and self.reset == "sentence" and bos is not None:
                state = self._read(np.array([bos]))
            else:
                state = self._read(np.array([token]), state)

    def tokenize(self, docs: Any) -> TokenStream:
        """The documents as `log_likelihood` reads them: tokens, starts and bounds."""
        self._check_fitted()
        return self._tokens(docs, self.n_tokens_)

    def _check_fitted(self) -> None:
        if not hasattr(self, "n_tokens_"):
            raise NotFittedError(f"this {type(self).__name__} has learnt nothing yet: call fit")

    def _tokens(self, docs: Any, n_tokens: int | None, name: str = "docs") -> TokenStream:
        """Documents -> a stream that holds a token at least."""
        stream = docs if isinstance(docs, TokenStream) else self._joined(docs, n_tokens)
        if len(stream.bounds) < 2 or not len(stream.tokens):
            raise CorpusError(f"{name} hold no tokens: the corpus is empty")
        return stream

    def _joined(self, docs: Any, n_tokens: int | None) -> TokenStream:
        sequences = framed(as_documents(docs), self.tokenizer_, self.reset)
        return join_sequences(sequences, n_tokens=n_tokens, reset=self.reset != "never")
