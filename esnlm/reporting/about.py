"""Sections on what was run and on which data: commands, commits, machines, phases, hashes."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from esnlm.reporting.found import NOT_SHOWN, Found
from esnlm.reporting.page import Block, Facts, Section, Text, table
from esnlm.runs.run_record import data_files
from esnlm.studies.minimal_pairs import digest
from esnlm.text.shards import MANIFEST, Shards

#: Columns of CSVs that say how their rows were made.
_PROVENANCE = ("command", "commit", "version", "machine", "device", "cores", "seed", "date")
_RULES = {"documents": "a document is", "sentences": "a sentence is"}
_COSTS = (
    "fit_seconds", "drive_seconds", "score_seconds", "seconds", "cpu_seconds", "peak_rss_mib",
    "peak_memory_mib",
)  # fmt: skip


def runs(found: Found) -> Section:
    """Command, commit, seed, machine, and time and memory by phase, as far as they were kept."""
    section = Section("runs", "How it was made")
    for name, record in found.records.items():
        facts = [
            (_code(key, record[key]), record[key])
            for key in ("command", "commit", "seed", "machine", "python")
            if record.get(key) is not None
        ]
        section.blocks.append(Facts(name, facts))
        columns = {
            "phase": "phase", "seconds": "seconds", "cpu_seconds": "processor seconds",
            "peak_rss_mib": "peak memory until its end, MiB",
        }  # fmt: skip
        section.blocks.append(
            table("Time and memory by phase", record.get("phases", []), columns, share=False)
        )
    for name in found.models:
        if name not in found.records:
            section.blocks.append(Text(f"No record of the run that made {name} lies beside it."))
    made = [_made(rows.name, rows.table) for rows in found.rows if rows.kind not in NOT_SHOWN]
    made = [row for row in made if len(row) > 2]
    if made:
        kinds = dict.fromkeys(_PROVENANCE, "text")
        section.blocks.append(
            table("What the rows of each file say of how they were made", made, kinds=kinds,
                  share=False)
        )  # fmt: skip
    return section


def _made(name: str, frame: Any) -> dict[str, str]:
    """Return how the rows of a CSV were made: values by column, and ranges of costs."""
    row = {"file": name, "rows": str(len(frame))}
    for column in _PROVENANCE:
        values = list(dict.fromkeys(frame[column])) if column in frame else []
        if values := [value for value in values if value]:
            more = f" and {len(values) - 3} more" if len(values) > 3 else ""
            row[_code(column, *values)] = ", ".join(values[:3]) + more
    for column in _COSTS:
        if column in frame:
            numbers = sorted(float(value) for value in frame[column] if _is_number(value))
            if numbers:
                low, high = (f"{value:g}" for value in (numbers[0], numbers[-1]))
                row[column.replace("_", " ")] = low if low == high else f"{low} to {high}"
    return row


def _code(column: str, *values: str) -> str:
    """Return the name of a column: outside a checkout the commit of the code is a version."""
    is_version = column == "commit" and all(value.startswith("esnlm ") for value in values)
    return "version" if is_version else column


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def models(found: Found) -> Section:
    """Return what each model is, by its configuration."""
    section = Section("models", "Models")
    for name in found.models:
        config = found.config(name)
        parts_of = ("reservoir", "readout", "features")
        facts: list[tuple[str, Any]] = [
            (part, config[part]["class"]) for part in parts_of if isinstance(config.get(part), dict)
        ]
        facts += [
            (label, config[key])
            for key, label in (
                ("kind", "kind"), ("model", "network"), ("esnlm", "written by esnlm"),
                ("n_tokens", "vocabulary"), ("run", "digest of the run"),
            )
            if config.get(key) is not None
        ]  # fmt: skip
        facts += [(label, _shown(value)) for label, value in config.get("settings", {}).items()
                  if value is not None]  # fmt: skip
        section.blocks.append(Facts(name, facts))
        parts = [
            {"part": f"{part}: {config[part]['class']}", "parameter": key, "value": _shown(value)}
            for part in parts_of
            if isinstance(config.get(part), dict)
            for key, value in config[part]["params"].items()
        ]
        parts += [
            {"part": "network", "parameter": key, "value": _shown(value)}
            for key, value in config.get("network", {}).items()
        ]
        if parts:
            caption = f"Parameters of {name}"
            section.blocks.append(table(caption, parts, share=False, unfolds=True))
        files = [{"file": key, "sha256": value} for key, value in config.get("sha256", {}).items()]
        if files:
            section.blocks.append(
                table(
                    f"Files of {name}", files, kinds={"sha256": "text"}, share=False, unfolds=True
                )
            )
    return section


def _shown(value: Any) -> str:
    """Return a parameter of a configuration as it would be written."""
    if isinstance(value, Mapping):
        if "class" in value:
            return str(value["class"])
        for kind in ("tuple", "array", "dict"):
            if kind in value:
                return _shown(value[kind])
    if isinstance(value, list):
        return f"({', '.join(map(_shown, value))})"
    return str(value)


def data(
    found: Found,
    held_out: Sequence[str],
    train: Sequence[str],
    blimp: Path | None,
) -> Section:
    """Return a card of each corpus: its content, its origin, the hashes of its files."""
    section = Section("data", "Data")
    named = [("--train", train), ("--held-out", held_out)]
    shown = {str(path) for _, paths in named for path in paths}
    named += [("", [str(path)]) for path in found.shards if str(path) not in shown]
    for option, paths in named:
        for path in paths:
            title = f"{Path(path).name} ({option})" if option else Path(path).name
            section.blocks += _card(path, title)
    if blimp is not None:
        facts = [("minimal pairs", blimp.name), ("SHA-256 of the pairs", digest(blimp) or "")]
        section.blocks.append(Facts(f"{blimp.name} (--blimp)", facts))
    for name, record in found.records.items():
        for part, files in record.get("data", {}).items():
            section.blocks.append(
                table(f"{part} of {name}, as its run recorded it", files,
                      kinds={"sha256": "text"}, share=False)
            )  # fmt: skip
    return section


def _card(path: str, title: str) -> Iterator[Block]:
    """Yield tables of the files of a text, or totals, sources and files of shards."""
    kinds = {"sha256": "text", "file": "text", "name": "text"}
    if not (Path(path) / MANIFEST).is_file():
        rows = data_files([path])
        yield table(f"Text {title}", rows, kinds=kinds, share=False)
        return
    manifest = Shards(path, verify=False).manifest
    facts = [*manifest["totals"].items(), ("vocabulary", manifest["n_tokens_vocab"])]
    made = manifest.get("made_from", {})
    facts += [(_RULES.get(name, name), value) for name, value in made.items()
              if name not in ("sources", "tokenizer") and value is not None]  # fmt: skip
    shown = [(name.replace("_", " "), f"{value:,}" if type(value) is int else value)
             for name, value in facts]  # fmt: skip
    yield Facts(f"Shards {title}", shown)
    sources = made.get("sources", [])
    if sources:
        yield table("Made from", sources, kinds=kinds, share=False)
    files = [{"file": name} | about for name, about in manifest["files"].items()]
    yield table(f"Files of {title}", files, kinds=kinds, share=False, unfolds=True)


def left_out(found: Found) -> Iterator[Block]:
    """Files that are there and not shown."""
    for rows in found.of(*NOT_SHOWN):
        yield Text(f"{rows.name} holds {len(rows.table)} {rows.kind}, which are not shown here.")
