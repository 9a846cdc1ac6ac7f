"""Base class of models of token sequences: scores, perplexity and samples."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError

from esnlm.models.checks import (
    check_no_labels,
    checked_scores,
    warn_below_unigrams,
    warn_of_unknown,
)
from esnlm.models.sampling import NextWord, SamplingOptions, most_probable, text_pieces
from esnlm.models.saving import Contents
from esnlm.models.surprisal import surprisal_table
from esnlm.storage import model_folder
from esnlm.storage.atomic import folder_aside
from esnlm.storage.model_folder import TOKENIZER, ModelFormatError
from esnlm.text.boundaries import (
    as_documents,
    framed_prefix,
    joined,
    listed_prefixes,
    trained_tokenizer,
)
from esnlm.text.corpus import CorpusError, TokenStream
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils import __version__
from esnlm.utils.arrays import Array, Arrays, Floats, Ints64
from esnlm.utils.memory import check_memory
from esnlm.utils.validation import Count

if TYPE_CHECKING:
    import pandas as pd

    class BaseEstimator:
        """That of scikit-learn, which has no types: else no argument would be checked."""

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Return the constructor's parameters by name."""
            ...

        def set_params(self, **params: Any) -> Self:
            """Set parameters by name, and return self."""
            ...
else:
    from sklearn.base import BaseEstimator

#: Entries of a vocabulary, at most: ids fit in 32 bits, and a distribution in memory.
LARGEST_VOCABULARY = 1 << 24
_TRIED = 8
#: Distributions that are held at a time.
ROWS_AT_ONCE = 256


class SequenceModel(BaseEstimator, ABC):
    """Scores, continuations and model folders, from the abstract methods of a subclass.

    A fitted one has ``tokenizer_`` (or None), ``n_tokens_`` and ``reset_``; documents and
    predicted tokens are those of `LanguageModel`. ``_kind`` is the configuration's entry of that
    name, if it has one.
    """

    _kind: ClassVar[str | None] = None
    tokenizer: Any
    n_tokens: int | None
    reset: str | None
    tokenizer_: Tokenizer | None
    n_tokens_: int
    run_: str | None
    #: How often each token was predicted in training (V,), where that is known.
    token_counts_: Ints64 | None = None

    _fitted_reset: str | None = None

    @property
    def reset_(self) -> str:
        """Where the state returns to zero; of a fitted model as `fit` read, whatever was set since.

        >>> from esnlm import NgramLanguageModel
        >>> NgramLanguageModel().fit(["the boy sees"]).set_params(reset="never").reset_
        'sentence'
        """
        return self._fitted_reset or self._asked_reset

    @property
    def _asked_reset(self) -> str:
        """Where the state is to return to zero, by the parameters."""
        return str(self.reset)

    @property
    def _tokenizer(self) -> Any:
        """The tokenizer, or its name, that `fit` is to use."""
        return self.tokenizer

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; those of a part, as in ``readout__alpha``, need it as an object.

        >>> from esnlm import LanguageModel, RidgeReadout
        >>> LanguageModel(readout=RidgeReadout()).set_params(readout__alpha=2.0).readout
        RidgeReadout(alpha=2.0)
        """
        for name in params:
            part, separator, _ = name.partition("__")
            value = params.get(part, getattr(self, part, self))
            if separator and not hasattr(value, "set_params"):
                raise ValueError(
                    f"{name} cannot be set where {part}={value!r}: give {part} as an object that"
                    " has this parameter"
                )
        return super().set_params(**params)

    @abstractmethod
    def _log_probabilities(self, stream: TokenStream) -> Floats:
        """Natural logs at predicted tokens, zero elsewhere: (T,) float64."""

    @abstractmethod
    def _read(self, ids: Array, state: Any = None) -> Any:
        """Return the state after tokens ids (n,)."""

    @abstractmethod
    def _next_log_probabilities(self, state: Any) -> Floats:
        """Natural logs (V,) of the next token's probabilities."""

    def _next_probabilities(self, states: Sequence[Any]) -> Floats:
        """Return the next token's probabilities (n, V) after each of n states."""
        return np.exp([self._next_log_probabilities(state) for state in states])

    def _contents(self) -> Contents:
        """Return the entries of ``config.json`` beside the tokenizer, and arrays by file."""
        raise NotImplementedError(f"a {type(self).__name__} cannot be saved: save its parts")

    @classmethod
    def _rebuilt(
        cls, config: dict[str, Any], arrays: dict[str, Arrays], tokenizer: Tokenizer | None
    ) -> Self:
        """Return the model; KeyError, TypeError or IndexError where something is missing."""
        raise ModelFormatError(f"no folder holds models of class {cls.__name__}: load its parts")

    def _distributions(self, stream: TokenStream) -> Iterator[tuple[Floats, Ints64]]:
        """Yield distributions (n, V) of predicted tokens, and their places (n,) in the stream."""
        starts = [0] if stream.starts is None else stream.starts.tolist()
        for start, length in zip(starts, stream.lengths.tolist(), strict=True):
            state = None
            for begin in range(start + 1, start + length, ROWS_AT_ONCE):
                places = np.arange(begin, min(begin + ROWS_AT_ONCE, start + length))
                states = []
                for token in stream.tokens[places - 1]:
                    state = self._read(np.array([token], dtype=np.int64), state)
                    states.append(state)
                yield self._next_probabilities(states), places

    def predict_proba(self, prefix: Any = ()) -> Floats:
        """Return the distribution (V,) of the token after ``prefix``, a string or integers (n,).

        Of a list of n prefixes (a list of strings is one), distributions (n, V) float64. A string
        is read after BOS where sentences or documents have one. Without any token a readout
        predicts from the zero state.

        >>> from esnlm import LanguageModel
        >>> model = LanguageModel(random_state=0).fit(["the boy sees the dog"] * 5)
        >>> model.predict_proba("the boy").shape, model.predict_proba(["the boy", "the"]).shape
        ((7,), (2, 7))
        """
        self._check_fitted()
        several = listed_prefixes(prefix)
        prefixes = [prefix] if several is None else several
        need = 16 * len(prefixes) * self.n_tokens_
        check_memory(f"distributions after {len(prefixes)} prefixes", need, "give fewer at a time")
        ids = [framed_prefix(each, self.tokenizer_, self.reset_) for each in prefixes]
        probabilities = self._next_probabilities([self._read(each) for each in ids])
        return probabilities[0] if several is None else probabilities

    def next_words(self, prefix: str | ArrayLike = (), k: int = 10) -> list[NextWord]:
        """Return the ``k`` most probable tokens after ``prefix``, the most probable first.

        Pairs (word, probability), at most as many as the vocabulary has; of equal ones the lower
        number first. A word is spelled as it continues the text, a space of its own included
        where sub-words have one, and as in the vocabulary where that gives nothing to see; it is
        the number of the token where there is no tokenizer. ``pandas.DataFrame`` takes them.

        >>> from esnlm import NgramLanguageModel
        >>> model = NgramLanguageModel(order=2).fit(["the boy sees the dog"] * 5)
        >>> [word for word, _ in model.next_words("the boy", k=2)]
        ['sees', 'the']
        """
        Count().check("k", k)
        self._check_fitted()
        state = self._read(framed_prefix(prefix, self.tokenizer_, self.reset_))
        return most_probable(self._next_probabilities([state])[0], k, self.tokenizer_)

    def surprisal(
        self,
        text: Any,
        *,
        counts: Any = None,
        correct_boundaries: bool = True,
        lags: int = 0,
        context: str | int | None = None,
    ) -> "pd.DataFrame":
        """Return the surprisal of every word of a text, in bits: a pandas DataFrame, a row a word.

        ``text`` is a string, or an iterable of them, one a document. Words stand between white
        space. Tokens that carry the space before a word, as those of GPT-2 do, leave open whether
        the word before has ended. That probability is moved from the next word to the word that
        ends (Oh & Schuler 2024; Pimentel & Meister 2024), unless ``correct_boundaries`` is False:
        then a word has the sum of the surprisals of its tokens.

        ``context``: the model reads a sentence alone ("sentence"), after those before it in the
        document ("document"), or after so many of them; by default as it was trained. Columns:

        - ``document``, ``sentence``, ``position``: counted from 1; sentences are lines.
        - ``word``: as it stands in the text.
        - ``length``: its characters, punctuation at its ends left out.
        - ``log_frequency``: natural log of its share among the words of ``counts``, one
          occurrence added, letter case and punctuation at its ends left out. ``counts`` are
          numbers by word, the text to count in, or the name of its file (``.gz``, too); by
          default the training text, where the model's tokens are words, else NaN.
        - ``is_first``, ``is_last``: whether it is the first, the last word of its sentence.
        - ``n_tokens``, ``n_unknown``: tokens that were predicted, and those among them that
          training did not have: the unknown token, and characters never seen.
        - ``surprisal_bits``: ``-log2 P(word | what precedes)``.
        - ``surprisal_bits_without_marks``: the same without punctuation at its ends, where that
          is made of tokens of its own. A mark after the word counts as its end.
        - ``entropy_bits``: entropy of the token that begins the word, before it is read.
        - ``rank``: place of that token among all that may begin a word, by probability.
        - with ``lags`` of 1 to 3: ``surprisal_bits_lag1`` and so on, the values of the words
          before, as far as the model reads on; NaN at the beginning.

        The same table of files: ``esnlm evaluate --surprisal-csv``. ValueError: the model has no
        tokenizer, or ``text`` is no text.

        >>> from esnlm import LanguageModel
        >>> model = LanguageModel(random_state=0).fit(["the boy sees the dog"] * 5)
        >>> table = model.surprisal("the boy sees the dog")
        >>> table["word"].tolist(), table["position"].tolist()
        (['the', 'boy', 'sees', 'the', 'dog'], [1, 2, 3, 4, 5])
        """
        self._check_fitted()
        return surprisal_table(
            self,
            text,
            counts=counts,
            correct_boundaries=correct_boundaries,
            lags=lags,
            context=context,
        )

    def log_likelihood(self, docs: Any) -> list[Floats]:
        """Return the natural-log probability of predicted tokens: an array (n,) a document."""
        stream = self.tokenize(docs)
        return stream.by_document(self._scores(stream))

    def score(self, docs: Any, y: None = None) -> float:
        """Return the mean natural-log likelihood of a predicted token; higher is better.

        Warns where more than a tenth of the tokens are unknown: they are easy to predict. Warns,
        too, where the frequencies of the training text alone predict better.
        """
        check_no_labels(y)
        stream = self.tokenize(docs)
        warn_of_unknown(stream.tokens, self.tokenizer_)
        if not stream.n_predicted:
            raise CorpusError("docs hold no token to predict: each needs at least two tokens")
        marks = stream.predicted()
        score = float(self._scores(stream)[marks].mean())
        warn_below_unigrams(score, stream.tokens[marks], self.token_counts_)
        return score

    def _scores(self, stream: TokenStream) -> Floats:
        """`_log_probabilities`, once they are probabilities."""
        return checked_scores(self._log_probabilities(stream))

    def perplexity(self, docs: Any) -> float:
        """Return exp of the mean negative log-likelihood of a predicted token; see `score`."""
        return float(np.exp(-self.score(docs)))

    def sample(
        self,
        n_tokens: int = 100,
        *,
        prompt: str | ArrayLike = (),
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        random_state: int | np.random.Generator | None = None,
        unknown: bool = False,
    ) -> Any:
        """Continue ``prompt`` by ``n_tokens`` drawn tokens; the prompt is not repeated.

        The token of unknown words is drawn only if ``unknown``. The other parameters are those of
        `esnlm.models.sampling.SamplingOptions`. Returns a str with a
        tokenizer (after EOS comes a line end, and a new sentence begins), otherwise an int64
        array (n_tokens,).
        """
        choice = SamplingOptions(temperature, top_k, top_p, random_state, unknown)
        tokens = self.generate(n_tokens, prompt=prompt, choice=choice)
        if self.tokenizer_ is None:
            return np.array(list(tokens), dtype=np.int64)
        before = framed_prefix(prompt, self.tokenizer_, self.reset_)
        return "".join(text_pieces(self.tokenizer_, before, tokens))

    def generate(
        self, n_tokens: int, *, prompt: str | ArrayLike = (), choice: SamplingOptions | None = None
    ) -> Iterator[int]:
        """Return the tokens of `sample`, one by one, as they are drawn."""
        self._check_fitted()
        if isinstance(n_tokens, str):
            raise ValueError(f"n_tokens must be an integer: give the text as prompt={n_tokens!r}")
        Count(0).check("n_tokens", n_tokens)
        before = framed_prefix(prompt, self.tokenizer_, self.reset_)
        return self._draw(int(n_tokens), before, choice or SamplingOptions())

    def _draw(self, n_tokens: int, prompt: Array, choice: SamplingOptions) -> Iterator[int]:
        """BOS is never drawn; after EOS a new sentence begins with ``reset="sentence"``."""
        bos = None if self.tokenizer_ is None else self.tokenizer_.bos_id
        eos = None if self.tokenizer_ is None else self.tokenizer_.eos_id
        forbidden = [] if bos in (None, eos) else [bos]
        if self.tokenizer_ is not None and not choice.unknown:
            forbidden += [] if self.tokenizer_.unk_id is None else [self.tokenizer_.unk_id]
        state = self._read(prompt)
        for _ in range(n_tokens):
            token = choice.draw(self._next_log_probabilities(state), forbidden)
            yield token
            if token == eos and self.reset_ == "sentence" and bos is not None:
                state = self._read(np.array([bos]))
            else:
                state = self._read(np.array([token]), state)

    def tokenize(self, docs: Any) -> TokenStream:
        """Return the documents as `log_likelihood` reads them: tokens, starts and bounds."""
        self._check_fitted()
        return self._tokens(docs, self.n_tokens_)

    def save(self, folder: str | Path) -> None:
        """Write ``config.json``, ``weights.safetensors`` and, with a tokenizer, ``tokenizer.json``.

        The folder appears whole or not at all; a model that was there is replaced. Raises
        FileExistsError where it is a file, or a folder with anything but a model in it.
        """
        self._write(folder, *self._contents())

    def _write(self, folder: str | Path, config: dict[str, Any], arrays: dict[str, Arrays]) -> None:
        about, texts = None, {}
        if (tokenizer := self.tokenizer_) is not None:
            about = {"bos": tokenizer.bos, "eos": tokenizer.eos}
            texts[TOKENIZER] = tokenizer.to_json()
        config = {"esnlm": __version__, **config, "tokenizer": about}
        if hasattr(self, "run_"):
            config["run"] = self.run_
        with folder_aside(Path(folder), model_folder.check_replaceable) as aside:
            model_folder.write_files(aside, model_folder.MODEL, config, arrays, texts)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Return the model that `save` wrote; its probabilities are identical.

        Raises `ModelFormatError` for a folder that is missing, incomplete, altered, of another
        version, or of another kind.
        """
        config, arrays, texts = model_folder.read_files(Path(folder), model_folder.MODEL)
        if config.get("kind") != cls._kind:
            raise ModelFormatError(
                f"{folder} holds no {cls.__name__}: load it with esnlm.loading.load_model"
            )
        with model_folder.restoring(Path(folder)):
            Count(most=LARGEST_VOCABULARY).check("n_tokens", config["n_tokens"])
            about = config["tokenizer"]
            tokenizer = None if about is None else Tokenizer.from_json(texts[TOKENIZER], **about)
            model = cls._rebuilt(config, arrays, tokenizer)
            model.n_tokens_ = int(config["n_tokens"])
            if tokenizer is not None and len(tokenizer) > model.n_tokens_:
                raise ModelFormatError(
                    f"the tokenizer of {len(tokenizer)} entries does not belong to a model of"
                    f" {model.n_tokens_} tokens"
                )
            model._try_out()
        if "run" in config:
            model.run_ = config["run"]
        return model

    def _try_out(self) -> None:
        """Score a few tokens: whatever does not fit in what was loaded shows here."""
        some = np.unique(np.linspace(0, self.n_tokens_ - 1, _TRIED).astype(np.int64))
        with np.errstate(all="ignore"):
            self._scores(self.tokenize([np.append(some, some)]))
            checked_scores(self._next_log_probabilities(self._read(some)))

    def _check_fitted(self) -> None:
        if not hasattr(self, "n_tokens_"):
            raise NotFittedError(f"this {type(self).__name__} has learnt nothing yet: call fit")

    def _learn_vocabulary(self, docs: Any) -> TokenStream:
        """Set ``tokenizer_``, trained where it is a name, and ``n_tokens_``; the tokens."""
        self._fitted_reset = self._asked_reset
        if not isinstance(docs, TokenStream):
            docs = as_documents(docs)
        self.tokenizer_ = trained_tokenizer(self._tokenizer, docs, self.reset_)
        n_tokens, tokenizer = self.n_tokens, self.tokenizer_
        least = None if tokenizer is None else len(tokenizer)
        if n_tokens is not None and least is not None and n_tokens < least:
            raise ValueError(
                f"n_tokens must be at least {least}, the tokenizer's entries, got {n_tokens}"
            )
        n_tokens = n_tokens or least
        if n_tokens is None:
            docs = joined(docs, tokenizer, self.reset_, None)
            n_tokens = int(docs.tokens.max(initial=0)) + 1
        Count(most=LARGEST_VOCABULARY).check("n_tokens", n_tokens)
        self.n_tokens_ = n_tokens
        return self._tokens(docs, n_tokens)

    def _tokens(self, docs: Any, n_tokens: int | None, name: str = "docs") -> TokenStream:
        """Documents -> a stream that holds a token at least."""
        stream = joined(docs, self.tokenizer_, self.reset_, n_tokens)
        if len(stream.bounds) < 2 or not len(stream.tokens):
            raise CorpusError(f"{name} hold no tokens: the corpus is empty")
        return stream
