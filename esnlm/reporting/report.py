"""A report: what folders hold, and what text that is given adds, as one page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esnlm.reporting import about, contributions, losses, pairs, plots, reservoirs, studies
from esnlm.reporting.found import Found
from esnlm.reporting.page import Block, Section, Text, rendered, six_digits, table
from esnlm.reporting.scoring import NGRAMS, ModelScores, Texts, scored

#: Section -> what brings it, where it is empty.
_BROUGHT_BY = {
    "runs": "esnlm train writes MODEL.run.json beside its model; name the folder of both",
    "data": "--train and --held-out name the corpora, or put their shards in the folder",
    "texts": "--held-out SHARDS|TEXT, or a CSV of esnlm evaluate --csv in the folder",
    "training": "esnlm train --log FILE, in the folder",
    "groups": "--held-out with --train, or esnlm evaluate --bins TRAIN --bins-csv FILE",
    "calibration": "--held-out SHARDS|TEXT",
    "pairs": "--blimp FOLDER, or esnlm blimp --csv FILE in the folder",
    "contributions": "esnlm controls, its folder; --held-out with --train for the n-gram",
    "reservoir": "a model with a reservoir",
    "samples": "a model with a tokenizer",
}


@dataclass(frozen=True)
class Sources:
    """What a report is made of: what lies in folders, loaded models, and text.

    ``held_out`` and ``train`` are text files or shards, ``blimp`` minimal pairs. ``split_of``
    says for a model what a document is in text.
    """

    found: Found
    models: Mapping[str, Any]
    split_of: Callable[[Any], str]
    held_out: Sequence[str] = ()
    train: Sequence[str] = ()
    blimp: Path | None = None
    n_resamples: int = 10_000


def report(title: str, sources: Sources) -> str:
    """Return the page as HTML. The same sources give the same bytes."""
    found, models = sources.found, sources.models
    on_text: list[ModelScores] = []
    if sources.held_out and models:
        how = sources.held_out, sources.train, sources.split_of, sources.n_resamples
        on_text = scored(models, Texts(*how))
    tables = pairs.gathered(found)
    if sources.blimp is not None:
        known = {name: each for name, each in models.items() if each.tokenizer_ is not None}
        for name, rows in pairs.judged(known, sources.blimp).items():
            tables[name if name not in tables else f"{name} (this report)"] = rows
    with plots.drawing():
        made = [
            about.runs(found),
            about.models(found),
            about.data(found, sources.held_out, sources.train, sources.blimp),
            losses.texts(found, on_text),
            losses.training(found, on_text),
            losses.groups(found, on_text),
            losses.calibrations(on_text),
            pairs.section(tables),
            contributions.section(found, on_text),
            reservoirs.diagnostics(models),
            reservoirs.samples(models),
            *studies.sections(found),
        ]
        made.append(_missing(made))
        made[-1].blocks += about.left_out(found)
        return rendered(title, _summary(found, on_text, tables), made)


def _missing(made: Sequence[Section]) -> Section:
    empty = [
        f"{section.title}: {_BROUGHT_BY[section.name]}."
        for section in made
        if not section.blocks and section.name in _BROUGHT_BY
    ]
    missing = Section("missing", "Not in this report")
    if empty:
        missing.blocks.append(Text("What would bring the sections that are missing:", empty))
    return missing


def _summary(
    found: Found, on_text: Sequence[ModelScores], tables: Mapping[str, Sequence[Mapping[Any, Any]]]
) -> list[Block]:
    """Return the figures that a reader asks for first, of each model."""
    rows: dict[str, dict[str, Any]] = {name: {"model": name} for name in found.models}
    for each in on_text:
        for name in each.names:
            rows.setdefault(name, {"model": name})["nats"] = six_digits(each.loss(name))
            if name in each.models and NGRAMS in each.names:
                rows[name]["less"] = six_digits(each.loss(name) - each.loss(NGRAMS))
    for name, several in tables.items():
        for row in several:
            if row["level"] == "overall":
                rows.setdefault(name, {"model": name})["blimp"] = row["accuracy"]
    if not any(len(row) > 1 for row in rows.values()):
        n_files = len(found.rows)
        return [Text(f"{len(found.models)} models, {n_files} tables of results.")]
    columns = {
        "model": "model", "nats": "held-out loss, nats a token", "less": "less the 5-gram's",
        "blimp": "minimal pairs, ties half",
    }  # fmt: skip
    shown = {key: label for key, label in columns.items() if any(key in r for r in rows.values())}
    kinds = {"model": "text", "blimp": "%"}
    return [table("In short", rows.values(), shown, kinds=kinds, share=False)]
