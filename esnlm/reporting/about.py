"""Sections on what was run and on which data: commands, commits, machines, phases, hashes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from esnlm.reporting.contents import NOT_SHOWN, Contents
from esnlm.reporting.page import Facts, Section, Text
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
_PARTS = ("reservoir", "readout", "features")


def runs(contents: Contents) -> Section:
    """Command, commit, seed, machine, and time and memory by phase, as far as they were kept."""
    section = Section("runs", "How it was made")
    for name, record in contents.records.items():
        keys = ("command", "commit", "seed", "machine", "python")
        facts = [(_code(key, record[key]), record[key]) for key in keys if key in record]
        section.blocks.append(Facts(name, [fact for fact in facts if fact[1] is not None]))
        phases = [
            {
                "phase": phase["phase"],
                "seconds": phase["seconds"],
                "processor seconds": phase["cpu_seconds"],
                "peak memory until its end, MiB": phase["peak_rss_mib"],
            }
            for phase in record.get("phases", [])
        ]
        section.add("Time and memory by phase", phases)
    for name in contents.models:
        if name not in contents.records:
            section.blocks.append(Text(f"No record of the run that made {name} lies beside it."))
    files = [each for each in contents.rows if each.kind not in NOT_SHOWN]
    rows = [row for each in files if len(row := _provenance(each.name, each.table)) > 2]
    kinds = dict.fromkeys(_PROVENANCE, "text")
    section.add("What the rows of each file say of how they were made", rows, kinds=kinds)
    return section


def _provenance(name: str, frame: Any) -> dict[str, str]:
    """Return how the rows of a CSV were made: values by column, and ranges of costs."""
    row = {"file": name, "rows": str(len(frame))}
    for column in _PROVENANCE:
        values = list(filter(None, dict.fromkeys(frame.get(column, ()))))
        if values:
            more = f" and {len(values) - 3} more" if len(values) > 3 else ""
            row[_code(column, *values)] = ", ".join(values[:3]) + more
    for column in _COSTS:
        numbers = []
        for value in frame.get(column, ()):
            with suppress(ValueError):
                numbers.append(float(value))
        if numbers:
            low, high = (f"{value:g}" for value in (min(numbers), max(numbers)))
            row[column.replace("_", " ")] = low if low == high else f"{low} to {high}"
    return row


def _code(column: str, *values: Any) -> str:
    """Return the name of a column: outside a checkout the commit of the code is a version."""
    is_version = column == "commit" and all(str(value).startswith("esnlm ") for value in values)
    return "version" if is_version else column


def models(contents: Contents) -> Section:
    """Return what each model is, by its configuration."""
    section = Section("models", "Models")
    for name in contents.models:
        config = contents.config(name)
        parts = {part: config[part] for part in _PARTS if isinstance(config.get(part), dict)}
        labels = {
            "kind": "kind", "model": "network", "esnlm": "written by esnlm",
            "n_tokens": "vocabulary", "run": "digest of the run",
        }  # fmt: skip
        facts: list[tuple[str, Any]] = [(part, each["class"]) for part, each in parts.items()]
        facts += [(label, config.get(key)) for key, label in labels.items()]
        facts = [fact for fact in facts if fact[1] is not None]
        settings = config.get("settings", {}).items()
        facts += [(label, _in_words(value)) for label, value in settings if value is not None]
        section.blocks.append(Facts(name, facts))
        parameters = {f"{part}: {each['class']}": each["params"] for part, each in parts.items()}
        parameters["network"] = config.get("network", {})
        rows = [
            {"part": part, "parameter": key, "value": _in_words(value)}
            for part, values in parameters.items()
            for key, value in values.items()
        ]
        section.add(f"Parameters of {name}", rows, unfolds=True)
        files = [{"file": key, "sha256": value} for key, value in config.get("sha256", {}).items()]
        section.add(f"Files of {name}", files, unfolds=True)
    return section


def _in_words(value: Any) -> str:
    """Return a parameter of a configuration as it would be written."""
    if isinstance(value, Mapping):
        if "class" in value:
            return str(value["class"])
        for kind in ("tuple", "array", "dict"):
            if kind in value:
                return _in_words(value[kind])
    if isinstance(value, list):
        return f"({', '.join(map(_in_words, value))})"
    return str(value)


def data(
    contents: Contents, held_out: Sequence[str], train: Sequence[str], blimp: Path | None
) -> Section:
    """Return a card of each corpus: its content, its origin, the hashes of its files."""
    section = Section("data", "Data")
    named = [(path, " (--train)") for path in train]
    named += [(path, " (--held-out)") for path in held_out]
    known = {path for path, _ in named}
    named += [(str(path), "") for path in contents.shards if str(path) not in known]
    for path, option in named:
        _add_corpus(section, path, Path(path).name + option)
    if blimp is not None:
        facts = [("minimal pairs", blimp.name), ("SHA-256 of the pairs", digest(blimp) or "")]
        section.blocks.append(Facts(f"{blimp.name} (--blimp)", facts))
    for name, record in contents.records.items():
        for part, files in record.get("data", {}).items():
            section.add(f"{part} of {name}, as its run recorded it", files)
    return section


def _add_corpus(section: Section, path: str, title: str) -> None:
    """Add tables of the files of a text, or totals, sources and files of shards."""
    if not (Path(path) / MANIFEST).is_file():
        section.add(f"Text {title}", data_files([path]))
        return
    manifest = Shards(path, verify=False).manifest
    facts = [*manifest["totals"].items(), ("vocabulary", manifest["n_tokens_vocab"])]
    origin = manifest.get("made_from", {})
    facts += [(_RULES.get(name, name), value) for name, value in origin.items()
              if name not in ("sources", "tokenizer") and value is not None]  # fmt: skip
    texts = [(name.replace("_", " "), f"{value:,}" if type(value) is int else value)
             for name, value in facts]  # fmt: skip
    section.blocks.append(Facts(f"Shards {title}", texts))
    section.add("Made from", origin.get("sources", []))
    files = [{"file": name} | about for name, about in manifest["files"].items()]
    section.add(f"Files of {title}", files, unfolds=True)
