"""Networks trained on one corpus, side by side: a CSV row a run, a table and a plot."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from esnlm.experiments.common import minimal_pairs
from esnlm.experiments.common.grid import Row, read_rows, run_grid
from esnlm.experiments.common.provenance import code_version
from esnlm.experiments.common.subprocess_run import run_apart
from esnlm.experiments.networks.run import write_stream, write_tokenizer
from esnlm.storage.atomic import write_whole
from esnlm.text.corpus import TokenStream
from esnlm.text.tokenizers import Tokenizer

_KEY = ("model", "settings", "plan", "seed")
COLUMNS = (
    *_KEY,
    "size",
    "corpus",
    "vocabulary",
    "pairs",
    "n_parameters",
    "n_parameters_total",
    "n_parameters_nonzero",
    "n_train_tokens",
    "n_held_out_tokens",
    "n_steps",
    "held_out_nll",
    "held_out_perplexity",
    *minimal_pairs.COLUMNS,
    "train_seconds",
    "tokens_per_second",
    "score_seconds",
    "peak_memory_mib",
    "peak_rss_mib",
    "machine",
    "command",
    "commit",
)
# Okabe & Ito's palette: told apart by colour-blind readers.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#555555", "#000000")
_MARKERS = "osD^vP*X"


class Entry(NamedTuple):
    """A network by name, and those of its settings that are given."""

    model: str
    settings: Mapping[str, Any] = {}


def grid(
    entries: Iterable[Entry],
    sizes: Sequence[int],
    plan: Mapping[str, Any],
    seeds: int,
    n_tokens: int,
    *,
    one_text: bool = False,
) -> list[Row]:
    """The runs: each entry in settings of about so many trained parameters, or as it is given.

    The latter without sizes, and where what is given leaves no size to choose. Training is each
    network's recipe with ``plan`` over it; ``one_text``: nothing in the corpus tells sentences
    apart. Settings and plans are checked.

    Examples
    --------
    >>> (row,) = grid([Entry("aerc")], [15_000], {"epochs": 1}, seeds=1, n_tokens=60)
    >>> row["settings"], row["size"]
    ('{"n_hidden": 13, "n_units": 75}', 15000)
    """
    from esnlm.torch.networks.sizes import is_sized, settings_of_size
    from esnlm.torch.training.recipes import check_settings, plan_settings

    rows = []
    for model, given in entries:
        check_settings(model, given)
        chosen: list[tuple[int | None, Mapping[str, Any]]] = [(None, given)]
        if sizes and not is_sized(model, given):
            of_size = partial(settings_of_size, model, n_tokens=n_tokens, given=given)
            chosen = [(size, of_size(size)) for size in sizes]
        rows += [
            {
                "model": model,
                "settings": json.dumps(dict(settings), sort_keys=True),
                "plan": json.dumps(
                    plan_settings(model, settings, plan, one_text=one_text), sort_keys=True
                ),
                "seed": seed,
                "size": size,
            }
            for size, settings in chosen
            for seed in range(seeds)
        ]
    return rows


def run_comparison(
    rows: Sequence[Row],
    streams: Mapping[str, TokenStream],
    tokenizer: Tokenizer,
    out: Path,
    *,
    reset: str = "sentence",
    blimp: Path | None = None,
    device: str = "auto",
    command: str = "",
) -> list[Row]:
    """Run what ``compare.csv`` in ``out`` does not hold; tabulate and plot all rows of it.

    ``streams``: ``train`` and ``held_out``, of tokens that begin anew at each ``reset``. With
    ``blimp``, minimal pairs, each network judges them. A run that is interrupted goes on where
    it was.
    """
    judged = minimal_pairs.digest(blimp)
    shared = {
        "corpus": _digest(streams),
        "vocabulary": len(tokenizer),
        "pairs": None if judged is None else judged[:12],
    }
    made = {"command": command, "commit": code_version()}
    with tempfile.TemporaryDirectory() as folder:
        places = {name: str(Path(folder) / name) for name in streams}
        for name, stream in streams.items():
            write_stream(stream, Path(places[name]))
        places["tokenizer"] = str(Path(folder) / "tokenizer")
        write_tokenizer(tokenizer, Path(places["tokenizer"]))
        given = places | {
            "reset": reset,
            "blimp": None if blimp is None else str(blimp),
            "device": device,
        }
        done = run_grid(
            rows,
            partial(_run, given=given, made=made, out=out, env=dict(os.environ)),
            out / "compare.csv",
            key=_KEY,
            columns=COLUMNS,
            fixed=shared,
            jobs=1,
        )
    kept = read_rows(out / "compare.csv")
    write_whole(out / "compare.md", table(kept))
    plot(kept, out / "compare.png")
    return done


def _run(setting: Row, *, given: Row, made: Row, out: Path, env: dict[str, str]) -> Row:
    name = hashlib.sha256(json.dumps([setting[key] for key in _KEY]).encode()).hexdigest()[:12]
    places = {"checkpoints": str(out / "running" / f"{setting['model']}-{name}")}
    measured = run_apart("esnlm.experiments.networks.run", setting | given | places, env)
    return dict.fromkeys(minimal_pairs.COLUMNS) | made | measured


def _digest(streams: Mapping[str, TokenStream]) -> str:
    """What the runs of one CSV share: twelve digits of the SHA-256 of both texts' tokens."""
    digest = hashlib.sha256()
    for name in sorted(streams):
        for array in (streams[name].tokens, streams[name].starts):
            digest.update(b"|" if array is None else np.ascontiguousarray(array).data)
    return digest.hexdigest()[:12]


def table(rows: Sequence[Row]) -> str:
    """The rows in Markdown, by model and trained parameters."""
    head = (
        "model", "settings", "training", "seed", "trained parameters", "all parameters", "steps",
        "held-out nats a token", "perplexity", "BLiMP, %", "training s", "tokens/s", "machine",
    )  # fmt: skip
    lines = [head, ("---",) * len(head)]
    for row in sorted(rows, key=lambda row: (row["model"], row["n_parameters"], row["seed"])):
        lines.append(
            (
                row["model"],
                ", ".join(_told(json.loads(row["settings"]))) or "default",
                ", ".join(_told(_differing_plan(row, rows))),
                str(row["seed"]),
                f"{row['n_parameters']:,}",
                f"{row['n_parameters_total']:,}",
                f"{row['n_steps']:,}",
                f"{row['held_out_nll']:.4f}",
                f"{row['held_out_perplexity']:.3f}",
                "" if row["blimp"] is None else f"{100 * row['blimp']:.1f}",
                f"{row['train_seconds']:.0f}",
                f"{row['tokens_per_second']:,.0f}",
                row["machine"],
            )
        )
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _differing_plan(row: Row, rows: Iterable[Row]) -> dict[str, Any]:
    """What in the row's training is not so in all rows of its model."""
    plans = [json.loads(other["plan"]) for other in rows if other["model"] == row["model"]]
    plan = json.loads(row["plan"])
    return {
        name: value
        for name, value in plan.items()
        if any(name not in other or other[name] != value for other in plans)
    }


def _told(settings: Mapping[str, Any]) -> list[str]:
    """Settings as ``--models`` takes them."""
    told = []
    for name, value in settings.items():
        if isinstance(value, dict):
            told += [f"{name}.{inner}" for inner in _told(value)]
        else:
            told.append(f"{name}={value if isinstance(value, str) else json.dumps(value)}")
    return told


def plot(rows: Sequence[Row], path: Path) -> None:
    """Held-out loss against trained parameters and against seconds of training, as a PNG."""
    from matplotlib.ticker import EngFormatter

    from esnlm.experiments.common.figures import band, legend, panels, save

    figure, axes = panels(2)
    series = _series(rows)
    for axis, column in zip(axes, ("n_parameters", "train_seconds"), strict=True):
        for i, (name, some) in enumerate(series.items()):
            style = {"color": _COLOURS[i % 8], "marker": _MARKERS[i % 8]}
            for k, line in enumerate(_lines(some, column)):
                band(axis, line, **style, label="_" * (k > 0) + name)  # the first in the legend
        places = [row[column] for row in rows]
        if max(places) >= 10 * min(places):  # on less a logarithmic axis has no room for its labels
            axis.set_xscale("log")
        axis.set_ylabel("held-out loss, nats a token")
        axis.grid(alpha=0.25)
    axes[0].xaxis.set_major_formatter(EngFormatter(sep=""))
    axes[0].set_xlabel("trained parameters")
    axes[1].set_xlabel("seconds of training")
    legend(figure, axes[0], min(len(series), 3))
    save(figure, path)


def _series(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by model and, where trainings of one differ, by training: what a line may join."""
    series: dict[str, list[Row]] = {}
    for row in rows:
        differing = ", ".join(_told(_differing_plan(row, rows)))
        name = f"{row['model']}: {differing}" if differing else row["model"]
        series.setdefault(name, []).append(row)
    return series


def _lines(rows: Sequence[Row], column: str) -> list[dict[float, list[float]]]:
    """Means over seeds of the column -> losses of the seeds, a setting each: one line.

    Settings that share a place are points of their own: nothing orders them.
    """
    alike: dict[str, list[Row]] = {}
    for row in rows:
        alike.setdefault(row["settings"], []).append(row)
    points = [
        (float(np.mean([row[column] for row in group])), [row["held_out_nll"] for row in group])
        for group in alike.values()
    ]
    line = dict(points)
    return [line] if len(line) == len(points) else [dict([point]) for point in points]
