"""Köster & Uchida's single reservoir: every prediction from 32 characters and a zero state."""

from typing import Any

import numpy as np

from esnlm.models.language_model import LanguageModel
from esnlm.models.sampling import SamplingOptions
from esnlm.reservoir.reservoir import Reservoir
from esnlm.text.boundaries import needed
from esnlm.text.corpus import TokenStream
from esnlm.utils.arrays import Array, Floats, Ints64

#: Characters read before each prediction, from a zero state.
WINDOW = 32
#: Dimensions of the frozen embedding of a character.
EMBEDDING = 16
#: Gaussian weights are divided by the root of their number and this.
_DIVISOR = 0.9
_WINDOWS_AT_ONCE = 1 << 12


def published_reservoir(
    n_units: int, n_tokens: int, *, degree: int | None = None, random_state: int = 0
) -> Reservoir:
    """Return the authors' reservoir: ``W = randn / sqrt(N) / 0.9``, no leak, no bias.

    A character drives it by a frozen Gaussian embedding of 16 dimensions and ``W_in = randn /
    sqrt(16) / 0.9``. With ``degree``, W has that many Gaussian weights a unit and a spectral
    radius of 1 / 0.9, that of the dense one in the limit.

    >>> reservoir = published_reservoir(50, 30)
    >>> reservoir.W_.nnz, reservoir.W_in_.shape, int(np.linalg.matrix_rank(reservoir.W_in_))
    (2500, (50, 30), 16)
    """
    rng = np.random.default_rng(random_state)
    embedding = rng.standard_normal((n_tokens, EMBEDDING))
    inputs = rng.standard_normal((n_units, EMBEDDING)) / np.sqrt(EMBEDDING) / _DIVISOR
    if degree is None:
        reservoir = Reservoir(n_units, random_state=random_state)
        recurrent: Any = rng.standard_normal((n_units, n_units)) / np.sqrt(n_units) / _DIVISOR
    else:
        reservoir = Reservoir(
            n_units, degree=degree, spectral_radius=1 / _DIVISOR, random_state=random_state
        )
        recurrent = reservoir.fit(n_inputs=n_tokens).W_
    return reservoir.set_weights(
        recurrent, inputs @ embedding.T, np.zeros(n_units, np.float32), np.ones(n_units, np.float32)
    )


def by_windows(model: LanguageModel, tokens: Array, ends: Ints64) -> tuple[Floats, float]:
    """Predict each of ``tokens[ends]`` from its window, and compare the states to carried ones.

    Returns the log-probabilities (n,) of ``ends`` (n,), and the largest difference of a unit from
    a state that is carried through the whole text of ``tokens`` (T,).
    """
    if len(ends) == 0 or ends.min() < WINDOW or ends.max() >= len(tokens):
        raise ValueError(f"ends must lie in [{WINDOW}, {len(tokens)}) and be at least one")
    carried = model.reservoir_.transform(tokens[: int(ends[: _WINDOWS_AT_ONCE // 8][-1])])
    logs = np.empty(len(ends))
    difference = 0.0
    for first in range(0, len(ends), _WINDOWS_AT_ONCE):
        part = ends[first : first + _WINDOWS_AT_ONCE]
        pieces = np.concatenate([tokens[end - WINDOW : end + 1] for end in part])
        starts = np.arange(len(part)) * (WINDOW + 1)
        stream = TokenStream(pieces, starts, np.array([0, len(pieces)]))
        blocks = model._states.blocks(stream, washout=WINDOW - 1)
        for states, following, positions in blocks.with_positions():
            rows = first + positions // (WINDOW + 1)
            logs[rows] = model.readout_.predict_log_proba_of(states, following)
            inside = ends[rows] <= len(carried)
            if inside.any():
                beside = carried[ends[rows][inside] - 1]
                difference = max(difference, float(np.abs(states[inside] - beside).max()))
    return logs, difference


def drawn_by_windows(model: LanguageModel, prompt: str, n_tokens: int, seed: int) -> str:
    """Sample ``n_tokens`` characters, reading the window before each from a zero state."""
    tokenizer = needed(model.tokenizer_)
    tokens = [int(token) for token in tokenizer.encode(prompt)]
    before, choice = len(tokens), SamplingOptions(random_state=seed)
    for _ in range(n_tokens):
        state = model.reservoir_.transform(np.array(tokens[-WINDOW:]))[-1]
        tokens.append(choice.draw(model.readout_.predict_log_proba(state[None])[0]))
    return str(tokenizer.decode(tokens[before:]))
