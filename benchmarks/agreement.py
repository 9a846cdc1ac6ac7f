"""Is the number of a subject some words back in the state, and does the readout use it?

    python benchmarks/agreement.py --models traces=FOLDER ... --blimp FOLDER --out FILE.csv

Beginnings of sentences such as "The bird near the books" are made of nouns of the minimal pairs, a
subject and a noun nearer to the verb, each singular or plural. A logistic regression learns the
subject's number from beginnings of two thirds of the nouns, and is judged on those of the others:
from the reservoir's state, from the vectors that drive it for the last three tokens, and from what
the network makes of both before its softmax. Beside them stands what the model predicts: whether
plural verbs (are, were, have) are likelier beside singular ones (is, was, has) than in the median
beginning. Shares of right answers where both nouns have the same number, and where they differ;
chance is a half. FOLDERs are models of ``esnlm train --model NAME``; those without a reservoir, or
without features that drive it, have rows of the others alone. Nouns are drawn by three seeds.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from _report import commit, machine, named_folder
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from esnlm.storage.atomic import write_whole
from esnlm.torch.language_model import TorchLanguageModel
from esnlm.torch.networks.esn import ReservoirNetwork
from esnlm.torch.networks.esn_mlp import EchoStateNetworkWithMLP
from esnlm.utils.arrays import Array

BEGINNINGS = (
    "The {} near the {}",
    "The {} behind the old {}",
    "The {} that scared the {}",
    "The {} that she saw with the {}",
    "The {} near the very old {}",
)
VERBS = ("is", "was", "has"), ("are", "were", "have")
#: Files of minimal pairs that differ in the number of a noun.
NOUNS = "determiner_noun_agreement_1", "determiner_noun_agreement_2"
MOST_PIECES, LAST = 3, 3
PENALTY = 0.01  # inverse weight of the squared coefficients, of standardised columns
COLUMNS = ["model", "read", "beginning", "seed", "same", "different", "n_same", "n_different"]


class Beginning(NamedTuple):
    """The beginning of a sentence; whether its subject, and the noun nearer the verb, is plural."""

    text: str
    plural: bool
    nearer: bool


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    rows = []
    for name, folder in options.models:
        model = TorchLanguageModel.load(folder)
        model.network.eval()
        nouns = short_nouns(options.blimp, model.tokenizer_)
        for seed in range(options.seeds):
            for pattern in BEGINNINGS:
                known, new = beginnings(nouns, pattern, options.n, seed)
                for read, right in judged(model, known, new):
                    same = np.array([each.plural == each.nearer for each in new])
                    counts = int(same.sum()), int((~same).sum())
                    shares = right[same].mean(), right[~same].mean()
                    rows.append([name, read, pattern, seed, *shares, *counts])
    table = pd.DataFrame(rows, columns=COLUMNS)
    about = {
        "command": shlex.join(["python", "benchmarks/agreement.py", *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
    text = table.assign(**about).to_csv(index=False, lineterminator="\n", float_format="%.4f")
    write_whole(options.out, text)
    shown = table.groupby(["model", "read"], sort=False)[["same", "different"]]
    print(shown.agg(["mean", "min", "max"]).to_string(float_format="%.3f"))


def short_nouns(folder: Path, tokenizer: Any) -> list[tuple[str, str]]:
    """Singular and plural of nouns of the minimal pairs that are of few tokens each."""
    found = set()
    for name in NOUNS:
        (path,) = folder.rglob(f"{name}.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines():
            pair = json.loads(line)
            words = (pair[f"sentence_{kind}"].rstrip(".").split() for kind in ("good", "bad"))
            differ = [sorted(both) for both in zip(*words, strict=True) if both[0] != both[1]]
            one, many = differ[0]
            if len(differ) == 1 and many == one + "s" and one.islower():
                found.add((one, many))
    return sorted(
        forms
        for forms in found
        if all(len(tokenizer.encode(f"The {form}")) - 2 < MOST_PIECES for form in forms)
    )


def beginnings(
    nouns: Sequence[tuple[str, str]], pattern: str, n: int, seed: int
) -> tuple[list[Beginning], list[Beginning]]:
    """``n`` beginnings of two thirds of the nouns, and of the others."""
    rng = np.random.default_rng(seed)
    mixed = [nouns[i] for i in rng.permutation(len(nouns))]
    cut = len(mixed) * 2 // 3

    def made(some: Sequence[tuple[str, str]]) -> list[Beginning]:
        drawn = []
        for _ in range(n):
            subject, nearer = rng.choice(len(some), 2, replace=False)
            plural, other = rng.integers(2, size=2)
            text = pattern.format(some[subject][plural], some[nearer][other])
            drawn.append(Beginning(text, bool(plural), bool(other)))
        return drawn

    return made(mixed[:cut]), made(mixed[cut:])


def judged(
    model: TorchLanguageModel, known: Sequence[Beginning], new: Sequence[Beginning]
) -> Iterator[tuple[str, Array]]:
    """For each thing read, whether it gives the subject's number right (n,) of new beginnings."""
    goals = [np.array([each.plural for each in part]) for part in (known, new)]
    read = [_read(model, part) for part in (known, new)]
    for name in read[0]:
        if name != "predicts":
            told = make_pipeline(StandardScaler(), LogisticRegression(C=PENALTY, max_iter=1000))
            told.fit(read[0][name], goals[0])
            yield name, told.predict(read[1][name]) == goals[1]
    plural = read[1]["predicts"]
    yield "predicts", (plural > np.median(plural)) == goals[1]


@torch.inference_mode()
def _read(model: TorchLanguageModel, part: Sequence[Beginning]) -> dict[str, Array]:
    """After each beginning: state, last inputs, hidden vector, log odds of plural verbs."""
    network: Any = model.network
    tokenizer: Any = model.tokenizer_
    verbs = [[int(tokenizer.encode(f"x {verb}")[-1]) for verb in each] for each in VERBS]
    start = np.zeros(1, dtype=np.int64)
    found: dict[str, list[Array]] = {}
    for each in part:
        ids = np.asarray(tokenizer.encode(each.text), dtype=np.int64)
        hidden = network.encode(torch.from_numpy(ids)[None])[0][0, -1]
        logs = torch.log_softmax(network.head(hidden[None])[0].double(), dim=-1)
        here = {"hidden": hidden.numpy()}
        here["predicts"] = (logs[verbs[1]].logsumexp(0) - logs[verbs[0]].logsumexp(0)).numpy()
        if isinstance(network, EchoStateNetworkWithMLP) and network.state and network.n_features:
            here["state"] = ReservoirNetwork.harvest(network, ids, start)[-1].numpy()
            here["last inputs"] = network.inputs.vectors[ids[-LAST:]].flatten().numpy()
        for name, values in here.items():
            found.setdefault(name, []).append(values)
    return {name: np.array(values) for name, values in found.items()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    named: Any = {"type": named_folder, "metavar": "NAME=FOLDER"}
    parser.add_argument("--models", nargs="+", required=True, **named)
    parser.add_argument("--blimp", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--n", type=int, default=1000, help="beginnings of each kind")
    return parser.parse_args()


if __name__ == "__main__":
    main()
