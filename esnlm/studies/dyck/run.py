"""Train and judge one model of the Dyck experiment."""

import json
import math
import time
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from sklearn.utils import gen_batches

from esnlm.grammars.dyck import DyckGrammar, bracket_distances
from esnlm.reservoir.timescales import closest_inverse_gamma, ks_inverse_gamma
from esnlm.runs.grid import Row
from esnlm.studies.dyck.options import DyckOptions
from esnlm.utils.arrays import Array, Bools, Floats
from esnlm.utils.messages import progress_bar

_DATA_SEED = 0
#: Bins of length and of the largest distance, as in the authors' figure 2.
_N_BINS = 9
_AT_ONCE = 500
QUANTILES = np.linspace(0.025, 0.975, 39)
#: Says of each sequence whether all that the model says of it is right.
Judge: TypeAlias = Callable[[list[str]], Bools]
#: Columns of a row, what judges other sequences, and timescales.
Fit: TypeAlias = tuple[Row, Judge, Floats]


@lru_cache(maxsize=1)
def corpora(train: int, validation: int, test: int, max_length: int) -> list[list[str]]:
    """Shuffled distinct sequences for training, validation and test."""
    counts = train, validation, test
    _check_enough(sum(counts), max_length)
    grammar = DyckGrammar(max_length=max_length)
    sequences = grammar.sample(sum(counts), _DATA_SEED, distinct=True)
    order = np.random.default_rng(_DATA_SEED).permutation(len(sequences))
    return [[sequences[i] for i in part] for part in np.split(order, np.cumsum(counts)[:-1])]


def _check_enough(n_sequences: int, max_length: int) -> None:
    """Refuse to draw more than half of all sequences: the last ones would take for ever."""
    total = 0
    for n in range(1, max_length // 2 + 1):
        total += math.comb(2 * n, n) // (n + 1) * 2**n
        if total >= 2 * n_sequences:
            return
    raise ValueError(
        f"max_length must be more than {max_length}, which allows {total} sequences, too few for"
        f" {n_sequences} that differ"
    )


def run_model(options: DyckOptions, setting: Row) -> Row:
    """Train and judge the model of a setting: a row of ``dyck.csv``."""
    parts = corpora(options.train, options.validation, options.test, options.max_length)
    train, validation, test = parts
    fit = _reservoir if setting["readout"] else _lstm
    row, is_right, times = fit(options, parts, setting)
    start = time.perf_counter()
    right = is_right(test)
    score_seconds = time.perf_counter() - start
    alpha, distance = closest_inverse_gamma(times)
    lengths = np.array([len(sequence) for sequence in test])
    distances = np.array([bracket_distances(sequence).max() for sequence in test])
    return {
        **row,
        "right": float(right.mean()),
        "validation_right": float(is_right(validation).mean()),
        "score_seconds": score_seconds,
        "n_train_tokens": sum(map(len, train)),
        "n_test_tokens": int(lengths.sum()),
        "ks_alpha": ks_inverse_gamma(times, options.alpha),
        "closest_alpha": alpha,
        "ks_closest_alpha": distance,
        "right_by_length": shares(right, lengths, 2, options.max_length),
        "right_by_distance": shares(right, distances, 1, options.max_length - 1),
        "timescale_quantiles": json.dumps(np.quantile(times, QUANTILES).round(4).tolist()),
    }


def shares(right: Bools, sizes: Array, low: float, high: float) -> str:
    """JSON of ``[low, high, n_sequences, n_right]`` for nine bins of equal width.

    >>> shares(np.array([True, False]), np.array([2, 20]), 2, 20)
    '[[2.0, 4.0, 1, 1], ... [18.0, 20.0, 1, 0]]'
    """
    counts, edges = np.histogram(sizes, _N_BINS, (low, high))
    rights, _ = np.histogram(sizes[right], _N_BINS, (low, high))
    bounds = edges.round(3).tolist()
    rows = zip(bounds[:-1], bounds[1:], counts.tolist(), rights.tolist(), strict=True)
    return json.dumps([list(row) for row in rows])


def _lstm(options: DyckOptions, parts: list[list[str]], setting: Row) -> Fit:
    """Return columns, what judges sequences, and timescales of one of the LSTMs."""
    import torch

    from esnlm.torch.device import chosen_device, device_name
    from esnlm.torch.networks import dyck_lstm

    place = chosen_device(options.device)
    train_set, validation, test = (dyck_lstm.Brackets.of(part, place) for part in parts)
    torch.manual_seed(setting["seed"])
    alpha = options.alpha if setting["model"] == "mts" else None
    network = dyck_lstm.DyckLSTM(setting["n_units"], alpha).to(place)
    losses: list[tuple[float, float]] = []
    start = time.perf_counter()
    with progress_bar(True, total=options.passes, unit="pass", leave=False) as bar:

        def report(number: int, loss: float, held_out: float) -> None:
            losses.append((loss, held_out))
            bar.set_postfix_str(f"loss {loss:.5f}, held-out {held_out:.5f}", refresh=False)
            bar.update()

        dyck_lstm.train(
            network,
            train_set,
            validation,
            n_passes=options.passes,
            batch_size=options.batch_size,
            learning_rate=options.learning_rate,
            report=report,
        )
    row = {
        "fit_seconds": time.perf_counter() - start,
        "train_loss": losses[-1][0],
        "validation_loss": losses[-1][1],
        "passes_run": len(losses),
        "n_parameters": sum(p.numel() for p in network.parameters() if p.requires_grad),
        "device": device_name(place),
    }

    def is_right(sequences: list[str]) -> Bools:
        return dyck_lstm.right_sequences(network, dyck_lstm.Brackets.of(sequences, place))

    try:
        times = dyck_lstm.measured_timescales(network, test)
    except ValueError as error:
        raise ValueError(f"learning_rate must be lower: training diverged, {error}") from error
    return row, is_right, times


def _reservoir(options: DyckOptions, parts: list[list[str]], setting: Row) -> Fit:
    """Fit a readout on the states of a frozen reservoir, each sequence from the zero state."""
    from esnlm.studies.dyck.reservoirs import drive_of, fit_attention, fit_readout

    model, n_units, leak, seed = (setting[name] for name in ("model", "n_units", "leak", "seed"))
    start = time.perf_counter()
    drive, train = drive_of(model, n_units, leak, seed, tuple(parts[0]))
    if setting["readout"] == "attention":
        row, predict = fit_attention(options, seed, train)
    else:
        row, predict = fit_readout(setting["readout"], seed, train, drive.states(parts[1]))
    row |= {"fit_seconds": time.perf_counter() - start, "validation_loss": None}

    def is_right(sequences: list[str]) -> Bools:
        parts = (drive.states(sequences[at]) for at in gen_batches(len(sequences), _AT_ONCE))
        return np.concatenate([part.are_right(predict(part)) for part in parts])

    return row, is_right, drive.timescales()
