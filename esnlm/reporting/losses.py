"""Sections on losses: of texts, along training, by group of tokens, and calibration."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from esnlm.evaluation.calibration import ReliabilityBin
from esnlm.evaluation.measures import COLUMNS
from esnlm.reporting import plots
from esnlm.reporting.found import Found, Rows
from esnlm.reporting.page import Block, Section, Text, six_digits, table
from esnlm.reporting.scoring import UNIGRAMS, ModelScores
from esnlm.training.baselines import ORDER

_LOSS = {
    "model": "model", "group": "group", "n_tokens": "tokens", "nats": "nats a token",
    "lower": "95 % from", "upper": "to",
}  # fmt: skip
_GROUPINGS = {
    "frequency": "occurrences of the token in the training text",
    "position": "position in the sentence",
    "seen n-gram": "longest n-gram of the training text that ends at the token",
}
_EVALUATED = {
    "model": "model", "text": "text", "nll_per_token": "nats a token", "perplexity": "perplexity",
    "nll_per_word": "nats a word", "bits_per_character": "bits a character",
    "unknown_share": "unknown", "n_tokens": "tokens", "n_words": "words",
    "n_characters": "characters", "weight": "weight",
}  # fmt: skip


def numbers(rows: Rows, *columns: str) -> pd.DataFrame:
    """Return the rows with some columns as numbers, empty fields as NaN."""
    found = rows.table.copy()
    for name in columns:
        found[name] = pd.to_numeric(found[name].replace("", None), errors="coerce")
    return found


def texts(found: Found, scored: Sequence[ModelScores]) -> Section:
    """Losses of whole texts: rows of `esnlm evaluate`, and what this report scored."""
    section = Section("texts", "Loss of whole texts")
    for each in scored:
        rows = [{name: six_digits(row[name]) for name in COLUMNS} for row in each.rows]
        kinds = {"unknown_share": "%", "model": "text", "text": "text"}
        section.blocks.append(
            table("Scored for this report, on --held-out", rows, _EVALUATED, kinds=kinds)
        )
        compared = [_whole(row) for row in each.losses("all")]
        caption = "Beside baselines of --train, with the interval over sentences"
        section.blocks.append(table(caption, compared, _LOSS_OF_ALL, kinds=_TEXT))
    for file in found.of("evaluation"):
        kinds = {"unknown_share": "%", "model": "text", "text": "text"}
        columns = {name: label for name, label in _EVALUATED.items() if name in file.table}
        section.blocks.append(
            table(file.name, file.table.to_dict("records"), columns, kinds=kinds, share=False)
        )
    return section


_TEXT = {"model": "text", "group": "text"}
_LOSS_OF_ALL = {name: label for name, label in _LOSS.items() if name != "group"}


def _whole(row: dict[str, Any]) -> dict[str, Any]:
    return {name: six_digits(value) for name, value in row.items()}


def training(found: Found, scored: Sequence[ModelScores]) -> Section:
    """Held-out loss against tokens and seconds, with the n-gram's line where it is known."""
    section = Section("training", "Loss along training")
    logs = {
        rows.name: numbers(rows, "tokens", "seconds", "held_out_nll")
        for rows in found.of("training")
    }
    logs = {name: log for name, log in logs.items() if log["held_out_nll"].notna().any()}
    levels = _levels(found, scored)
    if not logs:
        return section
    shown = {name: value for name, value in levels.items() if not name.startswith(UNIGRAMS)}
    for column, label in (("tokens", "tokens learned"), ("seconds", "seconds of training")):
        figure = plots.curve(logs, shown, column, label)
        caption = f"Held-out loss by {label}"
        section.blocks.append(plots.plot(figure, caption))
    if not levels:
        section.blocks.append(
            Text("The n-gram's line needs --held-out and --train, or the record of the run.")
        )
    if levels:
        known = ", ".join(f"{name} {value:.4f}" for name, value in levels.items())
        section.blocks.append(
            Text(f"Baselines on the part of the held-out text that such logs score: {known}.")
        )
    heads = {
        "pass": "pass", "tokens": "tokens", "share": "share of the run",
        "held_out_nll": "nats a token", "held_out_perplexity": "perplexity", "seconds": "seconds",
    }  # fmt: skip
    for file in found.of("training"):
        columns = dict.fromkeys(file.table.columns, "") | heads
        section.blocks.append(
            table(file.name, file.table.to_dict("records"), columns, kinds={"share": "%"},
                  unfolds=len(file.table) > 12)
        )  # fmt: skip
    return section


def _levels(found: Found, scored: Sequence[ModelScores]) -> dict[str, float]:
    """Losses of baselines by the records of runs, else on what such logs score of --held-out."""
    levels: dict[str, float] = {}
    for kind in (f"{ORDER}-grams", UNIGRAMS):
        known = {name: r.get("held_out", {}).get(kind) for name, r in found.records.items()}
        values = {name: value for name, value in known.items() if value is not None}
        if len(set(values.values())) == 1:
            levels[kind] = next(iter(values.values()))
        else:
            levels |= {f"{kind}, {name}": value for name, value in values.items()}
    for each in scored:
        if not levels and each.logged:
            levels = dict(each.logged)
    return levels


def groups(found: Found, scored: Sequence[ModelScores]) -> Section:
    """Losses by frequency, position and seen n-gram, and the bins of `esnlm evaluate --bins`."""
    section = Section("groups", "Loss by frequency, position and seen n-gram")
    for each in scored:
        for kind, label in _GROUPINGS.items():
            rows = list(each.losses(kind))
            if not rows:
                continue
            label = label.replace("sentence", each.sequence)
            caption = f"Loss by {label}, with 95 % intervals over sentences"
            section.blocks.append(plots.plot(plots.by_group(rows, label), caption))
            section.blocks.append(
                table(f"Loss by {label}", map(_whole, rows), _LOSS, kinds=_TEXT, share=False,
                      unfolds=True)
            )  # fmt: skip
    for file in found.of("bins"):
        columns = {
            "model": "model", "bin": "occurrences in training", "n_tokens": "tokens",
            "perplexity": "perplexity", "lower": "95 % from", "upper": "to",
        }  # fmt: skip
        kinds = {"model": "text", "bin": "text"}
        section.blocks.append(
            table(f"{file.name}: perplexity by frequency", file.table.to_dict("records"), columns,
                  kinds=kinds, share=False)
        )  # fmt: skip
    return section


def calibrations(scored: Sequence[ModelScores]) -> Section:
    """Whether probabilities come true: of the most probable token, and of all tokens."""
    section = Section("calibration", "Calibration")
    found = {name: each for group in scored for name, each in group.calibrations.items()}
    if not found:
        return section
    columns = {
        "model": "model", "n_tokens": "tokens looked at", "error": "expected calibration error",
        "accuracy": "most probable token is right", "confidence": "its mean probability",
    }  # fmt: skip
    rows = [{"model": name} | _whole(each._asdict()) for name, each in found.items()]
    kinds = {"model": "text", **dict.fromkeys(("error", "accuracy", "confidence"), "%")}
    caption = "Most probable token, in 15 bins of equal width"
    best = {name: each.most_probable for name, each in found.items()}
    every = {name: each.all_words for name, each in found.items()}
    parts = [
        _reliability("the most probable token", best),
        _reliability("every token of the vocabulary", every, logarithmic=True),
    ]
    section.blocks.append(table(caption, rows, columns, kinds=kinds, share=False))
    section.blocks += [block for several in zip(*parts, strict=True) for block in several]
    return section


def _reliability(
    what: str,
    found: Mapping[str, Sequence[ReliabilityBin]],
    *,
    logarithmic: bool = False,
) -> tuple[Block, Block]:
    """Plot and table of what came against the probability that was given."""
    caption = f"Reliability of {what}: below the diagonal the model is too sure"
    rows = [
        {"model": model} | _whole(each._asdict())
        for model, several in found.items()
        for each in several
        if each.n
    ]
    heads = {
        "model": "model", "low": "above", "high": "up to", "n": "predictions",
        "probability": "mean probability", "came": "share that came",
    }  # fmt: skip
    figure = plots.reliability(found, logarithmic=logarithmic)
    listed = table(f"Reliability of {what}", rows, heads, kinds=_TEXT, share=False, unfolds=True)
    return plots.plot(figure, caption), listed
