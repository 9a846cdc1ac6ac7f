"""Sections on the reservoirs of models, and on samples of what models write."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from esnlm.models.language_model import LanguageModel
from esnlm.reporting import plots
from esnlm.reporting.page import Facts, Samples, Section, Text, six_digits
from esnlm.utils.arrays import Floats

_LAGS, _STATES = 200, 2000
# Entries of a vocabulary that is one of characters.
_CHARACTERS = 400
_SEEDS = (0, 1)


def diagnostics(models: Mapping[str, Any]) -> Section:
    """Measured radius, weights, timescales, saturation, dimensions and forgetting."""
    section = Section("reservoir", "The reservoir")
    distances: dict[str, Floats] = {}
    for name, model in models.items():
        if isinstance(model, LanguageModel):
            facts, distances[name] = _measured(model)
            section.blocks.append(Facts(name, [(key, six_digits(value)) for key, value in facts]))
    if distances:
        caption = (
            "Distance of two states that read the same tokens from different beginnings, as a share"
            " of the first distance: how fast the reservoir forgets where it began"
        )
        section.blocks.append(plots.plot(plots.decay(distances), caption))
        section.blocks.append(
            Text(
                f"States are those of {_STATES} tokens drawn evenly from the vocabulary, so that"
                " models compare; saturated are states beyond 0.95 in size. The effective dimension"
                " is the participation ratio of the variances along the principal components."
            )
        )
    return section


def _measured(model: LanguageModel) -> tuple[list[tuple[str, Any]], Floats]:
    """Facts of a reservoir, and the distances (lags,) of states that began apart."""
    reservoir = model.reservoir_
    n_units = int(reservoir.n_units)
    rates = np.asarray(reservoir.leak_rate_, dtype=np.float64)
    with np.errstate(divide="ignore"):
        times = -1 / np.log1p(-np.minimum(rates, 1.0))
    rng = np.random.default_rng(0)
    tokens = rng.integers(model.n_tokens_, size=_STATES)
    features = None if model.features_ is None else model.features_.embedding_
    features = None if features is None else features.astype(reservoir.W_.dtype)
    states = np.asarray(reservoir.transform(tokens, features=features), dtype=np.float64)
    start = rng.standard_normal(n_units).astype(reservoir.W_.dtype)
    other = reservoir.transform(tokens[:_LAGS], features=features, initial_state=start)
    apart = np.linalg.norm(np.asarray(other, dtype=np.float64) - states[:_LAGS], axis=1)
    apart = np.concatenate([[np.linalg.norm(start)], apart]) / np.linalg.norm(start)
    late = states[_LAGS:]
    centred = late - late.mean(axis=0)
    products = centred @ centred.T  # its eigenvalues are the variances, up to a factor
    return [
        ("units", n_units),
        ("topology", reservoir.topology),
        ("activation", reservoir.activation),
        ("spectral radius asked for", float(reservoir.spectral_radius)),
        ("spectral radius measured", float(reservoir.spectral_radius_)),
        ("largest singular value, by power iteration", _norm(reservoir.W_)),
        ("connections into a unit, mean", reservoir.W_.nnz / n_units),
        ("input scaling", float(reservoir.input_scaling)),
        ("leak rates: least, median, largest", _extremes(rates)),
        ("timescales in tokens: least, median, largest", _extremes(times)),
        ("mean size of a state", float(np.abs(late).mean())),
        ("saturated states", f"{100 * float((np.abs(late) > 0.95).mean()):.2f} %"),
        ("effective dimension", float(np.trace(products) ** 2 / (products**2).sum())),
    ], apart


def _norm(matrix: Any) -> float:
    """Largest singular value, by power iteration: a lower bound that is tight to some digits."""
    vector = np.random.default_rng(0).standard_normal(matrix.shape[1])
    value = 0.0
    for _ in range(200):
        length = np.linalg.norm(vector)
        if not length:
            return 0.0
        image = matrix @ (vector / length)
        value, vector = float(np.linalg.norm(image)), matrix.T @ image
    return value


def _extremes(values: Floats) -> str:
    return ", ".join(f"{value:.3g}" for value in np.quantile(values, [0, 0.5, 1]))


def samples(models: Mapping[str, Any]) -> Section:
    """Texts that each model writes from nothing, drawn and most probable."""
    section = Section("samples", "Samples")
    for name, model in models.items():
        if model.tokenizer_ is None:
            continue
        n_tokens = 400 if model.n_tokens_ < _CHARACTERS else 120
        title = f"{name}, drawn at temperature 1, seed"
        texts = {f"{title} {seed}": model.sample(n_tokens, random_state=seed) for seed in _SEEDS}
        greedy = model.sample(min(n_tokens, 60), temperature=0.0)
        texts[f"{name}, the most probable token each time"] = greedy
        section.blocks.append(Samples([(title, text.strip("\n")) for title, text in texts.items()]))
    if section.blocks:
        note = "Samples are the first that were drawn; none was chosen. Each begins with nothing."
        section.blocks.append(Text(note))
    return section
