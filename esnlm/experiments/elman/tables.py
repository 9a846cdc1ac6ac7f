"""The tables of the Elman experiment as markdown: nothing in them is typed by hand."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev

from esnlm.experiments.common.grid import Row
from esnlm.storage.atomic import write_whole


def write_summary(rows: Sequence[Row], ngrams: Sequence[Row], path: Path) -> None:
    """Write mean ± standard deviation over seeds, times, and the figures to reach."""
    oracle = mean(row["oracle_perplexity"] for row in rows)
    seeds = len({row["seed"] for row in rows})
    first = rows[0]
    lines = [
        "# Elman grammar: results",
        "",
        f"{first['train_sentences']} + {first['test_sentences']} sentences, {seeds} seeds; "
        f"mean ± standard deviation over seeds. Oracle perplexity {oracle:.3f}. "
        "*F*: dimensions of the word features, 0 for one-hot words.",
        "",
        "## Perplexity on the second corpus",
        "",
        *_by_size(rows, "perplexity", 3),
        "",
        "## Perplexity above the oracle, per cent",
        "",
        *_table(rows, lambda run: f"{100 * (mean(_ratios(run)) - 1):.1f}"),
        "",
        "## Cosine to the exact distribution, second corpus",
        "",
        *_by_size(rows, "cosine", 2),
        "",
        "## Cosine to the exact distribution, first corpus (training)",
        "",
        *_by_size(rows, "train_cosine", 2),
        "",
        "## Perplexity on the first corpus (training)",
        "",
        *_by_size(rows, "train_perplexity", 3),
        "",
        "## Interpolated Kneser-Ney n-grams",
        "",
        *_ngram_table(ngrams),
        "",
        "## Seconds to fit (features, states and readout; one thread)",
        "",
        *_by_size(rows, "fit_seconds", 1),
        "",
        "## Trained parameters",
        "",
        *_table(rows, lambda run: f"{run[0]['n_parameters']}"),
        "",
        "## Figures to reach",
        "",
        "| figure | target | got | met |",
        "|---|---|---|---|",
        *(
            f"| {what} | {target} | {got} | {met} |"
            for what, target, got, met in targets(rows, ngrams)
        ),
        "",
    ]
    write_whole(path, "\n".join(lines))


def targets(rows: Sequence[Row], ngrams: Sequence[Row]) -> list[tuple[str, str, str, str]]:
    """(figure, target, got, met) for those targets whose settings are in the grid.

    Ratios are taken seed by seed and then averaged.
    """
    found = []
    lowest = min(row["perplexity"] / row["oracle_perplexity"] for row in rows)
    found.append(("lowest perplexity / oracle, any run", "above 1", lowest, lowest > 1))
    trigram = {row["seed"]: row["perplexity"] for row in ngrams if row["order"] == 3}
    large = [row for row in rows if row["n_units"] >= 100 and row["seed"] in trigram]
    if large:
        worst = max(large, key=lambda row: row["perplexity"] / trigram[row["seed"]])
        got = worst["perplexity"] / trigram[worst["seed"]]
        name = f"{worst['readout']}, F {worst['features']}, {worst['n_units']} units"
        found.append((f"worst run from 100 units / trigram ({name})", "below 1", got, got < 1))
    small = _best(row for row in rows if (row["readout"], row["n_units"]) == ("moe", 25))
    if small:
        found.append((f"mixture, 25 units / oracle ({small[0]})", "<= 1.10", *_most(small, 1.10)))
    best = _best(rows)
    if best:
        found.append((f"best setting / oracle ({best[0]})", "<= 1.03", *_most(best, 1.03)))
    for features in sorted({row["features"] for row in rows}):
        gain = _gain(rows, features)
        if gain is not None:
            what = f"softmax / ridge, 100 units, F {features}"
            found.append((what, "<= 0.90", gain, gain <= 0.90))
    return [
        (what, target, f"{got:.4f}", "yes" if met else "no") for what, target, got, met in found
    ]


def _most(best: tuple[str, float], most: float) -> tuple[float, bool]:
    return best[1], best[1] <= most


def _best(rows: Iterable[Row]) -> tuple[str, float] | None:
    """The setting whose mean ratio to the oracle is least, and that ratio."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        name = f"{row['readout']}, F {row['features']}, {row['n_units']} units"
        groups.setdefault(name, []).append(row)
    means = {name: mean(_ratios(group)) for name, group in groups.items()}
    return min(means.items(), key=lambda item: item[1]) if means else None


def _gain(rows: Sequence[Row], features: int) -> float | None:
    """Perplexity of softmax over that of ridge at 100 units, mean over seeds."""
    at = {
        (row["readout"], row["seed"]): row["perplexity"]
        for row in rows
        if (row["n_units"], row["features"]) == (100, features)
    }
    seeds = [seed for name, seed in at if name == "ridge" and ("softmax", seed) in at]
    return mean(at["softmax", seed] / at["ridge", seed] for seed in seeds) if seeds else None


def _ratios(rows: Sequence[Row]) -> list[float]:
    return [row["perplexity"] / row["oracle_perplexity"] for row in rows]


def _by_size(rows: Sequence[Row], column: str, digits: int) -> list[str]:
    return _table(rows, lambda run: _mean_sd([row[column] for row in run], digits))


def _table(rows: Sequence[Row], cell: Callable[[list[Row]], str]) -> list[str]:
    """A line for each readout and feature count, a column for each size."""
    sizes = sorted({row["n_units"] for row in rows})
    lines = [
        "| readout | F | " + " | ".join(map(str, sizes)) + " |",
        "|---|---|" + "---|" * len(sizes),
    ]
    for readout, features in dict.fromkeys((row["readout"], row["features"]) for row in rows):
        cells = []
        for size in sizes:
            setting = (readout, features, size)
            run = [r for r in rows if (r["readout"], r["features"], r["n_units"]) == setting]
            cells.append(cell(run) if run else "")
        lines.append(f"| {readout} | {features} | " + " | ".join(cells) + " |")
    return lines


def _ngram_table(ngrams: Sequence[Row]) -> list[str]:
    lines = ["| order | perplexity | cosine |", "|---|---|---|"]
    for order in sorted({row["order"] for row in ngrams}):
        group = [row for row in ngrams if row["order"] == order]
        cells = [_mean_sd([r[name] for r in group], 3) for name in ("perplexity", "cosine")]
        lines.append(f"| {order} | {cells[0]} | {cells[1]} |")
    return lines


def _mean_sd(values: Sequence[float], digits: int) -> str:
    text = f"{mean(values):.{digits}f}"
    return f"{text} ± {stdev(values):.{digits}f}" if len(values) > 1 else text
