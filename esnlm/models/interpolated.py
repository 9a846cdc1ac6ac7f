"""Linear interpolation: one language model of several, weights found on held-out text."""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from itertools import chain, combinations, islice, pairwise
from typing import Any, ClassVar, Self

import numpy as np

from esnlm.models.base import ROWS_AT_ONCE, SequenceModel
from esnlm.models.checks import check_no_labels
from esnlm.models.saving import Contents
from esnlm.storage.model_folder import WEIGHTS, ModelFormatError
from esnlm.text.corpus import CorpusError, TokenStream
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.arrays import Array, Arrays, Floats, Ints64
from esnlm.utils.interpolation import likeliest_weights, log_mixture
from esnlm.utils.state_dict import under_prefix, with_prefix
from esnlm.utils.validation import restored_after_error

#: The kind of model in the configuration of a saved one.
KIND = "interpolated"
# Tokens whose distributions are held at once, and the most of sequences that are read together.
_AT_ONCE, _LONGEST = 1024, 4096
#: Kind in the configuration of a model folder -> the module and the class that load it.
CLASSES = {
    None: ("esnlm.models.language_model", "LanguageModel"),
    "ngrams": ("esnlm.models.ngram", "NgramLanguageModel"),
    "torch": ("esnlm.torch.language_model", "TorchLanguageModel"),
    KIND: ("esnlm.models.interpolated", "InterpolatedModel"),
}


@dataclass(eq=False, repr=False)
class InterpolatedModel(SequenceModel):
    """``Σ_k w_k P_k(token | what precedes)`` of fitted models (Jelinek & Mercer 1980).

    Parameters
    ----------
    models : sequence of fitted models
        Two or more that read text as the same tokens: equal tokenizers and ``reset``.
    weights : array-like (n_models,) or None
        Shares that sum to 1. None: equal ones, until `fit` finds the likeliest.

    Attributes
    ----------
    weights_ : ndarray (n_models,) float64
    losses_ : ndarray (n_models + 1,) float64
        After `fit`: nats a token of each model on its text, and of the mixture.
    tokenizer_, n_tokens_
        Those of the models.

    Raises
    ------
    ValueError
        Where the models read text differently, or weights are no shares.

    Examples
    --------
    >>> from esnlm import LanguageModel, NgramLanguageModel
    >>> docs = ["the boy sees the dog", "the dog sees the boy"] * 5
    >>> model = LanguageModel(tokenizer="word", random_state=0).fit(docs)
    >>> counts = NgramLanguageModel(3, tokenizer=model.tokenizer_).fit(docs)
    >>> both = InterpolatedModel([model, counts]).fit(["the boy sees the boy"])
    >>> bool(both.score(["the dog sees the dog"]) < 0), both.weights_.shape
    (True, (2,))
    """

    _kind: ClassVar[str | None] = KIND

    models: Sequence[SequenceModel]
    _: KW_ONLY
    weights: Any = None

    def __post_init__(self) -> None:
        """Take tokenizer and vocabulary from the models."""
        if (n := len(self.models)) < 2:
            raise ValueError(f"models must be two fitted models at least, got {n}")
        for model in self.models:
            if not isinstance(model, SequenceModel):
                raise ValueError(
                    f"models must be a list of fitted models, got {model!r:.100} in it:"
                    " esnlm.load_model reads a folder"
                )
            model._check_fitted()
        first, *others = self.models
        for other in others:
            check_alike(first, other)
        try:
            weights = np.full(n, 1 / n) if self.weights is None else np.asarray(self.weights, float)
        except (TypeError, ValueError):  # text, or a dict
            weights = np.empty(0)
        if weights.shape != (n,) or not (weights >= 0).all() or abs(weights.sum() - 1) > 1e-6:
            raise ValueError(f"weights must be {n} shares that sum to 1, got {self.weights}")
        self.weights_ = weights / weights.sum()
        self.tokenizer_, self.n_tokens_, self.reset = (
            first.tokenizer_,
            first.n_tokens_,
            first.reset_,
        )
        self._as_fitted = [_vocabulary(model) for model in self.models]
        counts = (model.token_counts_ for model in self.models)
        self.token_counts_ = next((each for each in counts if each is not None), None)

    def set_params(self, **params: Any) -> Self:
        """Set models or weights, and return self."""
        with restored_after_error(self):
            super().set_params(**params)
            self.__post_init__()
        return self

    def __sklearn_clone__(self) -> Self:
        """Return one of the same models, as `fit` leaves them as they are."""
        return type(self)(self.models, weights=self.weights)

    def fit(self, docs: Any, y: None = None) -> Self:
        """Find the weights that make held-out documents likeliest; the models stay as they are.

        ``docs`` are texts that no model was fitted to, else the model that knows them by heart
        takes all. CorpusError where there is no token to predict.
        """
        check_no_labels(y)
        stream = self.tokenize(docs)
        if not stream.n_predicted:
            raise CorpusError("docs hold no token to predict: each needs at least two tokens")
        marks = stream.predicted()
        logs = np.stack([model._scores(stream)[marks] for model in self.models])
        for first, second in combinations(range(len(logs)), 2):
            if np.array_equal(logs[first], logs[second]):
                raise ValueError(
                    f"models {first + 1} and {second + 1} give every token the same probability:"
                    " are they one model, given twice? leave one of them out"
                )
        self.weights_ = likeliest_weights(logs)
        both = log_mixture(logs, self.weights_)
        self.losses_ = -np.append(logs.mean(axis=1), both.mean())
        return self

    def _check_fitted(self) -> None:
        """Raise ValueError where a model was fitted again and reads other tokens now."""
        for number, model in enumerate(self.models):
            model._check_fitted()
            if _vocabulary(model) != self._as_fitted[number]:
                raise ValueError(
                    f"model {number + 1} was fitted again since, and may read text as other"
                    " tokens: make a new InterpolatedModel of the models"
                )

    @property
    def n_parameters_(self) -> int:
        """Number of parameters of all models."""
        return sum(int(getattr(model, "n_parameters_", 0)) for model in self.models)

    def _log_probabilities(self, stream: TokenStream) -> Floats:
        logs = np.stack([model._log_probabilities(stream) for model in self.models])
        return np.where(stream.predicted(), log_mixture(logs, self.weights_), 0.0)

    def _read(self, ids: Array, state: Any = None) -> Any:
        states = [None] * len(self.models) if state is None else state
        return [model._read(ids, each) for model, each in zip(self.models, states, strict=True)]

    def _next_log_probabilities(self, state: Any) -> Floats:
        parts = zip(self.models, state, strict=True)
        logs = np.stack([model._next_log_probabilities(each) for model, each in parts])
        return log_mixture(logs, self.weights_)

    def _distributions(self, stream: TokenStream) -> Iterator[tuple[Floats, Ints64]]:
        starts = np.zeros(1, np.int64) if stream.starts is None else stream.starts
        # Each model may have an order of its own, so that the sums are of a few sequences at once.
        groups = np.split(starts, np.flatnonzero(np.diff(starts // _AT_ONCE)) + 1)
        cuts = [*(int(group[0]) for group in groups), len(stream.tokens)]
        for group, begin, end in zip(groups, cuts, cuts[1:], strict=False):
            bounds = np.array([0, end - begin])
            own = None if stream.starts is None else group - begin
            part = TokenStream(stream.tokens[begin:end], own, bounds)
            if end - begin > _LONGEST:
                for first, after in pairwise([*group.tolist(), end]):
                    yield from self._distributions_in_order(stream.tokens[first:after], first)
                continue
            total = np.zeros((end - begin, self.n_tokens_))
            for model, weight in zip(self.models, self.weights_, strict=True):
                for rows, places in model._distributions(part):
                    total[places] += weight * rows
            places = np.flatnonzero(part.predicted())
            yield total[places], places + begin

    def _distributions_in_order(self, tokens: Array, begin: int) -> Iterator[tuple[Floats, Ints64]]:
        """Yield those of one sequence that begins at a place, a few at a time."""
        sequence = TokenStream(tokens, None, np.array([0, len(tokens)]))
        # Blocks of models differ in size; within a sequence all of them go from left to right.
        blocks = (model._distributions(sequence) for model in self.models)
        rows_of_all = zip(
            *(chain.from_iterable(rows for rows, _ in each) for each in blocks), strict=True
        )
        for first in range(1, len(tokens), ROWS_AT_ONCE):
            some = np.array(list(islice(rows_of_all, ROWS_AT_ONCE)))
            yield np.einsum("nmv,m->nv", some, self.weights_), begin + first + np.arange(len(some))

    def _contents(self) -> Contents:
        """Return the configuration of each model in a list, and all arrays by its number."""
        self._check_fitted()
        configs, arrays = [], dict[str, Array]()
        for number, model in enumerate(self.models):
            config, files = model._contents()
            configs.append(config)
            arrays |= with_prefix(str(number), files[WEIGHTS])
        config = {"kind": KIND, "n_tokens": self.n_tokens_, "weights": self.weights_.tolist()}
        return {**config, "models": configs}, {WEIGHTS: arrays}

    @classmethod
    def _rebuilt(
        cls, config: dict[str, Any], arrays: dict[str, Arrays], tokenizer: Tokenizer | None
    ) -> Self:
        """Return the model of the models' configurations, their arrays and their tokenizer."""
        models = []
        for number, each in enumerate(config["models"]):
            files = {WEIGHTS: under_prefix(str(number), arrays[WEIGHTS])}
            model = class_of(each)._rebuilt(each, files, tokenizer)
            model.n_tokens_ = int(each["n_tokens"])
            models.append(model)
        return cls(models, weights=config["weights"])


def class_of(config: dict[str, Any]) -> type[SequenceModel]:
    """Return the class that loads the model of a configuration."""
    kind = config.get("kind")
    if not isinstance(kind, str | None) or kind not in CLASSES:
        raise ModelFormatError(
            f"no model is of kind {kind!r}: load it with the esnlm that wrote it"
        )
    if kind == "torch":
        import_module("esnlm.torch").require_torch("a network")
    module, name = CLASSES[kind]
    kind_of_model: type[SequenceModel] = getattr(import_module(module), name)
    return kind_of_model


def _vocabulary(model: SequenceModel) -> tuple[Any, ...]:
    """Return the tokenizer, of which each `fit` may train another, and how text is read."""
    return model.tokenizer_, model.n_tokens_, model.reset_


def check_alike(first: SequenceModel, second: SequenceModel) -> None:
    """Raise ValueError unless both models read the same text as the same tokens."""
    one, two = (m.tokenizer_ and m.tokenizer_.__getstate__() for m in (first, second))
    if one != two:
        raise ValueError("the two models have different tokenizers: their tokens do not compare")
    if (first.reset_, first.n_tokens_) != (second.reset_, second.n_tokens_):
        raise ValueError(
            f"the two models must read sequences alike, got reset={first.reset_!r} with"
            f" {first.n_tokens_} tokens and reset={second.reset_!r} with {second.n_tokens_}"
        )
