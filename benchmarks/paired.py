"""By how much do trained models differ from the first of them? Paired, by position and phenomenon.

    python benchmarks/paired.py TRAIN --held-out DEV --blimp FOLDER \\
        --models whole=FOLDER no_state=FOLDER ... --out reports/controls/nonlinear

TRAIN are the shards that the models were trained on, DEV shards of the same tokenizer. Each model
is NAME=FOLDER of a model of any kind, such as ``esnlm train --model esn+mlp`` and the same with
``--option state=false``. OUT/paired.csv has losses in nats a token by the tokens' position in their
sentence and frequency, and accuracies on minimal pairs by phenomenon: of each model, and less those
of the first. Intervals (95 %) are of the same draws of sentences, or of pairs, for all models.

Log-probabilities are kept in OUT/scores/NAME; remove it to score a model that has changed.
"""

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from _report import commit, machine, named_folder

from esnlm.evaluation.bootstrap import N_RESAMPLES, percentile_intervals
from esnlm.evaluation.measures import Evaluation
from esnlm.evaluation.minimal_pairs.pairs import Pair, read_pairs
from esnlm.evaluation.minimal_pairs.scores import PairScores, score_pairs
from esnlm.evaluation.token_groups import Judged
from esnlm.loading import load_model
from esnlm.storage.atomic import folder_aside, write_whole
from esnlm.storage.tensor_file import Arrays, read_tensors, write_tensors
from esnlm.studies.controls.comparison import judged_pairs, judged_tokens
from esnlm.text.shards import Shards

_FILE = "log_probabilities.safetensors"
_COLUMNS = (
    "model", "measure", "by", "group", "n", "value", "lower", "upper", "less", "difference",
    "least", "most",
)  # fmt: skip


def main() -> None:
    options = _options()
    pairs = read_pairs(options.blimp)
    kept = options.out / "scores"
    kept.mkdir(parents=True, exist_ok=True)
    shards = Shards(options.train), Shards(options.held_out)
    n_scores = (shards[1].n_tokens - len(shards[1]), len(pairs))
    scored = []
    for name, folder in options.models:
        if not (kept / name).exists():
            scores = _scores(folder, options.held_out, pairs)
            with folder_aside(kept / name) as made:
                write_tensors(made / _FILE, scores)
        scored.append(read_tensors(kept / name / _FILE))
        found = tuple(len(scored[-1][part]) for part in ("tokens", "good"))
        if found != n_scores:
            raise SystemExit(
                f"{kept / name} must hold scores of {n_scores[0]} tokens and {n_scores[1]} pairs,"
                f" got {found[0]} and {found[1]}: remove it to score the model anew"
            )
    how: dict[str, Any] = {"n_resamples": options.resamples, "random_state": 0}
    credit = [PairScores(each["good"], each["bad"], True, "sum").credit for each in scored]
    judged = (
        judged_tokens(*shards, [each["tokens"] for each in scored], **how),
        judged_pairs(pairs, np.array(credit), **how),
    )
    names = [name for name, _ in options.models]
    about = {
        "command": shlex.join(["python", "benchmarks/paired.py", *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    rows = [row | about for each in judged for row in _rows(names, each)]
    table = pd.DataFrame(rows, columns=[*_COLUMNS, *about])
    write_whole(options.out / "paired.csv", table.to_csv(index=False, lineterminator="\n"))
    shown = table[table["by"].isin(["all", "phenomenon"])]
    columns = ["model", "measure", "group", "value", "difference", "least", "most"]
    print(shown[columns].to_string(index=False, float_format="%.4f"))


def _scores(folder: Path, held_out: Path, pairs: Sequence[Pair]) -> Arrays:
    """Natural-log probabilities of predicted tokens, and of the sentences of pairs."""
    model, parts = load_model(folder), []

    def keep(_: str, part: Any) -> None:
        parts.append(part.scores[0][part.predicted])

    Evaluation([model], [folder.name], "line", verbose=True).rows([str(held_out)], keep)
    scores = score_pairs(model, pairs, verbose=True)
    tokens = np.concatenate(parts).astype(np.float32)
    return {"tokens": tokens, "good": scores.good, "bad": scores.bad}


def _rows(names: Sequence[str], judged: Judged) -> Iterator[dict[str, Any]]:
    """A row a model and group: the value, and less the first model's, with their intervals."""
    for run, (name, bounds) in enumerate(zip(names, judged.intervals(), strict=True)):
        less = judged.values[run] - judged.values[0]
        between = percentile_intervals(judged.resampled[:, run] - judged.resampled[:, 0])
        for place, (by, group) in enumerate(judged.groups):
            row = {
                "model": name,
                "measure": judged.measure,
                "by": by,
                "group": group,
                "n": int(judged.sizes[place]),
                "value": judged.values[run, place],
                "lower": bounds[place, 0],
                "upper": bounds[place, 1],
            }
            if run:
                row |= {"less": names[0], "difference": less[place]}
                row |= {"least": between[place, 0], "most": between[place, 1]}
            yield row


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path, metavar="SHARDS")
    parser.add_argument("--held-out", type=Path, required=True, metavar="SHARDS")
    parser.add_argument("--blimp", type=Path, required=True, metavar="FOLDER")
    named: Any = {"type": named_folder, "metavar": "NAME=FOLDER"}
    parser.add_argument("--models", nargs="+", required=True, **named)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--resamples", type=int, default=N_RESAMPLES, metavar="R")
    options = parser.parse_args()
    names = [name for name, _ in options.models]
    if len(set(names)) < len(names):
        parser.error(f"--models must have names that differ, got {' '.join(names)}")
    return options


if __name__ == "__main__":
    main()
