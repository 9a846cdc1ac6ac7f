"""A section for each study: the rows of its grid as a table, and its plot."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from esnlm.plots import figures
from esnlm.reporting import plots
from esnlm.reporting.found import Found, Rows
from esnlm.reporting.losses import numbers
from esnlm.reporting.page import Block, Section, table

_NOT_IN_TABLES = ("command", "commit", "machine", "version", "checksum", "grammar")
_TEXT = ("settings", "options", "plan", "seed", "leak", "model", "readout", "tokenizer")


class Study(NamedTuple):
    """How a kind of CSV is called, what is shown first, and how it is drawn, if it is."""

    title: str
    draw: Callable[[Rows, Found], tuple[Figure, str] | None] = lambda rows, found: None
    first: Sequence[str] = ()
    shares: Sequence[str] = ()


def sections(found: Found) -> list[Section]:
    """Return a section for each kind of study whose CSVs are there."""
    made = []
    for kind, study in STUDIES.items():
        section = Section(kind.replace(" ", "-"), study.title)
        for rows in found.of(kind):
            section.blocks += _blocks(rows, study, found)
        made.append(section)
    return made


def _blocks(rows: Rows, study: Study, found: Found) -> list[Block]:
    """Return the plot of a CSV, if its study has one, and its table."""
    made: list[Block] = []
    drawn = study.draw(rows, found) if len(rows.table) else None
    if drawn is not None:
        figure, caption = drawn
        made.append(plots.plot(figure, f"{rows.name}: {caption}"))
    columns = [*study.first, *(str(c) for c in rows.table if c not in study.first)]
    columns = [c for c in columns if c in rows.table and c not in _NOT_IN_TABLES]
    kinds = dict.fromkeys(_TEXT, "text") | dict.fromkeys(study.shares, "%")
    heads = {column: column.replace("_", " ") for column in columns}
    made.append(table(rows.name, rows.table.to_dict("records"), heads, kinds=kinds))
    return made


def _records(runs: pd.DataFrame) -> list[dict[Any, Any]]:
    return runs.to_dict("records")


def _elman(rows: Rows, found: Found) -> tuple[Figure, str]:
    """Return a plot of perplexity by units, with oracle and n-grams, and its caption."""
    runs = numbers(rows, "n_units", "perplexity", "oracle_perplexity", "features")
    figure = plots.lines(
        runs, "n_units", "perplexity", ["readout", "features"],
        ("units of the reservoir", "perplexity on the second corpus"),
    )  # fmt: skip
    axis = figure.axes[0]
    levels = [("oracle", float(runs["oracle_perplexity"].mean()))]
    beside = [each for each in found.of("elman n-grams") if each.path.parent == rows.path.parent]
    for each in beside:
        means = numbers(each, "order", "perplexity").groupby("order")["perplexity"].mean()
        levels += [(f"{order:g}-gram", value) for order, value in means.items()
                   if order in (2, 3, 4)]  # fmt: skip
    values = [*runs["perplexity"], *(value for _, value in levels)]
    axis.set_ylim(0.97 * min(values), 1.02 * max(values))
    figures.levels(axis, levels)
    return figure, "perplexity by size; bands are ranges over seeds"


def _natural(rows: Rows, found: Found) -> tuple[Figure, str]:
    from esnlm.runs.grid import typed_rows
    from esnlm.studies.natural.plots import PLACES, sweep_figure

    stem = rows.path.stem
    kind = stem if stem in PLACES else "size"
    figure = sweep_figure(kind, typed_rows(rows.table))
    return figure, "loss and BLiMP beside the published figures of another corpus"


def _compare(rows: Rows, found: Found) -> tuple[Figure, str]:
    runs = numbers(rows, "held_out_nll").dropna(subset="held_out_nll")
    names = [f"{model} {settings}"[:60] for model, settings in
             zip(runs["model"], runs["settings"], strict=True)]  # fmt: skip
    figure = plots.dots(names, runs["held_out_nll"].to_list(), "held-out loss, nats a token")
    return figure, "held-out loss of each network"


def _shakespeare(rows: Rows, found: Found) -> tuple[Figure, str]:
    runs = numbers(rows, "cross_entropy", "n_parameters")
    figure = plots.lines(runs, "n_parameters", "cross_entropy", ["model"],
                         ("trained parameters", "test loss, nats a character"))  # fmt: skip
    return figure, "test loss by trained parameters"


def _dyck(rows: Rows, found: Found) -> tuple[Figure, str]:
    runs = numbers(rows, "right")
    names = [f"{r['model']}, seed {r['seed']}" for r in _records(runs)]
    shares = (100 * runs["right"]).to_list()
    return plots.dots(names, shares, "sequences right, %"), "sequences of brackets that are right"


def _trials(rows: Rows, found: Found) -> tuple[Figure, str] | None:
    """Return a plot of the losses of complete trials and its caption; None without any."""
    runs = numbers(rows, "trial", "nats").dropna(subset="nats")
    runs = runs[runs["state"] == "complete"].sort_values("trial")
    if runs.empty:
        return None
    made, (axis,) = figures.panels(1, size=(8.0, 4.2))
    axis.plot(runs["trial"], runs["nats"], linestyle="none", label="trial", **figures.style(0))
    best: pd.Series[float] = runs["nats"].cummin()
    axis.step(runs["trial"], best, where="post", label="best so far", color=figures.ORANGE)
    axis.set(xlabel="trial", ylabel="held-out loss, nats a token")
    figures.legend(made, axis, n_columns=2)
    return made, "complete trials, and the best so far"


def _importance(rows: Rows, found: Found) -> tuple[Figure, str]:
    runs = numbers(rows, "importance").sort_values("importance", ascending=False)
    names = [r["parameter"] + (f" ({r['among']})" if r["among"] else "") for r in _records(runs)]
    return plots.dots(names, runs["importance"].to_list(), "share of the variance"), (
        "how much each setting matters"
    )


#: Kind of CSV -> its study, in the order of the page.
STUDIES = {
    "controls": Study("Controls: runs", lambda rows, found: None, ("control", "seed"), ("blimp",)),
    "natural": Study(
        "Reservoirs on natural language",
        _natural,
        ("n_units", "connectivity", "leak", "seed", "nll_per_token", "perplexity", "blimp"),
        ("blimp",),
    ),
    "elman": Study(
        "Elman's grammar",
        _elman,
        ("readout", "features", "n_units", "seed", "perplexity", "cosine", "oracle_perplexity"),
    ),
    "elman n-grams": Study("Elman's grammar: n-grams"),
    "compare": Study(
        "Networks side by side",
        _compare,
        ("model", "settings", "seed", "held_out_nll", "held_out_perplexity", "blimp"),
        ("blimp",),
    ),
    "shakespeare": Study("Shakespeare by characters", _shakespeare, ("model", "size")),
    "dyck": Study("Nested brackets", _dyck, ("model", "n_units", "seed", "right"), ("right",)),
    "trials": Study("Search: trials", _trials, ("trial", "state", "nats", "perplexity")),
    "importance": Study("Search: what matters", _importance),
    "benchmark": Study("Benchmarks", first=("setting", "ours", "peer", "ratio", "unit")),
    "table": Study("Other tables"),
}
