"""A tokenizer, a reservoir and a readout that together give the next token's distribution."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from esnlm.models.base import SequenceModel, check_no_labels
from esnlm.models.penalty import settle_penalty
from esnlm.models.protocols import ReadoutLike, ReservoirLike
from esnlm.models.recipes import (
    choose_recipe,
    default_settings,
    is_penalty_open,
    make_features,
    make_readout,
    make_reservoir,
    read_recipe,
    to_settings,
)
from esnlm.models.saving import Contents, class_of, counted, counts_in, describe, parameters
from esnlm.models.states import StateBlocks
from esnlm.readouts.base.last_tokens import NO_TOKEN, append_tokens
from esnlm.readouts.registry import BY_OPTION
from esnlm.readouts.sklearn.classifier import ClassifierReadout, is_foreign
from esnlm.reservoir.recurrence import Drive
from esnlm.storage.model_folder import TRAINING, WEIGHTS
from esnlm.text.boundaries import RESETS
from esnlm.text.corpus import CorpusError, TokenStream
from esnlm.text.shuffling import target_counts
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.arrays import Array, Arrays, Floats, Ints64
from esnlm.utils.memory import check_memory
from esnlm.utils.messages import phase
from esnlm.utils.state_dict import under_prefix, with_prefix
from esnlm.utils.validation import Count, Flag, OneOf, check_parameters, limited

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
        For the order of sentences.
    verbose : bool
        Show each pass over the corpus on standard error: bars in terminals and notebooks, else a
        line every half minute.

    Attributes
    ----------
    reservoir_, readout_, features_, tokenizer_ : what was fitted (None where there is none)
    recipe_ : str
        The recipe that chose what was left open, and why; empty where nothing was.
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
        integers in ``[0, n_tokens)`` and parameters out of range.

        ``docs`` are an iterable of str or of int arrays, or a TokenStream, as are ``held_out``:
        documents kept out of training, on which the readout chooses penalties and stops.
        """
        check_no_labels(y)
        stream = self._read_corpus(docs)
        held = None
        if held_out is not None:
            held = self._tokens(held_out, self.n_tokens_, "held_out")
        if self._chooses_penalty:
            settle_penalty(self, stream, held)
        return self._fit_tokens(stream, held)

    def _fit_tokens(self, stream: TokenStream, held_out: TokenStream | None = None) -> Self:
        """Fit features and readout to tokens, once the vocabulary is known."""
        self._draw_parts(stream)
        held = None if held_out is None else self._harvest(held_out)
        blocks, classes = self._harvest(self._ordered(stream)), np.arange(self.n_tokens_)
        readout = clone(self._given_readout)
        with phase(f"fitting the {type(readout).__name__}", self.verbose):
            self.readout_ = readout.fit_blocks(blocks, classes, held_out=held)
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
            self._warn_of_unknown(stream)
            if self.token_counts_ is not None:
                counts = self.token_counts_ + target_counts(stream, self.n_tokens_)
                if stream.starts is None and self._carried is not None:
                    counts[stream.tokens[0]] += 1  # predicted by the last token read
                self.token_counts_ = counts
        else:
            stream = self._read_corpus(docs)
            self._draw_parts(stream)
            self.readout_ = clone(self._given_readout)
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
        self._check_parts()
        stream = self._learn_vocabulary(docs)
        self._choose_parts()
        return stream

    def _use_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Set a vocabulary, instead of `_read_corpus`, where the tokens are elsewhere."""
        self._check_parts()
        self.tokenizer_, self.n_tokens_ = tokenizer, len(tokenizer)
        self._choose_parts()

    def _choose_parts(self) -> None:
        """Make the parts that were left open, by the recipe for the vocabulary."""
        self.recipe_, self._chooses_penalty = "", False
        self._open_parts: dict[str, Any] = {}
        named = self.readout is None or isinstance(self.readout, str)
        if not named and self.reservoir is not None:
            return
        settings = dict(self._recipe_settings)
        if isinstance(self.readout, str):
            settings["readout"] = self.readout
        self._chooses_penalty = named and is_penalty_open(settings)
        characters = self.tokenizer_ is not None and self.tokenizer_.has_characters
        settings = default_settings(settings, self.n_tokens_, characters=characters)
        if self.recipe is None:
            self.recipe_ = "{}: {}".format(*choose_recipe(self.n_tokens_, characters=characters))
        else:
            self.recipe_ = self.recipe
        self._open_parts = {
            "reservoir": make_reservoir(settings, self.random_state),
            "features": make_features(settings["features"], self.random_state),
        }
        if named:
            self._open_parts["readout"] = make_readout(settings, self.random_state)

    @property
    def _recipe_settings(self) -> dict[str, Any]:
        """Settings of the recipe that was asked for."""
        if self.recipe is None:
            return {}
        chosen = {"readout": self.readout} if isinstance(self.readout, str) else {}
        return to_settings(read_recipe(self.recipe, chosen), of_model=True)

    @property
    def reset_(self) -> str:
        """Where the state returns to zero: ``reset``, or as the recipe or the tokenizer asks."""
        reset = self.reset or self._recipe_settings.get("reset")
        if reset is not None:
            return str(reset)
        tokenizer = self._tokenizer
        if isinstance(tokenizer, Tokenizer):
            return "never" if tokenizer.has_characters and tokenizer.bos is None else "sentence"
        return "never" if tokenizer == "char" else "sentence"

    @property
    def _tokenizer(self) -> Tokenizer | str | None:
        return self.tokenizer or self._recipe_settings.get("tokenizer")

    def _check_parts(self) -> None:
        """Raise ValueError for unusable parts or options, or a recipe that has no effect."""
        readouts = (
            f"a readout of this package, such as RidgeReadout(), or {', '.join(BY_OPTION)}, or a"
            " classifier of scikit-learn with predict_proba"
        )
        self._open_parts = {}
        is_named = isinstance(self.readout, str) and self.readout in BY_OPTION
        readout = (
            ClassifierReadout(classifier=self.readout) if is_foreign(self.readout) else self.readout
        )
        for name, part, method, kind in (
            ("reservoir", self.reservoir, "harvest", "a Reservoir"),
            ("readout", None if is_named else readout, "fit_blocks", readouts),
            ("features", self.features, "transform", "WordFeatures or None"),
        ):
            if part is not None and not hasattr(part, method):
                is_node = type(part).__module__.startswith("reservoirpy.")
                hint = ": convert it by Reservoir.from_reservoirpy" if is_node else ""
                raise ValueError(f"{name} must be {kind}, got {part!r}{hint}")
        self.run_: str | None = None
        check_parameters(self)
        if self.recipe is not None and None not in (self.reservoir, self.readout) and not is_named:
            raise ValueError(
                f"recipe={self.recipe!r} has no effect beside reservoir and readout: leave out"
                " recipe, or one of these"
            )

    @property
    def _given_reservoir(self) -> Any:
        """The reservoir of the constructor, or that of the recipe."""
        return self._open_parts["reservoir"] if self.reservoir is None else self.reservoir

    @property
    def _given_readout(self) -> Any:
        """The readout of the constructor, or that of the recipe; classifiers in a readout."""
        if self.readout is None or isinstance(self.readout, str):
            return self._open_parts["readout"]
        return (
            ClassifierReadout(classifier=self.readout) if is_foreign(self.readout) else self.readout
        )

    @property
    def _given_features(self) -> Any:
        """The features of the constructor, or those of the recipe beside its reservoir."""
        if self.features is None and self.reservoir is None:
            return self._open_parts["features"]
        return self.features

    def _draw_parts(self, stream: TokenStream) -> None:
        """Draw the reservoir and fit the features, after `_read_corpus`."""
        self._draw_reservoir(target_counts(stream, self.n_tokens_))
        features = self._given_features
        if features is not None and not hasattr(features, "embedding_"):
            fitted = clone(features).fit(
                stream.tokens,
                reservoir=self.reservoir_,
                n_tokens=self.n_tokens_,
                starts=stream.starts,
            )
            self._use_features(fitted)

    def _draw_reservoir(self, counts: Ints64) -> None:
        """Draw the reservoir, of a vocabulary with these counts (n_tokens,) of predicted tokens."""
        self._carried: tuple[Any, Ints64] | None = None
        self.token_counts_ = counts
        given = self._given_features
        n_inputs = self.n_tokens_ if given is None else int(given.n_features)
        reservoir = self._given_reservoir
        drawn = hasattr(reservoir, "W_")
        n_units, n_tokens = int(reservoir.n_units), self.n_tokens_
        # Every readout has two Gram matrices and the sums of states by token.
        needed = 16 * n_units**2 + 8 * n_units * n_tokens
        check_memory(
            f"a readout of {n_units} units and {n_tokens} tokens", needed, "lower one of them"
        )
        self.reservoir_ = reservoir if drawn else clone(reservoir).fit(n_inputs=n_inputs)
        if self.reservoir_.n_inputs_ != n_inputs:
            raise ValueError(
                f"the reservoir has {self.reservoir_.n_inputs_} inputs, expected {n_inputs}: draw"
                f" its weights with fit(n_inputs={n_inputs}), or give one without weights"
            )
        self._use_features(given)

    def _use_features(self, features: Any) -> None:
        """Let the reservoir be driven by fitted features, or by tokens where there are None."""
        self.features_ = features
        if hasattr(features, "embedding_") and len(features.embedding_) != self.n_tokens_:
            raise ValueError(
                f"features are fitted for {len(features.embedding_)} tokens, expected"
                f" {self.n_tokens_}"
            )

    @property
    def _n_columns(self) -> int:
        """Columns that the readout reads: units, and last tokens with direct connections."""
        return int(self.reservoir_.n_units) + self._n_last

    @property
    def n_parameters_(self) -> int:
        """Number of trained parameters: the readout's, and the features'."""
        self._check_fitted()
        embedded = 0 if self.features_ is None else int(self.features_.embedding_.size)
        return int(self.readout_.n_parameters_) + embedded

    def save(self, folder: str | Path, *, training: bool = False) -> None:
        """As `SequenceModel.save`; with ``training`` also ``training.safetensors``.

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
        config = {
            "n_tokens": self.n_tokens_,
            "settings": {name: getattr(self, name) for name in _SETTINGS} | {"reset": self.reset_},
            **{name: describe(part) for name, part in parts.items()},
        }
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

        def fitted(part: str) -> Any:
            if config[part] is None:
                return None
            home, given = class_of(config[part]["class"]), parameters(config[part])
            return home(**given).load_state_dict(under_prefix(part, arrays[WEIGHTS]))

        reservoir, readout, features = map(fitted, ("reservoir", "readout", "features"))
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
            model._try_to_learn()
        return model

    def _try_to_learn(self) -> None:
        """Let a copy of the readout learn two rows: a state that does not fit shows here."""
        rows = np.tile(self._read(np.arange(1)), (2, 1))
        with np.errstate(all="ignore"):
            deepcopy(self.readout_).partial_fit(rows, [0, self.n_tokens_ - 1]).predict_proba(rows)

    @classmethod
    def of_parts(cls, reservoir: Any, readout: Any, **options: Any) -> Self:
        """Return a model of a reservoir with weights and a fitted readout.

        The tokenizer and the features among these are fitted, too.
        """
        model = cls(reservoir, readout, **options)
        model._take_parts()
        return model

    def _take_parts(self) -> None:
        """Let the parts of the constructor, which are fitted, be those of the model."""
        parts: Any = self
        self.reservoir_, self.readout_ = parts.reservoir, parts.readout
        self.tokenizer_, self.features_ = parts.tokenizer, parts.features
        if is_foreign(self.readout):
            known = (self.n_tokens, self.tokenizer and len(self.tokenizer))
            given = None if self.features is None else len(self.features.embedding_)
            n_tokens = next((n for n in (*known, given) if n), parts.reservoir.n_inputs_)
            self.readout_ = ClassifierReadout.of_fitted(self.readout, n_tokens)
        self.n_tokens_ = len(self.readout_.classes_)
        self._check_alike()
        self._carried, self.run_, self.token_counts_ = None, None, None

    def _check_alike(self) -> None:
        """Refuse parts that do not read, or do not predict, the same tokens."""
        n_tokens, n_inputs = self.n_tokens or self.n_tokens_, self.reservoir_.n_inputs_
        if not np.array_equal(self.readout_.classes_, np.arange(n_tokens)):
            raise ValueError(
                f"the readout must have the {n_tokens} tokens as its classes, got"
                f" {len(self.readout_.classes_)} classes: give its partial_fit classes=range(V),"
                " as tokens that nothing predicts are classes, too"
            )
        shape = (n_tokens,) if self.features_ is None else np.shape(self.features_.embedding_)
        if (n_tokens, n_inputs) not in (shape, shape * 2):
            raise ValueError(f"a reservoir of {n_inputs} inputs does not read {n_tokens} tokens")

    def _check_fitted(self) -> None:
        parts = (self.reservoir, "W_"), (self.readout, "classes_"), (self.features, "embedding_")
        fitted = all(part is None or hasattr(part, name) for part, name in parts)
        named = isinstance(self.tokenizer, str) or None in (self.reservoir, self.readout)
        if not hasattr(self, "n_tokens_") and fitted and not named:
            self._take_parts()
        super()._check_fitted()

    def _states_of(
        self,
        stream: TokenStream,
        *,
        drive: Drive | None = None,
        washout: int = 0,
        verbose: bool = False,
    ) -> StateBlocks:
        """Return the states and next tokens along a stream, as re-iterable blocks.

        ``drive``: `_drive`, if it is at hand.
        """
        parts = self.reservoir_, stream, drive or self._drive()
        return StateBlocks(*parts, self.n_streams, verbose, washout, self._n_last)

    def _drive(self) -> Drive | None:
        """Return what drives the reservoir for each token, where tokens have features."""
        if self.features_ is None:
            return None
        embedding, dtype = self.features_.embedding_, self.reservoir_.W_.dtype
        found: Drive = self.reservoir_.drive_of(embedding.astype(dtype, copy=False))
        return found

    @property
    def _n_last(self) -> int:
        return int(getattr(self._given_readout, "n_direct", 0))

    def _harvest(self, stream: TokenStream) -> StateBlocks:
        if not stream.n_predicted:
            raise CorpusError("docs hold no token to predict: each needs at least two tokens")
        return self._states_of(stream, verbose=self.verbose)

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
                    before_last = states[ends[0], : self.reservoir_.n_units].copy()
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

    def _read(self, ids: Array, state: Any = None) -> Array:
        """Return the columns of the readout (n_columns,) after ids (n,) from ``state``."""
        self._check_fitted()
        n_units, dtype = self.reservoir_.n_units, self.reservoir_.W_.dtype
        if state is None:
            state = np.zeros(self._n_columns, dtype=dtype)
            state[n_units:] = NO_TOKEN
        if not len(ids):
            return np.asarray(state)
        inputs = ids if self.features_ is None else self.features_.transform(ids)
        after = self.reservoir_._states(inputs, state[:n_units])[-1]
        last = append_tokens(state[n_units:].astype(np.int64), ids)
        return np.concatenate([after, last.astype(dtype)])

    def _next_probabilities(self, states: Sequence[Array]) -> Floats:
        return np.asarray(self.readout_.predict_proba(np.stack(states)), dtype=np.float64)

    def _next_log_probabilities(self, state: Array) -> Floats:
        return np.asarray(self.readout_.predict_log_proba(state[None])[0], dtype=np.float64)
