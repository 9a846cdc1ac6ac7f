"""Parts of a language model: checked, chosen by a recipe, and their penalty by held-out text."""

import math
from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple, Protocol

import numpy as np
from sklearn.base import clone

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
from esnlm.readouts.registry import BY_OPTION
from esnlm.readouts.sklearn.classifier import ClassifierReadout, is_foreign
from esnlm.text.corpus import TokenStream
from esnlm.text.shuffling import evenly_spaced
from esnlm.utils.memory import check_memory
from esnlm.utils.messages import phase, say
from esnlm.utils.validation import check_parameters

#: Tokens of a trial, and held-out tokens that are scored.
TRIAL_TOKENS, HELD_OUT_TOKENS = 1 << 17, 1 << 15
# Readouts whose penalty held-out text chooses in trials, for texts of at most so many tokens: of
# longer ones trials read a part, and fewer tokens want a larger penalty (reports/search).
_MOST_TOKENS = {"SoftmaxReadout": 1 << 20, "LowRankReadout": 1 << 18}
_LARGEST = 1e9


class ReservoirLike(Protocol):
    """Turns tokens into states; `esnlm.Reservoir` is one."""

    n_units: int

    def harvest(self, tokens: Any) -> Iterator[tuple[Any, ...]]:
        """Blocks of (states, next tokens) of a corpus."""

    def transform(self, X: Any) -> Any:
        """States of one sequence."""


class ReadoutLike(Protocol):
    """Turns states into distributions: a readout of this package, or a classifier."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from states (n, n_units) and next tokens (n,)."""

    def predict_proba(self, X: Any) -> Any:
        """Probabilities (n, n_classes) of states (n, n_units)."""


class Parts(NamedTuple):
    """What a `LanguageModel` is fitted with: parts of its constructor, or else of the recipe."""

    reservoir: Any
    readout: Any
    features: Any


def check_parts(model: Any) -> None:
    """Raise ValueError for unusable parts or options, or a recipe that has no effect."""
    readouts = (
        f"a readout of this package, such as RidgeReadout(), or {', '.join(BY_OPTION)}, or a"
        " classifier of scikit-learn with predict_proba"
    )
    is_named = isinstance(model.readout, str) and model.readout in BY_OPTION
    readout = None if is_named else model.readout
    if not isinstance(readout, type):
        readout = _as_readout(readout)
    for name, part, method, kind in (
        ("reservoir", model.reservoir, "harvest", "a Reservoir"),
        ("readout", readout, "fit_blocks", readouts),
        ("features", model.features, "transform", "WordFeatures or None"),
    ):
        if part is not None and (isinstance(part, type) or not hasattr(part, method)):
            is_node = type(part).__module__.startswith("reservoirpy.")
            hint = ": convert it by Reservoir.from_reservoirpy" if is_node else ""
            hint = f": write {part.__name__}()" if isinstance(part, type) else hint
            raise ValueError(f"{name} must be {kind}, got {part!r}{hint}")
    check_parameters(model)
    if model.recipe is not None and None not in (model.reservoir, model.readout) and not is_named:
        raise ValueError(
            f"recipe={model.recipe!r} has no effect beside reservoir and readout: leave out"
            " recipe, or one of these"
        )


def asked_settings(model: Any) -> dict[str, Any]:
    """Return the settings of the recipe that a model names."""
    if model.recipe is None:
        return {}
    options = {"readout": model.readout} if isinstance(model.readout, str) else {}
    return to_settings(read_recipe(model.recipe, options), of_model=True)


def choose_parts(model: Any) -> tuple[Parts, str, bool]:
    """Return a model's parts, what chose those left open, and whether the penalty is open."""
    is_named = model.readout is None or isinstance(model.readout, str)
    if not is_named and model.reservoir is not None:
        return Parts(model.reservoir, _new_readout(model.readout), model.features), "", False
    settings, seed = asked_settings(model), model.random_state
    if isinstance(model.readout, str):
        settings["readout"] = model.readout
    is_open = is_named and is_penalty_open(settings)
    characters = model.tokenizer_ is not None and model.tokenizer_.has_characters
    settings = default_settings(settings, model.n_tokens_, characters=characters)
    parts = Parts(
        make_reservoir(settings, seed),
        make_readout(settings, seed) if is_named else _new_readout(model.readout),
        make_features(settings["features"], seed),
    )
    if model.reservoir is not None:
        parts = parts._replace(reservoir=model.reservoir, features=model.features)
    elif model.features is not None:
        parts = parts._replace(features=model.features)
    recipe = model.recipe
    if recipe is None:
        recipe = "{}: {}".format(*choose_recipe(model.n_tokens_, characters=characters))
    return parts, recipe, is_open


def drawn_reservoir(parts: Parts, n_tokens: int) -> Any:
    """Return the reservoir of ``parts``, or a copy with weights; refuse another vocabulary's."""
    reservoir, _, features = parts
    n_inputs = n_tokens if features is None else int(features.n_features)
    n_units = int(reservoir.n_units)
    # Every readout has two Gram matrices and the sums of states by token.
    n_bytes = 16 * n_units**2 + 8 * n_units * n_tokens
    what = f"a readout of {n_units} units and {n_tokens} tokens"
    check_memory(what, n_bytes, "lower one of them")
    if not hasattr(reservoir, "W_") or reservoir._has_set_weights:
        reservoir = clone(reservoir).fit(n_inputs=n_inputs)
    if reservoir.n_inputs_ != n_inputs:
        raise ValueError(
            f"the reservoir has {reservoir.n_inputs_} inputs, expected {n_inputs}: draw"
            f" its weights with fit(n_inputs={n_inputs}), or give one without weights"
        )
    if hasattr(features, "embedding_") and len(features.embedding_) != n_tokens:
        raise ValueError(
            f"features are fitted for {len(features.embedding_)} tokens, expected {n_tokens}"
        )
    return reservoir


def fitted_parts(model: Any) -> Parts:
    """Return the fitted parts of a model's constructor; refuse those of other tokens."""
    reservoir, readout, features = model.reservoir, model.readout, model.features
    shape = None if features is None else np.shape(features.embedding_)
    if is_foreign(readout):
        sizes = model.n_tokens, model.tokenizer and len(model.tokenizer), shape and shape[0]
        readout = ClassifierReadout.of_fitted(
            readout, next((n for n in sizes if n), reservoir.n_inputs_)
        )
    n_tokens, n_inputs = model.n_tokens or len(readout.classes_), reservoir.n_inputs_
    if not np.array_equal(readout.classes_, np.arange(n_tokens)):
        raise ValueError(
            f"the readout must have the {n_tokens} tokens as its classes, got"
            f" {len(readout.classes_)} classes: give its partial_fit classes=range(V),"
            " as tokens that nothing predicts are classes, too"
        )
    if (n_tokens, n_inputs) != (shape or (n_tokens, n_tokens)):
        raise ValueError(f"a reservoir of {n_inputs} inputs does not read {n_tokens} tokens")
    return Parts(reservoir, readout, features)


def _as_readout(readout: Any) -> Any:
    """Return a classifier of another library in a readout, and any other readout as it is."""
    return ClassifierReadout(classifier=readout) if is_foreign(readout) else readout


def _new_readout(readout: Any) -> Any:
    """Return an unfitted copy: parameters of the given one may be set before the model predicts."""
    return clone(_as_readout(readout))


def settle_penalty(model: Any, stream: TokenStream, held_out: TokenStream | None) -> None:
    """Set the penalty of a `LanguageModel` by held-out text, for readouts and texts that gain."""
    most = _MOST_TOKENS.get(type(model._parts.readout).__name__, -1)
    if held_out is None or len(stream.tokens) > most:
        return
    losses = chosen_penalty(model, stream, held_out)
    best = next(iter(losses))
    model._parts.readout.set_params(alpha=best)
    others = "; ".join(f"{alpha:g}: {math.exp(loss):.4g}" for alpha, loss in losses.items())
    if model.verbose:
        say(f"chose alpha={best:g} (held-out perplexity by alpha: {others})")


def chosen_penalty(model: Any, stream: TokenStream, held_out: TokenStream) -> dict[float, float]:
    """Return held-out losses (nats a token) by penalty, the least loss first.

    The `LanguageModel` has read the corpus and is left as it is: copies of it learn from sentences
    spread evenly over the stream, with the readout's own penalty and with ten times as much, or as
    little, as long as that lowers the loss.
    """
    sample, judge = evenly_spaced(stream, TRIAL_TOKENS), evenly_spaced(held_out, HELD_OUT_TOKENS)
    readout, losses = model._parts.readout, dict[float, float]()

    def is_better(alpha: float) -> bool:
        trial = copy(model)
        trial._parts = model._parts._replace(readout=clone(readout).set_params(alpha=alpha))
        trial.verbose = False  # its bars would look like those of the fit itself
        with phase(f"trying alpha={alpha:g}", model.verbose):
            scores = trial._fit_tokens(sample, judge)._scores(judge)
        before = min(losses.values(), default=np.inf)
        losses[alpha] = -float(scores[judge.predicted()].mean())
        return losses[alpha] < before

    first = readout.alpha
    if first is None:
        first = readout._penalty(len(stream.tokens))
    is_better(float(first))
    for factor in (10.0, 0.1):
        alpha = first * factor
        while alpha <= _LARGEST and is_better(alpha):
            alpha *= factor
        if alpha > first * 10:  # more was better: less is not tried
            break
    return dict(sorted(losses.items(), key=lambda item: item[1]))
