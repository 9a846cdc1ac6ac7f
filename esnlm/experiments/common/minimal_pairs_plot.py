"""Accuracy by phenomenon as a plot, beside other models."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

_MARKERS = ("o", "s", "^", "v", "P", "X", "<", ">", "*", "p")
# Okabe & Ito's palette: told apart by colour-blind readers. Ours is the first.
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#555555")
_OVERALL = "overall"


def accuracy_plot(
    rows: Sequence[Mapping[str, Any]], others: Mapping[str, Mapping[str, float]]
) -> bytes:
    """A PNG of the rows of `tabulate`: a line a phenomenon, overall last, a mark a model.

    ``others`` maps names of other models to their accuracies, as `read_published` does.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ours = {row["phenomenon"]: row["accuracy"] for row in rows if row["level"] == "phenomenon"}
    overall = next(row for row in rows if row["level"] == _OVERALL)
    names = [*sorted(ours, key=ours.__getitem__, reverse=True), _OVERALL]
    ours[_OVERALL] = overall["accuracy"]
    figure = Figure(figsize=(8.0, 1.6 + 0.36 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    axis.axvline(50, color="#999999", linewidth=1, linestyle=":", label="chance")
    for k, (label, accuracies) in enumerate([(overall["model"], ours), *others.items()]):
        known = [(100 * accuracies[name], y) for y, name in enumerate(names) if name in accuracies]
        colour = _COLOURS[k % len(_COLOURS)]
        axis.plot(
            [x for x, _ in known],
            [y for _, y in known],
            marker=_MARKERS[k % len(_MARKERS)],
            linestyle="none",
            color=colour,
            markerfacecolor=colour if k == 0 else "none",
            markersize=8 if k == 0 else 6,
            zorder=3 if k == 0 else 2,
            label=label,
        )
    axis.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axis.invert_yaxis()
    axis.axhline(len(names) - 1.5, color="#BBBBBB", linewidth=0.8)
    axis.set_xlim(0, 102)
    axis.set_xlabel("pairs chosen rightly (%), ties counting half")
    axis.set_title("BLiMP by phenomenon", loc="left")
    axis.grid(axis="y", color="#E5E5E5", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()
