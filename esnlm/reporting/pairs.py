"""The section on minimal pairs: phenomena, intervals, what ties count, parts of the pairs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from esnlm.reporting import plots
from esnlm.reporting.contents import Contents, showing
from esnlm.reporting.page import Section, Text, six_digits, table

_HEADS = {
    "model": "model", "phenomenon": "phenomenon", "paradigm": "paradigm", "subset": "part",
    "mean_over": "mean over", "accuracy": "ties half", "lower": "95 % from", "upper": "to",
    "strict": "ties wrong", "strict_lower": "wrong, from", "strict_upper": "wrong, to",
    "correct": "ties right", "correct_lower": "right, from", "correct_upper": "right, to",
    "ties": "ties", "n_pairs": "pairs", "n_paradigms": "paradigms",
}  # fmt: skip
_SHARES = (
    "accuracy", "lower", "upper", "strict", "strict_lower", "strict_upper", "correct",
    "correct_lower", "correct_upper",
)  # fmt: skip
_PLOTTED = "accuracy", "lower", "upper", "ties", "n_pairs"
#: Tables of some rows: caption, level, columns without use there, and whether they unfold.
_TABLES = (
    ("All pairs, and parts of them", "whole", ("phenomenon", "paradigm"), False),
    ("By phenomenon", "phenomenon", ("paradigm", "subset", "mean_over"), False),
    ("By phenomenon, of parts of the pairs", "subset", ("paradigm", "mean_over"), True),
    ("By paradigm", "paradigm", ("subset", "mean_over", "n_paradigms"), True),
)

Row = Mapping[Any, Any]


def judged(models: Mapping[str, Any], data: Path) -> dict[str, list[dict[Any, Any]]]:
    """Rows of `esnlm blimp` for each model."""
    from esnlm.evaluation.minimal_pairs.pairs import read_pairs
    from esnlm.evaluation.minimal_pairs.parts import subsets
    from esnlm.evaluation.minimal_pairs.scores import score_pairs
    from esnlm.evaluation.minimal_pairs.table import tabulate

    pairs = read_pairs(data)
    parts = subsets(pairs)
    return {
        name: [
            {key: six_digits(value) for key, value in row.items()}
            for row in tabulate(pairs, score_pairs(model, pairs, verbose=True), name, parts)
        ]
        for name, model in models.items()
    }


def gathered(contents: Contents) -> dict[str, list[dict[Any, Any]]]:
    """Rows of the tables that `esnlm blimp --csv` wrote, by model; of one name, files tell apart.

    A model that they call by its path has the name of the folder that lies here, if one does.
    Tables of version 0.1.0 have neither intervals nor parts.
    """
    tables: dict[str, list[dict[Any, Any]]] = {}
    for rows in contents.of("minimal pairs"):
        with showing(rows):
            for row in rows.records():
                for column in _PLOTTED:
                    _number(row.get(column))
        for name, part in rows.table.groupby("model", sort=False):
            model = contents.name_of(str(name))
            model = model if model not in tables else f"{model}, {rows.name}"
            tables[model] = part.assign(model=model).to_dict("records")
    return tables


def section(tables: Mapping[str, Sequence[Row]]) -> Section:
    """Phenomena and parts of the pairs as tables, the phenomena as a plot, paradigms below."""
    part = Section("pairs", "Minimal pairs")
    rows = [(_level(row), row) for several in tables.values() for row in several]
    if not rows:
        return part
    plotted = [
        {**row, "model": model} | {name: _number(row.get(name)) for name in _PLOTTED}
        for model, several in tables.items()
        for row in several
        if row["level"] in ("phenomenon", "overall")
    ]
    if plotted:
        caption = "Accuracy by phenomenon, with 95 % intervals over the pairs of each paradigm"
        part.blocks.append(plots.plot(plots.phenomena(plotted), caption))
    for caption, level, without, unfolds in _TABLES:
        levels = (level, "overall") if level == "whole" else (level,)
        some = [row for name, row in rows if name in levels]
        if some or level != "subset":
            heads, kinds = _heads(some, without), dict.fromkeys(_SHARES, "%")
            part.blocks.append(table(caption, some, heads, kinds=kinds, unfolds=unfolds))
    part.blocks.append(
        Text(
            "A tie, two sentences of equal probability, counts half, as wrong or as right."
            " not_permuted leaves out the paradigms whose two sentences have the same words in"
            " another order, other_items also those of the same lexical items. Figures are means"
            " over paradigms unless they say otherwise; chance is 50 %."
        )
    )
    return part


def _level(row: Row) -> str:
    """Level of a row: ``whole`` is that of all pairs of a part."""
    is_whole = row["level"] == "subset" and row["paradigm"] == "overall"
    return "whole" if is_whole else row["level"]


def _heads(rows: Sequence[Row], without: Sequence[str]) -> dict[str, str]:
    columns = {name for row in rows for name in row}
    if all(_number(row.get("ties")) == 0 for row in rows):  # then the three agree
        columns -= {f"{kind}_{end}" for kind in ("strict", "correct") for end in ("lower", "upper")}
    return {name: _HEADS[name] for name in _HEADS if name in columns and name not in without}


def _number(value: Any) -> float | None:
    if value in (None, ""):
        return None
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"it holds {value!r}, expected a number") from None
