"""A report: what folders hold, and what text that is given adds, as one page."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from esnlm.reporting import about, losses, pairs, plots, studies
from esnlm.reporting.contents import NOT_SHOWN, Contents
from esnlm.reporting.page import Block, Section, Text, rendered, six_digits, table
from esnlm.reporting.scoring import NGRAMS, ModelScores, scored

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


def render_report(
    title: str,
    contents: Contents,
    models: Mapping[str, Any],
    *,
    split_of: Callable[[Any], str],
    held_out: Sequence[str] = (),
    train: Sequence[str] = (),
    blimp: Path | None = None,
    n_resamples: int = 10_000,
) -> str:
    """Return the page as HTML. The same sources give the same bytes.

    ``models`` are those of ``contents``, loaded. ``held_out`` and ``train`` are text files or
    shards, ``blimp`` minimal pairs. ``split_of`` says for a model what a document is in text.
    """
    on_text: list[ModelScores] = []
    if held_out and models:
        on_text = scored(
            models, held_out=held_out, train=train, split_of=split_of, n_resamples=n_resamples
        )
    tables = pairs.gathered(contents)
    if blimp is not None:
        word_models = {name: each for name, each in models.items() if each.tokenizer_ is not None}
        for name, rows in pairs.judged(word_models, blimp).items():
            tables[name if name not in tables else f"{name} (this report)"] = rows
    with plots.drawing():
        sections = [
            about.runs(contents),
            about.models(contents),
            about.data(contents, held_out, train, blimp),
            losses.texts(contents, on_text),
            losses.training(contents, on_text),
            losses.groups(contents, on_text),
            losses.calibrations(on_text),
            pairs.section(tables),
            losses.contributions(contents, on_text),
            about.reservoirs(models),
            about.samples(models),
            *studies.sections(contents),
        ]
        sections.append(_missing(sections, contents))
        return rendered(title, _summary(contents, on_text, tables), sections)


def _missing(sections: Sequence[Section], contents: Contents) -> Section:
    """Say what would bring the sections that are empty, and which files are not shown."""
    empty = {section.name: section.title for section in sections if not section.blocks}
    items = [f"{empty[name]}: {how}." for name, how in _BROUGHT_BY.items() if name in empty]
    missing = Section("missing", "Not in this report")
    if items:
        missing.blocks.append(Text("What would bring the sections that are missing:", items))
    for rows in contents.of(*NOT_SHOWN):
        text = f"{rows.name} holds {len(rows.table)} {rows.kind}, which are not shown here."
        missing.blocks.append(Text(text))
    return missing


def _summary(
    contents: Contents,
    on_text: Sequence[ModelScores],
    tables: Mapping[str, Sequence[Mapping[Any, Any]]],
) -> list[Block]:
    """Return the figures that a reader asks for first, of each model."""
    loss, less = "held-out loss, nats a token", "less the 5-gram's"
    judged = "minimal pairs, ties half"
    rows: dict[str, dict[str, Any]] = {name: {"model": name} for name in contents.models}
    for each in on_text:
        for name in each.names:
            rows.setdefault(name, {"model": name})[loss] = six_digits(each.loss(name))
            if name in each.models and NGRAMS in each.names:
                rows[name][less] = six_digits(each.loss(name) - each.loss(NGRAMS))
    for name, several in tables.items():
        for row in several:
            if row["level"] == "overall":
                rows.setdefault(name, {"model": name})[judged] = row["accuracy"]
    if not any(len(row) > 1 for row in rows.values()):
        n_files = len(contents.rows)
        return [Text(f"{len(contents.models)} models, {n_files} tables of results.")]
    columns = "model", loss, less, judged
    return [table("In short", rows.values(), columns, kinds={judged: "%"})]
