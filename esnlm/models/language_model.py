"""A tokenizer, a reservoir and a readout that together give the next token's distribution."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from esnlm.models.base import ROWS_AT_ONCE, SequenceModel
from esnlm.models.checks import check_no_labels, warn_of_unknown
from esnlm.models.parts import (
    ReadoutLike,
    ReservoirLike,
    asked_settings,
    check_parts,
    choose_parts,
    drawn_reservoir,
    fitted_parts,
    settle_penalty,
)
from esnlm.models.saving import Contents, counted, counts_in, describe, restored
from esnlm.models.states import StateBlocks, States
from esnlm.readouts.base.last_tokens import NO_TOKEN, append_tokens
from esnlm.storage.model_folder import TRAINING, WEIGHTS
from esnlm.text.boundaries import RESETS
from esnlm.text.corpus import CorpusError, TokenStream
from esnlm.text.shuffling import target_counts
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.arrays import Array, Arrays, Floats, Ints64
from esnlm.utils.messages import phase
from esnlm.utils.state_dict import with_prefix
from esnlm.utils.validation import (
    Count,
    Flag,
    OneOf,
    at_fit,
    check_parameters,
    limited,
    restored_after_error,
)

_SETTINGS = ("reset", "n_tokens", "shuffle", "n_streams", "random_state")
# Arrays of the state and the last tokens that a model without resets continues from.
_CARRIED = ("carried.state", "carried.last")


@dataclass(eq=False, repr=False)
class LanguageModel(SequenceModel):
    """Next-token distributions from a reservoir's states.

    Documents are strings where a tokenizer is set, else 1-D integer arrays; one string or one
    array alone is one document. Integers are taken as they are, tokenizer or not. A corpus is
    read as a stream of state blocks; only its tokens are held, at two or four bytes each.

    Predicted tokens are those at which no sequence starts: ``doc[1:]`` of an integer array, and
    every token after BOS of a sentence; with ``reset="never"`` all but the very first. The cut
    in streams is exact with resets, and with ``never`` approximate as `Reservoir.harvest` says.

    Parameters
    ----------
    reservoir : Reservoir, optional
        Taken as it is where it has weights already; otherwise a copy is drawn for the vocabulary.
        None: reservoir and features of the recipe.
    readout : a readout of this package, its name on the command line, or a classifier, optional
        A copy is fitted; of scikit-learn's classifiers those with ``predict_proba``, in a
        `ClassifierReadout`. Where reservoir and readout (and tokenizer and features) are fitted
        already, the model predicts with them as they are, until `fit` is called. None: the readout
        of the recipe; a name: with the settings that the recipe has for it.
    tokenizer : Tokenizer, "word", "wordpunct", "auto", "char" or None
        A name trains one on the documents of `fit`; None is "auto" where they are text. "word" is
        what stands between white space, "wordpunct" parts words and marks, "auto" does so where
        the text is plain (`Tokenizer.train_words`).
    features : WordFeatures, optional
        Word features that drive the reservoir; a copy is fitted on the documents first, unless
        they are fitted already. None: those of the recipe, or with a ``reservoir`` none.
    reset : {"sentence", "document", "never"}, optional
        Where the state returns to zero; None: ``never`` for characters, else ``sentence``.
        ``sentence``: text is cut in lines, each read as BOS ... EOS; an integer array is one
        sentence. ``document``: at each document; its text is BOS ... EOS, with an EOS after every
        line where the tokenizer drops line ends. ``never``: documents are joined in one sequence
        and the state is carried; no BOS.
    recipe : str, optional
        Name of a recipe, or the path of a file, as of ``esnlm train --recipe``. None: chosen by the
        vocabulary (`esnlm.models.recipes.choose_recipe`). Refused where reservoir and readout are
        given.
    n_tokens : int, optional
        Size of the vocabulary V; default: the tokenizer's, or the largest token + 1.
    shuffle : bool
        Read sentences (documents) in random order when fitting, which readouts that learn as they
        read need. One order for all passes.
    n_streams : int
        Parallel streams that a corpus is cut into; see `Reservoir.harvest`.
    random_state : int, optional
        For the order of sentences, and for all that a recipe chooses.
    verbose : bool
        Show each pass over the corpus on standard error: bars in terminals and notebooks, else a
        line every half minute.

    Attributes
    ----------
    reservoir_, readout_, features_, tokenizer_ : what was fitted (None where there is none)
    recipe_ : str
        The recipe by which `fit` chose what was left open, and why; else empty, as after loading.
    reset_ : str
        Where the state returns to zero.
    n_tokens_ : int
        V; every distribution has this many entries, the token's id its place.
    run_ : str or None
        The digest of the settings of the `esnlm.Trainer`.
    token_counts_ : array (V,) or None
        How often each token was predicted in the training text, where that is known.

    Examples
    --------
    >>> from esnlm import LanguageModel, Reservoir, RidgeReadout
    >>> docs = ["the boy sees the dog", "the dog sees the boy"] * 5
    >>> model = LanguageModel(Reservoir(50, random_state=0), RidgeReadout(), tokenizer="word")
    >>> model = model.fit(docs)
    >>> model.perplexity(docs) < 2
    True
    >>> best = model.predict_proba("the boy sees").argmax()
    >>> model.tokenizer_.vocabulary[best]
    'the'
    """

    reservoir: ReservoirLike | None = None
    readout: ReadoutLike | str | None = None
    _: KW_ONLY
    tokenizer: Tokenizer | str | None = None
    features: Any = None
    reset: str | None = limited(None, OneOf((*RESETS, None)))
    recipe: str | None = None
    n_tokens: int | None = limited(None, Count(none=True))
    shuffle: bool = limited(True, Flag())
    n_streams: int = limited(64, Count(most=1 << 20))
    random_state: int | None = limited(None, Count(0, none=True))
    verbose: bool = False

    recipe_: str = field(default="", init=False)

    def fit(self, docs: Any, y: None = None, *, held_out: Any = None) -> Self:
        """Fit tokenizer, features and readout, in this order, where they are not given fitted.

        Raises `CorpusError` where there is no token to predict, ValueError for tokens that are no
        integers in ``[0, n_tokens)`` and parameters out of range. After an error or an interrupt
        the model is what it was before.

        ``docs`` are an iterable of str or of int arrays, or a TokenStream, as are ``held_out``:
        documents kept out of training, on which the readout chooses penalties and stops.
        """
        check_no_labels(y)
        with restored_after_error(self):
            stream = self._read_corpus(docs)
            validation = None
            if held_out is not None:
                validation = self._tokens(held_out, self.n_tokens_, "held_out")
            if self._chooses_penalty:
                settle_penalty(self, stream, validation)
            return self._fit_tokens(stream, validation)

    def _fit_tokens(self, stream: TokenStream, held_out: TokenStream | None = None) -> Self:
        """Fit features and readout to tokens, once the vocabulary is known."""
        self._draw_parts(stream)
        validation = None if held_out is None else self._harvest(held_out)
        blocks, classes = self._harvest(self._ordered(stream)), np.arange(self.n_tokens_)
        readout = clone(self._parts.readout)
        with phase(f"fitting the {type(readout).__name__}", self.verbose):
            self.readout_ = readout.fit_blocks(blocks, classes, held_out=validation)
        return self

    def partial_fit(self, docs: Any, y: None = None) -> Self:
        """Learn from more documents; with ``reset="never"`` they continue the earlier ones.

        The first call needs ``n_tokens``, or a tokenizer that is not to be trained, unless its
        documents hold the whole vocabulary. Warns where more than a tenth of the tokens are
        unknown.
        """
        check_no_labels(y)
        if hasattr(self, "readout_"):
            stream = self._tokens(docs, self.n_tokens_)
            warn_of_unknown(stream.tokens, self.tokenizer_)
            if self.token_counts_ is not None:
                counts = self.token_counts_ + target_counts(stream, self.n_tokens_)
                if stream.starts is None and self._carried is not None:
                    counts[stream.tokens[0]] += 1  # predicted by the last token read
                self.token_counts_ = counts
        else:
            with restored_after_error(self):
                stream = self._read_corpus(docs)
                self._draw_parts(stream)
                self.readout_ = clone(self._parts.readout)
        classes = np.arange(self.n_tokens_)
        for states, following in self._continued(self._ordered(stream)):
            self.readout_.partial_fit(states, following, classes=classes)
        return self

    def _ordered(self, stream: TokenStream) -> TokenStream:
        if not self.shuffle:
            return stream
        return stream.shuffled(np.random.default_rng(self.random_state))

    def _read_corpus(self, docs: Any) -> TokenStream:
        """Return the documents as `fit` reads them; train the tokenizer, set the vocabulary."""
        check_parts(self)
        stream = self._learn_vocabulary(docs)
        self._parts, self.recipe_, self._chooses_penalty = choose_parts(self)
        return stream

    def _use_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Set a vocabulary, instead of `_read_corpus`, where the tokens are elsewhere."""
        check_parts(self)
        self._fitted_reset = self._asked_reset
        self.tokenizer_, self.n_tokens_ = tokenizer, len(tokenizer)
        self._parts, self.recipe_, self._chooses_penalty = choose_parts(self)

    @property
    def _asked_reset(self) -> str:
        """Where the state is to return to zero: ``reset``, or as recipe or tokenizer ask."""
        reset = asked_settings(self).get("reset") if self.reset is None else self.reset
        if reset is not None:
            return str(reset)
        tokenizer = self._tokenizer
        if isinstance(tokenizer, Tokenizer):
            return "never" if tokenizer.has_characters and tokenizer.bos is None else "sentence"
        return "never" if isinstance(tokenizer, str) and tokenizer == "char" else "sentence"

    @property
    def _tokenizer(self) -> Tokenizer | str | None:
        asked = asked_settings(self).get("tokenizer")
        return asked if self.tokenizer is None else self.tokenizer

    def _draw_parts(self, stream: TokenStream) -> None:
        """Draw the reservoir and fit the features, after `_read_corpus`."""
        self._draw_reservoir(target_counts(stream, self.n_tokens_))
        features = self._parts.features
        if features is not None and not hasattr(features, "embedding_"):
            self.features_ = clone(features).fit(
                stream.tokens,
                reservoir=self.reservoir_,
                n_tokens=self.n_tokens_,
                starts=stream.starts,
            )

    def _draw_reservoir(self, counts: Ints64) -> None:
        """Draw the reservoir, of a vocabulary with these counts (n_tokens,) of predicted tokens."""
        self._carried: tuple[Any, Ints64] | None = None
        self.run_: str | None = None
        self.token_counts_ = counts
        self.reservoir_ = drawn_reservoir(self._parts, self.n_tokens_)
        self.features_ = self._parts.features

    @property
    def _n_columns(self) -> int:
        """Columns that the readout reads: units, and last tokens with direct connections."""
        return int(self.reservoir_.W_.shape[0]) + self._n_last

    @property
    def n_parameters_(self) -> int:
        """Number of trained parameters: the readout's, and the features'."""
        self._check_fitted()
        embedded = 0 if self.features_ is None else int(self.features_.embedding_.size)
        return int(self.readout_.n_parameters_) + embedded

    def save(self, folder: str | Path, *, training: bool = False) -> None:
        """Save as `SequenceModel.save` does; with ``training`` also ``training.safetensors``.

        It holds the state that `partial_fit` continues from: the loaded model then learns further
        documents as this one would. A readout that was itself loaded without it raises ValueError.
        """
        self._write(folder, *self._contents(training=training))

    def _contents(self, *, training: bool = False) -> Contents:
        """Return the config, and arrays by file; with ``training`` also the readout's state."""
        self._check_fitted()
        parts = {"reservoir": self.reservoir_, "readout": self.readout_, "features": self.features_}
        arrays: Arrays = {}
        for name, part in parts.items():
            arrays |= {} if part is None else with_prefix(name, part.state_dict())
        arrays |= counted(self.token_counts_)
        settings = {name: getattr(self, name) for name in _SETTINGS}
        settings |= {"reset": self.reset_, "n_tokens": self.n_tokens and self.n_tokens_}
        config = {
            "n_tokens": self.n_tokens_,
            "settings": settings,
            **{name: describe(part) for name, part in parts.items()},
        }
        if self.reservoir_._has_set_weights:
            config["has_set_weights"] = True
        files = {WEIGHTS: arrays}
        if training:
            files[TRAINING] = self.readout_.state_dict(training=True)
            for name, array in zip(_CARRIED, self._carried or (), strict=False):
                if array is not None:
                    files[TRAINING][name] = array
        return config, files

    @classmethod
    def _rebuilt(
        cls, config: dict[str, Any], arrays: dict[str, Arrays], tokenizer: Tokenizer | None
    ) -> Self:
        """Return the fitted model of a config and its arrays, checked against each other."""
        names = "reservoir", "readout", "features"
        reservoir, readout, features = (restored(config, arrays[WEIGHTS], name) for name in names)
        reservoir._has_set_weights = config.get("has_set_weights") is True
        settings = {"tokenizer": tokenizer, "features": features, **config["settings"]}
        model = cls.of_parts(reservoir, readout, **settings)
        check_parameters(model)
        model.token_counts_ = counts_in(arrays[WEIGHTS], config["n_tokens"])
        if model.n_tokens_ != config["n_tokens"]:
            raise ValueError(
                f"the readout must have the {config['n_tokens']} tokens as its classes, got"
                f" {model.n_tokens_}"
            )
        if readout.n_features_in_ != model._n_columns:
            raise ValueError(
                f"the readout reads {readout.n_features_in_} columns, and the states have"
                f" {model._n_columns}"
            )
        if TRAINING in arrays:
            state, last = (arrays[TRAINING].pop(name, None) for name in _CARRIED)
            model._carried = None if last is None else (state, np.asarray(last, dtype=np.int64))
            model.readout_.load_state_dict(arrays[TRAINING], training=True)
            # A copy of the readout learns two rows: a state that does not fit shows here.
            rows = np.tile(model._read(np.arange(1)), (2, 1))
            with np.errstate(all="ignore"):
                trial = deepcopy(model.readout_).partial_fit(rows, [0, model.n_tokens_ - 1])
                trial.predict_proba(rows)
        return model

    @classmethod
    def of_parts(cls, reservoir: Any, readout: Any, **options: Any) -> Self:
        """Return a model of a reservoir with weights and a fitted readout.

        The tokenizer and the features among these are fitted, too.
        """
        model = cls(reservoir, readout, **options)
        model._check_fitted()
        return model

    def _check_fitted(self) -> None:
        """Take the parts of the constructor where all are fitted, or raise NotFittedError."""
        parts = (self.reservoir, "W_"), (self.readout, "classes_"), (self.features, "embedding_")
        fitted = all(part is None or hasattr(part, name) for part, name in parts)
        is_open = isinstance(self.tokenizer, str) or None in (self.reservoir, self.readout)
        if not hasattr(self, "n_tokens_") and fitted and not is_open:
            self._parts, self._fitted_reset = fitted_parts(self), self._asked_reset
            self.reservoir_, self.readout_, self.features_ = self._parts
            self.tokenizer_: Any = self.tokenizer
            self.n_tokens_ = len(self.readout_.classes_)
            self._carried, self.run_, self.token_counts_ = None, None, None
        super()._check_fitted()

    @property
    def _states(self) -> States:
        """What harvests streams for the readout."""
        features, dtype = self.features_, self.reservoir_.W_.dtype
        embedding = None if features is None else features.embedding_.astype(dtype, copy=False)
        return States(self.reservoir_, embedding, self.n_streams, self._n_last)

    @property
    def _n_last(self) -> int:
        return int(at_fit(self._parts.readout).get("n_direct", 0))

    def _harvest(self, stream: TokenStream) -> StateBlocks:
        if not stream.n_predicted:
            raise CorpusError("docs hold no token to predict: each needs at least two tokens")
        return self._states.blocks(stream, verbose=self.verbose)

    def _continued(self, stream: TokenStream) -> Iterator[tuple[Array, Array]]:
        """Blocks of (states, next tokens); without resets the state is carried over calls."""
        if stream.starts is not None:
            yield from self._harvest(stream)
            return
        state, tokens = None, stream.tokens
        # The last token read comes with the next text, whose first token it predicts.
        last = before = np.full(self._n_last + 1, NO_TOKEN)
        if self._carried is not None:
            state, last = self._carried
            before = last[1:]
            tokens = np.append(last[:1].astype(tokens.dtype), tokens)
        if len(tokens) > 1:
            blocks = self._harvest(TokenStream(tokens, None, np.array([0, len(tokens)])))
            for states, following, positions in blocks.with_positions(state, before):
                ends = np.flatnonzero(positions == len(tokens) - 2)
                if len(ends):
                    before_last = states[ends[0], : -self._n_last or None].copy()
                yield states, following
            state = before_last
        self._carried = (state, append_tokens(last, stream.tokens[-len(last) :]))

    def _log_probabilities(self, stream: TokenStream) -> Floats:
        self._check_fitted()
        scores = np.zeros(len(stream.tokens))
        if not stream.n_predicted:
            return scores
        for states, following, positions in self._harvest(stream).with_positions():
            scores[positions + 1] = self.readout_.predict_log_proba_of(states, following)
        return scores

    def _distributions(self, stream: TokenStream) -> Iterator[tuple[Floats, Ints64]]:
        if not stream.n_predicted:
            return
        for states, _, positions in self._harvest(stream).with_positions():
            for first in range(0, len(states), ROWS_AT_ONCE):
                part = slice(first, first + ROWS_AT_ONCE)
                yield self._next_probabilities(states[part]), positions[part] + 1

    def _read(self, ids: Array, state: Any = None) -> Array:
        """Return the columns of the readout (n_columns,) after ids (n,) from ``state``."""
        self._check_fitted()
        n_units, dtype = self.reservoir_.W_.shape[0], self.reservoir_.W_.dtype
        if state is None:
            state = np.zeros(self._n_columns, dtype=dtype)
            state[n_units:] = NO_TOKEN
        if not len(ids):
            return np.asarray(state)
        inputs = ids if self.features_ is None else self.features_.transform(ids)
        after = self.reservoir_._states(inputs, state[:n_units])[-1]
        last = append_tokens(state[n_units:].astype(np.int64), ids)
        return np.concatenate([after, last.astype(dtype)])

    def _next_probabilities(self, states: Any) -> Floats:
        return np.asarray(self.readout_.predict_proba(np.asarray(states)), dtype=np.float64)

    def _next_log_probabilities(self, state: Array) -> Floats:
        return np.asarray(self.readout_.predict_log_proba(state[None])[0], dtype=np.float64)
