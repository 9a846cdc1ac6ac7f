"""Sections on what was run, on which data, and on models: parameters, reservoirs, samples."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.models.language_model import LanguageModel
from esnlm.reporting import plots
from esnlm.reporting.contents import NOT_SHOWN, Contents
from esnlm.reporting.page import Facts, Samples, Section, Text, six_digits
from esnlm.runs.run_record import data_files
from esnlm.studies.minimal_pairs import digest
from esnlm.text.shards import MANIFEST, Shards
from esnlm.utils.arrays import Floats

#: Columns of CSVs that say how their rows were made.
_PROVENANCE = ("command", "commit", "version", "machine", "device", "cores", "seed", "date")
_RULES = {"documents": "a document is", "sentences": "a sentence is"}
_COSTS = (
    "fit_seconds", "drive_seconds", "score_seconds", "seconds", "cpu_seconds", "peak_rss_mib",
    "peak_memory_mib",
)  # fmt: skip
_PARTS = ("reservoir", "readout", "features")
_LAGS, _STATES = 200, 2000
# Entries of a vocabulary that is one of characters.
_CHARACTERS = 400
_SEEDS = (0, 1)


def runs(contents: Contents) -> Section:
    """Command, commit, seed, machine, and time and memory by phase, as far as they were kept."""
    section = Section("runs", "How it was made")
    for name, record in contents.records.items():
        keys = ("command", "commit", "seed", "machine", "python")
        facts = [(_code(key, record[key]), record[key]) for key in keys if key in record]
        section.blocks.append(Facts(name, [fact for fact in facts if fact[1] is not None]))
        columns = "phase", "seconds", "cpu_seconds", "peak_rss_mib"
        section.add("Time and memory by phase", record.get("phases", []), *columns)
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
    sources = [(path, " (--train)") for path in train]
    sources += [(path, " (--held-out)") for path in held_out]
    paths = {path for path, _ in sources}
    sources += [(str(path), "") for path in contents.shards if str(path) not in paths]
    for path, option in sources:
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


def reservoirs(models: Mapping[str, Any]) -> Section:
    """Measured radius, weights, timescales, saturation, dimensions and forgetting."""
    section = Section("reservoir", "The reservoir")
    distances: dict[str, Floats] = {}
    for name, model in models.items():
        if isinstance(model, LanguageModel):
            facts, distances[name] = _measured(model)
            section.blocks.append(Facts(name, [(key, six_digits(value)) for key, value in facts]))
    if distances:
        caption = (
            "Distance of two states that read the same tokens from different beginnings, as a share"
            " of the first distance: how fast the reservoir forgets where it began"
        )
        section.blocks.append(plots.plot(plots.decay(distances), caption))
        section.blocks.append(
            Text(
                f"States are those of {_STATES} tokens drawn evenly from the vocabulary, so that"
                " models compare; saturated are states beyond 0.95 in size. The effective dimension"
                " is the participation ratio of the variances along the principal components."
            )
        )
    return section


def _measured(model: LanguageModel) -> tuple[list[tuple[str, Any]], Floats]:
    """Facts of a reservoir, and the distances (lags,) of states that began apart."""
    reservoir = model.reservoir_
    n_units = int(reservoir.n_units)
    rates = np.asarray(reservoir.leak_rate_, dtype=np.float64)
    with np.errstate(divide="ignore"):
        times = -1 / np.log1p(-np.minimum(rates, 1.0))
    rng = np.random.default_rng(0)
    tokens = rng.integers(model.n_tokens_, size=_STATES)
    features = None if model.features_ is None else model.features_.embedding_
    features = None if features is None else features.astype(reservoir.W_.dtype)
    states = np.asarray(reservoir.transform(tokens, features=features), dtype=np.float64)
    start = rng.standard_normal(n_units).astype(reservoir.W_.dtype)
    other = reservoir.transform(tokens[:_LAGS], features=features, initial_state=start)
    apart = np.linalg.norm(np.asarray(other, dtype=np.float64) - states[:_LAGS], axis=1)
    apart = np.concatenate([[np.linalg.norm(start)], apart]) / np.linalg.norm(start)
    late = states[_LAGS:]
    centred = late - late.mean(axis=0)
    products = centred @ centred.T  # its eigenvalues are the variances, up to a factor
    return [
        ("units", n_units),
        ("topology", reservoir.topology),
        ("activation", reservoir.activation),
        ("spectral radius asked for", float(reservoir.spectral_radius)),
        ("spectral radius measured", float(reservoir.spectral_radius_)),
        ("largest singular value, by power iteration", _norm(reservoir.W_)),
        ("connections into a unit, mean", reservoir.W_.nnz / n_units),
        ("input scaling", float(reservoir.input_scaling)),
        ("leak rates: least, median, largest", _extremes(rates)),
        ("timescales in tokens: least, median, largest", _extremes(times)),
        ("mean size of a state", float(np.abs(late).mean())),
        ("saturated states", f"{100 * float((np.abs(late) > 0.95).mean()):.2f} %"),
        ("effective dimension", float(np.trace(products) ** 2 / (products**2).sum())),
    ], apart


def _norm(matrix: Any) -> float:
    """Largest singular value, by power iteration: a lower bound that is tight to some digits."""
    vector = np.random.default_rng(0).standard_normal(matrix.shape[1])
    value = 0.0
    for _ in range(200):
        length = np.linalg.norm(vector)
        if not length:
            return 0.0
        image = matrix @ (vector / length)
        value, vector = float(np.linalg.norm(image)), matrix.T @ image
    return value


def _extremes(values: Floats) -> str:
    return ", ".join(f"{value:.3g}" for value in np.quantile(values, [0, 0.5, 1]))


def samples(models: Mapping[str, Any]) -> Section:
    """Texts that each model writes from nothing, drawn and most probable."""
    section = Section("samples", "Samples")
    for name, model in models.items():
        if model.tokenizer_ is None:
            continue
        n_tokens = 400 if model.n_tokens_ < _CHARACTERS else 120
        title = f"{name}, drawn at temperature 1, seed"
        texts = {f"{title} {seed}": model.sample(n_tokens, random_state=seed) for seed in _SEEDS}
        greedy = model.sample(min(n_tokens, 60), temperature=0.0)
        texts[f"{name}, the most probable token each time"] = greedy
        section.blocks.append(Samples([(title, text.strip("\n")) for title, text in texts.items()]))
    if section.blocks:
        note = "Samples are the first that were drawn; none was chosen. Each begins with nothing."
        section.blocks.append(Text(note))
    return section
