"""Losses and accuracies of controls, and paired differences, by frequency, position, phenomenon.

All runs are resampled by the same draws, sentences for losses and pairs within their paradigms for
accuracies: a difference is paired, and its interval is narrower than those of its two terms.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from esnlm.evaluation import token_groups
from esnlm.evaluation.bootstrap import percentile_intervals, resampled_sums
from esnlm.evaluation.minimal_pairs.pairs import Pair
from esnlm.evaluation.token_groups import ALL, Judged, by_frequency, by_position
from esnlm.studies.controls.settings import CONTROLS
from esnlm.text.shards import Shards
from esnlm.text.shuffling import target_counts
from esnlm.utils.arrays import Array, Floats

VALUE_COLUMNS = (
    "control", "topology", "n_units", "seed", "measure", "by", "group", "n", "value", "lower",
    "upper",
)  # fmt: skip
DIFFERENCE_COLUMNS = (
    "control", "against", "topology", "n_units", "seed", "measure", "by", "group", "n",
    "difference", "lower", "upper",
)  # fmt: skip
MEAN = "mean"


def judged_tokens(
    train: Shards, held_out: Shards, scores: Sequence[Array], **options: Any
) -> Judged:
    """Losses in nats a token of the predicted tokens of held-out shards.

    ``scores``: the log-probabilities (T,) of each run; ``options`` are `resampled_sums`'.
    """
    stream = held_out.stream()
    marks = stream.predicted()
    tokens = np.asarray(stream.tokens)[marks]
    sentence, position = token_groups.sentences_and_positions(stream, marks)
    counts = target_counts(train.stream(), len(train.tokenizer))[tokens]
    groupings = by_frequency(counts), by_position(position)
    return token_groups.judged_tokens(scores, sentence, groupings, **options)


def judged_pairs(pairs: Sequence[Pair], credit: Floats, **options: Any) -> Judged:
    """Accuracies: means over paradigms of the credit (n_runs, n_pairs) of minimal pairs."""
    paradigms = np.array([f"{pair.phenomenon}\0{pair.paradigm}" for pair in pairs])
    names, places = np.unique(paradigms, return_inverse=True)
    rng = np.random.default_rng(options.pop("random_state", None))
    values, draws, sizes = [], [], np.bincount(places)
    for k, size in enumerate(sizes.tolist()):
        rows = np.ascontiguousarray(credit[:, places == k].T)
        values.append(rows.mean(axis=0))
        draws.append(resampled_sums(rows, random_state=rng, **options) / size)
    phenomena = np.array([name.split("\0")[0] for name in names])
    groups = [("all", ALL), *(("phenomenon", str(name)) for name in np.unique(phenomena))]
    members = [np.ones(len(names), bool), *(phenomena == name for _, name in groups[1:])]
    return Judged(
        "accuracy",
        groups,
        np.array([sizes[member].sum() for member in members]),
        np.stack([np.mean(np.array(values)[member], axis=0) for member in members], axis=-1),
        np.stack([np.mean(np.array(draws)[member], axis=0) for member in members], axis=-1),
    )


def value_rows(runs: Sequence[Mapping[str, Any]], judged: Judged) -> Iterator[dict[str, Any]]:
    """Rows of `VALUE_COLUMNS`: each seed of a control, and the mean over seeds where several are.

    ``runs`` say ``control``, ``topology``, ``n_units`` and ``seed``. Intervals (95 %) cover another
    draw of sentences or pairs, not other seeds.
    """
    for (control, topology, n_units), places in _by_control(runs).items():
        about = {"control": control, "topology": topology, "n_units": n_units}
        for seed, (ours,) in _seeds(places):
            rows = _rows(judged, judged.values[ours], judged.resampled[:, ours], "value")
            yield from (about | {"seed": seed} | row for row in rows)


def difference_rows(runs: Sequence[Mapping[str, Any]], judged: Judged) -> Iterator[dict[str, Any]]:
    """Rows of `DIFFERENCE_COLUMNS`: a control less what it is compared with, by the same draws.

    The topology is that of the model with coupling, the mean over seeds that of the seeds of both.
    """
    groups = _by_control(runs)
    for (control, own, n_units), places in groups.items():
        for (name, topology, size), others in groups.items():
            if name not in CONTROLS[control].against or size != n_units:
                continue
            if CONTROLS[control].coupled and own != topology:
                continue
            about = {"control": control, "against": name, "topology": topology, "n_units": size}
            for seed, (ours, theirs) in _seeds(places, others):
                values = judged.values[ours] - judged.values[theirs]
                draws = judged.resampled[:, ours] - judged.resampled[:, theirs]
                rows = _rows(judged, values, draws, "difference")
                yield from (about | {"seed": seed} | row for row in rows)


def _by_control(
    runs: Sequence[Mapping[str, Any]],
) -> dict[tuple[str, str, int], dict[Any, int]]:
    """Control, topology and units -> seed -> place of its run."""
    places: dict[tuple[str, str, int], dict[Any, int]] = {}
    for place, run in enumerate(runs):
        control = run["control"], run["topology"], run["n_units"]
        places.setdefault(control, {})[run["seed"]] = place
    return places


def _seeds(*places: Mapping[Any, int]) -> Iterator[tuple[Any, list[list[int]]]]:
    """Seeds that all have, and the mean over them where they are several, with places of runs."""
    seeds = [seed for seed in places[0] if all(seed in each for each in places)]
    for seed in seeds:
        yield seed, [[each[seed]] for each in places]
    if len(seeds) > 1:
        yield MEAN, [[each[seed] for seed in seeds] for each in places]


def _rows(judged: Judged, values: Floats, draws: Floats, name: str) -> Iterator[dict[str, Any]]:
    """Yield a row a group: the mean over runs of values (n_runs, n_groups), and its interval."""
    bounds = percentile_intervals(draws.mean(axis=1)).tolist()
    means, sizes = values.mean(axis=0).tolist(), judged.sizes.tolist()
    groups = zip(judged.groups, sizes, means, bounds, strict=True)
    for (by, group), n, value, (lower, upper) in groups:
        row = {"measure": judged.measure, "by": by, "group": group, "n": n}
        yield row | {name: value, "lower": lower, "upper": upper}
