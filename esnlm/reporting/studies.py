"""A section for each study: the rows of its grid as a table, and its plot."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import pandas as pd
from matplotlib.figure import Figure

from esnlm.plots import figures
from esnlm.reporting import plots
from esnlm.reporting.contents import Contents, Rows, showing
from esnlm.reporting.page import Section, table

_NOT_IN_TABLES = ("command", "commit", "machine", "version", "checksum", "grammar")

#: Rows of a CSV, and all contents -> a figure and its caption; None where there is none to draw.
Drawing: TypeAlias = Callable[[Rows, Contents], tuple[Figure, str] | None]


class Study(NamedTuple):
    """How a kind of CSV is called, how it is drawn, what is shown first, and what in per cent."""

    title: str
    draw: Drawing = lambda rows, contents: None
    first: Sequence[str] = ()
    shares: Sequence[str] = ()


def sections(contents: Contents) -> list[Section]:
    """Return a section for each kind of study whose CSVs are there."""
    parts = [Section(kind.replace(" ", "-"), study.title) for kind, study in STUDIES.items()]
    for section, (kind, study) in zip(parts, STUDIES.items(), strict=True):
        for rows in contents.of(kind):
            with showing(rows):
                _add(section, rows, study, contents)
    return parts


def _add(section: Section, rows: Rows, study: Study, contents: Contents) -> None:
    """Add the plot and the table of a CSV."""
    if len(rows.table) and (drawing := study.draw(rows, contents)) is not None:
        section.blocks.append(plots.plot(drawing[0], f"{rows.name}: {drawing[1]}"))
    names = dict.fromkeys([*study.first, *map(str, rows.table)])
    heads = {name: name.replace("_", " ") for name in names if name in rows.table}
    heads = {name: head for name, head in heads.items() if name not in _NOT_IN_TABLES}
    kinds = dict.fromkeys(study.shares, "%")
    section.blocks.append(table(rows.name, rows.records(), heads, kinds=kinds, share=True))


def _elman(rows: Rows, contents: Contents) -> tuple[Figure, str]:
    from esnlm.studies.elman.plots import perplexity_figure

    beside = (each for each in contents.of("elman n-grams") if each.path.parent == rows.path.parent)
    ngrams = [row for each in beside for row in each.typed()]
    figure = perplexity_figure(rows.typed(), ngrams)
    return figure, "perplexity by size; bands are ranges over seeds"


def _natural(rows: Rows, _: Contents) -> tuple[Figure, str]:
    from esnlm.studies.natural.plots import PLACES, sweep_figure

    kind = rows.path.stem if rows.path.stem in PLACES else "size"
    figure = sweep_figure(kind, rows.typed())
    return figure, "loss and BLiMP beside the published figures of another corpus"


def _compare(rows: Rows, _: Contents) -> tuple[Figure, str]:
    from esnlm.studies.networks.plots import figure

    caption = "held-out loss of each network, by its parameters and by the time of its training"
    return figure(rows.typed()), caption


def _shakespeare(rows: Rows, _: Contents) -> tuple[Figure, str]:
    from esnlm.studies.shakespeare.plots import study_figure

    caption = "test loss, overlap with the training text and times, by trained parameters"
    return study_figure(rows.typed()), caption


def _dyck(rows: Rows, _: Contents) -> tuple[Figure, str]:
    from esnlm.studies.dyck.plots import dyck_figure

    return dyck_figure(rows.typed()), "sequences that are right, timescales of units"


def _trials(rows: Rows, _: Contents) -> tuple[Figure, str] | None:
    """Return a plot of the losses of complete trials and its caption; None without any."""
    runs = rows.numbers("trial", "nats").dropna(subset="nats")
    runs = runs[runs["state"] == "complete"].sort_values("trial")
    if runs.empty:
        return None
    figure, (axis,) = figures.panels(1, size=(8.0, 4.2))
    axis.plot(runs["trial"], runs["nats"], linestyle="none", label="trial", **figures.style(0))
    best: pd.Series[float] = runs["nats"].cummin()
    axis.step(runs["trial"], best, where="post", label="best so far", color=figures.ORANGE)
    axis.set(xlabel="trial", ylabel="held-out loss, nats a token")
    figures.legend(figure, axis, n_columns=2)
    return figure, "complete trials, and the best so far"


def _importance(rows: Rows, _: Contents) -> tuple[Figure, str]:
    runs = rows.numbers("importance").sort_values("importance")
    names = runs["parameter"] + runs["among"].map(lambda name: f" ({name})" if name else "")
    figure, (axis,) = figures.panels(1, size=(8.0, 1.2 + 0.34 * len(runs)))
    axis.barh(names, runs["importance"], color=figures.BLUE, height=0.6)
    axis.set_xlabel("share of the variance")
    return figure, "how much each setting matters"


#: Kind of CSV -> its study, in the order of the page.
STUDIES = {
    "controls": Study("Controls: runs", first=("control", "seed"), shares=("blimp",)),
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
