"""Fit and score one readout or n-gram model on Elman's grammar."""

import hashlib
import inspect
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.base import clone
from sklearn.neural_network import MLPClassifier

from esnlm.evaluation.metrics import cosine_similarity, perplexity
from esnlm.features.online import WordFeatures
from esnlm.features.spectral import SpectralWordFeatures
from esnlm.grammars.elman import ElmanGrammar
from esnlm.ngrams.kneser_ney import KneserNey
from esnlm.readouts.base.blocks import ArrayBlocks
from esnlm.readouts.base.readout import StreamingReadout
from esnlm.readouts.class_based.factored import ClassFactoredReadout
from esnlm.readouts.linear.ridge import RidgeReadout
from esnlm.readouts.mixture.mixture import MixtureOfExpertsReadout
from esnlm.readouts.sklearn.classifier import ClassifierReadout
from esnlm.readouts.softmax.softmax import SoftmaxReadout
from esnlm.reservoir.reservoir import Reservoir
from esnlm.studies.elman import READOUTS
from esnlm.studies.elman.assignments import OF_CONTEXTS, context_experts, word_clusters
from esnlm.studies.elman.experts import ExpertsTable
from esnlm.studies.elman.presets import Settings
from esnlm.studies.elman.states import HELD_OUT, Corpora, drive, make_corpora
from esnlm.utils import __version__
from esnlm.utils.arrays import Array, Floats, Ints, Tokens
from esnlm.utils.validation import OneOf

#: Readouts that stop by those sentences, and are not trained on them.
STOPPED = ("moe", "mlp")
#: Of the network: most passes over the rows, and how many without a gain lower its rate.
PASSES, PATIENCE = 60, 3


_PARTS = Reservoir, WordFeatures, SpectralWordFeatures, KneserNey, ElmanGrammar


def version() -> str:
    """Return the version and a digest of defaults that rows depend on and do not name."""
    signatures = map(inspect.signature, _PARTS)
    parts = {
        "held_out": HELD_OUT,
        "parts": [{n: repr(p.default) for n, p in s.parameters.items()} for s in signatures],
        "readouts": [make_readouts(name, Settings(), 0) for name in READOUTS],
    }
    text = json.dumps(
        parts, default=lambda r: [type(r).__name__, r.get_params(deep=False)], sort_keys=True
    )
    return f"{__version__}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def make_readouts(name: str, settings: Settings, seed: int) -> list[StreamingReadout]:
    """Unfitted readouts of a name in `READOUTS`, one for each penalty to choose from."""
    OneOf(READOUTS).check("readout", name)
    softmax = [SoftmaxReadout(alpha=alpha) for alpha in settings.penalties]
    network = MLPClassifier(
        settings.hidden,
        alpha=settings.hidden_alpha,
        learning_rate_init=3e-3,
        max_iter=PASSES,
        random_state=seed,
    )
    mixture = [MixtureOfExpertsReadout(n_experts=settings.experts, random_state=seed)]
    factored = [
        ClassFactoredReadout(
            n_classes=settings.experts,
            clustering=settings.assignment,
            class_readout=part,
            word_readout=part,
            random_state=seed,
        )
        for part in softmax
    ]
    kinds: dict[str, list[Any]] = {
        "ridge": [RidgeReadout()],
        "softmax": softmax,
        "moe": mixture,
        "factored": mixture if settings.assignment in OF_CONTEXTS else factored,
        "mlp": [ClassifierReadout(classifier=network, patience=PATIENCE)],
    }
    return kinds[name]


def fit_readout(
    name: str,
    settings: Settings,
    seed: int,
    states: Array,
    corpora: Corpora,
    embedding: Floats | None = None,
) -> StreamingReadout:
    """Fit the readout of this name on the training corpus.

    Among several penalties the one that gives the last tenth of the training sentences the
    highest likelihood is fitted again on all of them. Mixtures and network are not trained on
    those sentences: they decide when it stops. ``embedding`` (V, F) are the word features, by
    which the supervised mixture clusters words.
    """
    candidates = make_readouts(name, settings, seed)
    assignment = None
    if name == "factored" and settings.assignment in OF_CONTEXTS:
        assignment = context_experts(settings.assignment, corpora, settings.experts)
    elif name == "factored" and settings.assignment == "clusters" and embedding is not None:
        clusters = word_clusters(embedding, settings.experts, seed)
        for candidate in candidates:
            candidate.set_params(n_classes=None, clustering=clusters)
    best, stop = 0, name in STOPPED or assignment is not None
    if stop or len(candidates) > 1:
        fits, nats = held_out_fits(candidates, stop, states, corpora, assignment)
        best = int(np.argmin(nats))
        if stop:
            return fits[best]
    classes = np.arange(len(corpora.grammar.vocabulary))
    return candidates[best].fit_blocks(ArrayBlocks(states, corpora.train[1:]), classes)


def held_out_fits(
    candidates: Sequence[StreamingReadout],
    stop: bool,
    states: Array,
    corpora: Corpora,
    assignment: Ints | None = None,
) -> tuple[list[StreamingReadout], list[float]]:
    """Readouts fitted without the last tenth of the training sentences, and its nats a token.

    ``assignment`` (T - 1,) are the experts of the training words.
    """
    targets, cut = corpora.train[1:], corpora.held_out - 1
    classes = np.arange(len(corpora.grammar.vocabulary))
    part = ArrayBlocks(states[:cut], targets[:cut])
    held_out = ArrayBlocks(states[cut:], targets[cut:])
    options: dict[str, Any] = {"held_out": held_out if stop else None}
    if assignment is not None:
        options["assignment"] = assignment[:cut]
    fits = [clone(each).fit_blocks(part, classes, **options) for each in candidates]
    nats = [-float(fit.predict_log_proba_of(held_out.X, held_out.y).mean()) for fit in fits]
    return fits, nats


def run_readout(
    settings: Settings, setting: Mapping[str, Any], *, experts: ExpertsTable | None = None
) -> dict[str, Any]:
    """Fit and score one readout: a row of ``elman.csv``. Write ``experts`` if they are its own.

    ``fit_seconds`` is the time of word features, training states and readout, ``score_seconds``
    that of test states and predictions. Shared work counts for each readout.
    """
    seed = setting["seed"]
    corpora = make_corpora(settings, seed)
    driven = drive(settings, setting["n_units"], setting["features"], seed)
    driven_at = time.perf_counter()
    name, embedding = setting["readout"], driven.embedding
    readout = fit_readout(name, settings, seed, driven.train, corpora, embedding)
    fitted_at = time.perf_counter()
    row = _test_scores(readout.predict_proba(driven.test), corpora)
    scored_at = time.perf_counter()
    if experts is not None and experts.setting == setting:
        experts.write(readout, driven.test, corpora)
    trained = _scores(readout.predict_proba(driven.train), corpora.train[1:], corpora.train_oracle)
    part: Any = getattr(readout, "word_readout", getattr(readout, "classifier", readout))
    return {
        **row,
        **{f"train_{name}": value for name, value in trained.items()},
        "n_parameters": readout.n_parameters_ + (0 if embedding is None else embedding.size),
        # Ridge's own choice, or that of the softmax parts, or of the network.
        "alpha": float(getattr(part, "alpha_", part.alpha)),
        "drive_seconds": round(driven.train_seconds, 3),
        "fit_seconds": round(driven.train_seconds + fitted_at - driven_at, 3),
        "score_seconds": round(driven.test_seconds + scored_at - fitted_at, 3),
    }


def run_ngram(settings: Settings, setting: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score one interpolated Kneser-Ney model: a row of ``ngrams.csv``."""
    corpora = make_corpora(settings, setting["seed"])
    order, tokens = setting["order"], corpora.test
    model = KneserNey(order=order, n_tokens=len(corpora.grammar.vocabulary)).fit(corpora.train)
    predicted = _distributions(model, tokens)
    return _test_scores(predicted, corpora) | {"n_parameters": model.n_parameters_}


def _distributions(model: KneserNey, tokens: Tokens) -> Floats:
    """Return the probabilities (T - 1, V) of all words after each token but the last."""
    length = max(model.order - 1, 1)
    windows, places = np.unique(
        sliding_window_view(tokens[:-1], length), axis=0, return_inverse=True
    )
    short = [tokens[:end] for end in range(1, length)]
    rows = model.next_token_distributions([*short, *windows])
    return rows[np.append(np.arange(len(short)), len(short) + places)]


def _test_scores(predicted: Array, corpora: Corpora) -> dict[str, Any]:
    n_tokens = {"n_train_tokens": len(corpora.train) - 1, "n_test_tokens": len(corpora.test) - 1}
    return n_tokens | _scores(predicted, corpora.test[1:], corpora.test_oracle)


def _scores(predicted: Array, targets: Tokens, oracle: Floats) -> dict[str, float]:
    """Perplexity and cosine of predictions (T, V), and the perplexity of the oracle."""
    at = np.arange(len(targets))
    with np.errstate(divide="ignore"):
        return {
            "perplexity": perplexity(np.log(predicted[at, targets], dtype=np.float64)),
            "cosine": cosine_similarity(predicted, oracle),
            "oracle_perplexity": perplexity(np.log(oracle[at, targets])),
        }
