"""Tables in Markdown and a figure of what each control loses."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from esnlm.plots.figures import GREY, grouped_intervals, legend, panels, style
from esnlm.storage.results import markdown_table
from esnlm.studies.controls.comparison import MEAN
from esnlm.studies.controls.settings import CONTROLS

#: Measure -> factor, digits and name of what tables and plots show.
_SHOWN = {"nats": (1.0, 3, "nats a token"), "accuracy": (100.0, 1, "points of BLiMP")}
#: What tells comparisons apart, or controls, which are against nothing.
_KEY = ("control", "against", "topology", "n_units")
_PANELS = (("nats", "position"), ("nats", "frequency"), ("accuracy", "phenomenon"))


def tables(values: Sequence[Mapping[str, Any]], differences: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: each control, what it is compared with, and differences by group.

    Means over seeds with their interval over sentences or pairs; where there are several seeds,
    the least and the largest of theirs.
    """
    lines = ["# Controls", ""]
    lines += [f"- **{name}**: {control.says}" for name, control in CONTROLS.items()]
    whole, less = _pooled(values), _pooled(differences)
    kinds = [kind for kind in _SHOWN if kind in set(whole["measure"])]
    head = ["control", "topology", "units", *("nats a token", "BLiMP %")[: len(kinds)]]
    lines += ["", "## All tokens and pairs", ""]
    lines += _table(whole[whole["by"] == "all"], head, "measure", kinds)
    if less.empty:
        return "\n".join(lines) + "\n"
    lines += ["", "## Differences: a control less what it is compared with", ""]
    head = ["control", "less", "topology", "units"]
    units = [_SHOWN[kind][2] for kind in kinds]
    lines += _table(less[less["by"] == "all"], [*head, *units], "measure", kinds)
    for kind, by in (panel for panel in _PANELS if panel[0] in kinds):
        part = less[(less["measure"] == kind) & (less["by"] == by)]
        sizes = dict(zip(part["group"], part["n"], strict=True))
        lines += ["", f"## By {by}, {_SHOWN[kind][2]}", ""]
        names = [f"{group} ({size})" for group, size in sizes.items()]
        lines += _table(part, [*head, *names], "group", list(sizes))
    return "\n".join(lines) + "\n"


def _table(
    rows: pd.DataFrame, head: Sequence[str], across: str, columns: Sequence[str]
) -> list[str]:
    """Return a line for each comparison or control, a column for each value of ``across``."""
    key = [name for name in _KEY if name in rows]
    body = []
    for names, several in rows.groupby(key, sort=False):
        cells = {row[across]: _cell(row) for row in several.to_dict("records")}
        body.append([*names, *(cells.get(name, "") for name in columns)])
    return markdown_table(head, body)


def figure(differences: Sequence[Mapping[str, Any]]) -> Figure:
    """Differences to the full model: overall, by position, by frequency and by phenomenon.

    Means over seeds with their intervals; small marks are seeds. Overall shows every comparison,
    the others those of the first topology with the full model.
    """
    pooled = _pooled(differences)
    first = pooled[pooled["topology"] == pooled["topology"].iloc[0]]
    first = first[first["against"] == "full"]
    measured = [panel for panel in _PANELS if panel[0] in set(pooled["measure"])]
    drawing, axes = panels(1 + len(measured), size=(8.0, 8.4))
    _draw_whole(axes[0], pd.DataFrame(differences), pooled)
    where = {"position": "position in the sentence", "frequency": "occurrences in training"}
    for axis, (kind, by) in zip(axes[1:], measured, strict=True):
        scale, _, unit = _SHOWN[kind]
        part = first[(first["measure"] == kind) & (first["by"] == by)]
        groups = grouped_intervals(axis, part, "control", "difference", scale, "{} - full")
        names = [str(name).replace("_", " ") for name in groups]
        axis.axhline(0, color=GREY, linewidth=0.8)
        axis.set_xticks(range(len(names)), names, rotation=90 if by == "phenomenon" else None)
        axis.set(ylabel=f"difference, {unit}", xlabel=where.get(by, ""))
    legend(drawing, axes[1], n_columns=2)
    return drawing


def _draw_whole(axis: Any, table: pd.DataFrame, pooled: pd.DataFrame) -> None:
    """Every comparison's difference in nats, a line each."""
    key = ["control", "against", "topology"]
    rows = pooled[(pooled["measure"] == "nats") & (pooled["by"] == "all")]
    seeds = table[(table["measure"] == "nats") & (table["by"] == "all") & (table["seed"] != MEAN)]
    several = rows["topology"].nunique() > 1
    names = []
    for place, row in enumerate(rows.to_dict("records")):
        names.append(f"{row['control']} - {row['against']}" + several * f", {row['topology']}")
        bars = [[row["difference"] - row["lower"]], [row["upper"] - row["difference"]]]
        axis.errorbar([row["difference"]], [place], xerr=bars, capsize=3, **style(0))
        same = seeds[(seeds[key] == [row[name] for name in key]).all(axis=1)]
        axis.plot(same["difference"], [place] * len(same), "|", color=GREY, markersize=10)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.invert_yaxis()
    axis.axvline(0, color=GREY, linewidth=0.8)
    axis.set_xlabel("difference in held-out loss, nats a token")


def _pooled(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows of means over seeds, or of the one seed, with the range over seeds."""
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    names = [name for name in (*_KEY, "measure", "by", "group") if name in table]
    column = "difference" if "difference" in table else "value"
    seeds = table[table["seed"] != MEAN].groupby(names, sort=False)[column]
    ranges = seeds.agg(least="min", largest="max", n_seeds="size").reset_index()
    # The mean comes after the seeds, where they are several.
    return table.drop_duplicates(names, keep="last").merge(ranges, on=names)


def _cell(row: Mapping[Any, Any]) -> str:
    """``0.012 [0.010, 0.014]``, and the range over seeds where there are several."""
    scale, digits, _ = _SHOWN[row["measure"]]
    names = "difference" if "difference" in row else "value", "lower", "upper", "least", "largest"
    # Zero is added: there is no minus before a zero.
    values = (f"{round(scale * row[name], digits) + 0.0:.{digits}f}" for name in names)
    value, lower, upper, least, largest = values
    interval = f"{value} [{lower}, {upper}]"
    return interval if row["n_seeds"] < 2 else f"{interval}; {least} to {largest}"
