"""The plot of the Shakespeare study: loss, overlap and times against trained parameters."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esnlm.experiments.common.figures import save
from esnlm.experiments.common.grid import Row, read_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Köster & Uchida, section III.1: test cross-entropy of their largest models, about 155 000
#: trained parameters, on another split of another Shakespeare text.
PUBLISHED = {
    "reservoir": (155_000, 1.81),
    "attention readout": (155_000, 1.73),
    "transformer": (155_000, 1.67),
}
# Okabe & Ito's palette: told apart by colour-blind readers.
_STYLES = {
    "windows, dense": ("#56B4E9", "D", "windows of 32, dense W"),
    "windows": ("#0072B2", "o", "windows of 32, sparse W"),
    "carried": ("#D55E00", "s", "carried state"),
    "gated": ("#009E73", "^", "carried state, a readout for each last character"),
    "kneser-ney": ("#888888", "x", "Kneser-Ney (order beside it)"),
}
_GREY = "#555555"
_MARKERS = {"reservoir": "v", "attention readout": "P", "transformer": "*"}


def plot_study(csv_path: Path, path: Path) -> None:
    """Draw the rows of the CSV into a PNG of three panels."""
    from matplotlib.figure import Figure

    rows = read_rows(csv_path)
    figure = Figure(figsize=(15, 5.6), layout="constrained")
    loss, overlap, times = figure.subplots(1, 3)
    _draw(loss, rows, "cross_entropy")
    for name, (count, value) in PUBLISHED.items():
        label = f"published: {name}, {value}"
        loss.plot(count, value, _MARKERS[name], color="black", markersize=8, label=label)
    loss.set_ylabel("test cross-entropy, nats a character")
    _draw(overlap, rows, "overlap_7_train", linestyle="-")
    _draw(overlap, rows, "overlap_8_train", linestyle="--", markerfacecolor="white")
    _draw_real(overlap, rows)
    overlap.set_ylabel("share of distinct n-grams in the training text")
    overlap.set_title("overlap: 7-grams filled, 8-grams open", loc="left", fontsize=10)
    _draw(times, rows, "fit_seconds", linestyle="-")
    _draw(times, rows, "seconds_per_character", linestyle="--", markerfacecolor="white")
    times.set_yscale("log")
    times.set_ylabel("seconds")
    title = "training filled; one generated character open"
    times.set_title(title, loc="left", fontsize=10)
    loss.set_title("loss", loc="left", fontsize=10)
    for axis in (loss, overlap, times):
        axis.set_xscale("log")
        axis.set_xlabel("trained parameters")
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = loss.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    save(figure, path)


def _draw(axis: "Axes", rows: Sequence[Row], column: str, **style: Any) -> None:
    for model, (colour, marker, name) in _STYLES.items():
        chosen = sorted(
            (row for row in rows if row["model"] == model and row[column] is not None),
            key=lambda row: row["n_parameters"],
        )
        if not chosen:
            continue
        joined = {"linestyle": "none"} if model == "kneser-ney" else {}
        axis.plot(
            [row["n_parameters"] for row in chosen],
            [row[column] for row in chosen],
            **{"color": colour, "marker": marker, "label": name} | style | joined,
        )
        if model == "kneser-ney" and column == "cross_entropy":
            for row in chosen:
                place = row["n_parameters"], row[column]
                axis.annotate(str(row["size"]), place, xytext=(5, 4), textcoords="offset points")


def _draw_real(axis: "Axes", rows: Sequence[Row]) -> None:
    for row in rows:
        if row["model"] == "real text":
            for n, line in ((7, "-"), (8, "--")):
                value = row[f"overlap_{n}_train"]
                axis.axhline(value, color=_GREY, linestyle=line, linewidth=1)
                axis.annotate(
                    f"test text, {n}-grams", (0.02, value), xycoords=("axes fraction", "data"),
                    xytext=(0, 3), textcoords="offset points", fontsize=8, color=_GREY,
                )  # fmt: skip
