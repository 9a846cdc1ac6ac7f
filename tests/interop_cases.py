"""Small models and minimal pairs on which outside scorers are compared with ours."""

import json
from functools import cache
from pathlib import Path

import numpy as np
from small_models import as_of_gpt2

from esnlm import (
    ClassFactoredReadout,
    LanguageModel,
    LowRankReadout,
    MixtureOfExpertsReadout,
    ReducedRankSoftmaxReadout,
    Reservoir,
    RidgeReadout,
    SoftmaxReadout,
    SpectralWordFeatures,
    WordFeatures,
)
from esnlm.evaluation.minimal_pairs.scores import sentence_log_likelihoods

NOUNS = ("boy", "girl", "cat", "dog")
VERBS = ("sees", "chases", "feeds", "hears")


def sentences(n: int = 400, seed: int = 0) -> list[str]:
    """Sentences whose verbs agree with their nouns."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        plural = bool(rng.integers(2))
        noun, verb, other = rng.choice(NOUNS), rng.choice(VERBS), rng.choice(NOUNS)
        subject = f"the {noun}s" if plural else f"a {noun}"
        clause = f" who {rng.choice(VERBS)} the {rng.choice(NOUNS)}" if rng.random() < 0.3 else ""
        out.append(f"{subject}{clause} {verb[:-1] if plural else verb} the {other} .")
    return out


def minimal_pairs(n: int = 12) -> dict[str, list[tuple[str, str]]]:
    """Paradigm -> (good, bad) sentences; ties and unknown words among them."""
    rng = np.random.default_rng(1)
    number, order = [], []
    for _ in range(n):
        noun, verb, other = rng.choice(NOUNS), rng.choice(VERBS), rng.choice(NOUNS)
        number.append((f"a {noun} {verb} the {other} .", f"a {noun}s {verb[:-1]} the {other} ."))
        order.append((f"the {noun}s {verb[:-1]} the {other} .", f"{verb[:-1]} the the {noun}s ."))
    order.append(("the zebra sees a cat .", "the zebra see a gnu ."))
    order.append(("the dog sees .", "the dog sees ."))
    return {"number": number, "order": order}


def write_blimp(folder: Path) -> Path:
    """The minimal pairs as a folder like BLiMP's."""
    folder.mkdir()
    for name, pairs in minimal_pairs().items():
        rows = (
            {"sentence_good": good, "sentence_bad": bad, "UID": name, "field": "syntax"}
            for good, bad in pairs
        )
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text)
    return folder


@cache
def fitted(name: str) -> LanguageModel:
    """The model of a case, fitted."""
    reservoir, readout, options = CASES[name]()
    return LanguageModel(reservoir, readout, **{"tokenizer": "word"} | options).fit(sentences())


def _reservoir(**changes: object) -> Reservoir:
    settings: dict = {"leak_rate": ("uniform", 0.1, 1.0), "degree": 8, "random_state": 0}
    return Reservoir(40, **settings | changes)


CASES = {
    "ridge": lambda: (_reservoir(bias_scaling=0.3), RidgeReadout(), {}),
    "ridge with a floor": lambda: (_reservoir(), RidgeReadout(floor=0.01), {}),
    "softmax": lambda: (_reservoir(input_degree=5, bias_scaling=0.1), SoftmaxReadout(), {}),
    "softmax, rectifier": lambda: (
        _reservoir(activation="relu", spectral_radius=0.5, dtype="float64"),
        SoftmaxReadout(),
        {},
    ),
    "linear units, documents": lambda: (
        _reservoir(activation="identity", spectral_radius=0.5, topology="offsets"),
        RidgeReadout(),
        {"reset": "document"},
    ),
    "mixture": lambda: (
        _reservoir(),
        MixtureOfExpertsReadout(n_experts=3, max_iter=5, random_state=0),
        {},
    ),
    "linear mixture": lambda: (
        _reservoir(dtype="float64"),
        MixtureOfExpertsReadout(n_experts=2, experts="linear", max_iter=5, random_state=0),
        {},
    ),
    "factored, separate": lambda: (
        _reservoir(),
        ClassFactoredReadout(solver="separate", random_state=0),
        {},
    ),
    "factored, joint softmax": lambda: (
        _reservoir(),
        ClassFactoredReadout(solver="joint", random_state=0),
        {"features": WordFeatures(n_features=3, n_passes=2, random_state=0)},
    ),
    # float64: near the floor of ridge, rounding of float32 states is worth more than 1e-4 nats.
    "factored, joint ridge": lambda: (
        _reservoir(input_degree=5, dtype="float64"),
        ClassFactoredReadout(
            solver="joint",
            word_readout="ridge",
            class_readout=MixtureOfExpertsReadout(n_experts=2, random_state=0),
            random_state=0,
        ),
        {"features": WordFeatures(n_features=3, n_passes=2, random_state=0)},
    ),
    "factored, one class": lambda: (
        _reservoir(),
        ClassFactoredReadout(n_classes=1, solver="joint", word_readout="ridge"),
        {},
    ),
    "low rank": lambda: (
        _reservoir(),
        LowRankReadout(n_components=12, n_frequent=8, n_classes=3, random_state=0),
        {"features": SpectralWordFeatures(n_features=4, random_state=0)},
    ),
    "low rank, direct": lambda: (
        _reservoir(),
        LowRankReadout(
            n_components=12, n_frequent=8, n_classes=3, n_direct=2, n_ngrams=9, random_state=0
        ),
        {},
    ),
    "reduced rank": lambda: (_reservoir(), ReducedRankSoftmaxReadout(rank=5, max_iter=3), {}),
    "byte pairs": lambda: (
        _reservoir(),
        SoftmaxReadout(max_iter=3),
        {"tokenizer": as_of_gpt2(sentences())},
    ),
    "characters": lambda: (
        _reservoir(),
        RidgeReadout(),
        {"tokenizer": "char", "reset": "sentence"},
    ),
}


def sentence_scores(model: LanguageModel, texts: list[str]) -> np.ndarray:
    """Sum of log-probabilities (n,) of the tokens after BOS, without EOS."""
    return sentence_log_likelihoods(model, texts)
