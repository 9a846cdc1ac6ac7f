"""All minimal pairs through outside scorers, on the exported model, beside our own decisions.

    python benchmarks/outside_scorers.py MODEL PAIRS SCORES [--clients lm_eval minicons]

MODEL is a folder of ``esnlm train``, PAIRS one of ``.jsonl`` files. The model is exported as
``esnlm export --format hf`` does, and the clients load that folder by themselves: they share with
us the weights, and no code. ``ours`` and ``peer`` of the first row are accuracies in percent, of
the second the least difference between a pair's sentences that was decided otherwise (empty: none
was) and the largest difference of a sentence's score, in nats, of the third seconds. Ties,
which count half by us and are decided by rounding there, are left out of the first row.

A paradigm's scores lie in the folder SCORES as soon as it is done, and are not computed again: an
interrupted run resumes. Needs the extra ``hf``.
"""

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _report import report, row
from numpy.typing import NDArray
from tqdm import tqdm

from esnlm import LanguageModel
from esnlm.evaluation.minimal_pairs.pairs import read_pairs
from esnlm.evaluation.minimal_pairs.scores import score_pairs
from esnlm.interop.huggingface import export_model

TOLERANCE = 1e-4
#: (file of pairs, (good, bad) sentences) -> their scores (n, 2).
Client = Callable[[Path, Sequence[tuple[str, str]]], NDArray[np.float64]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("scores", type=Path)
    parser.add_argument("--clients", nargs="+", choices=list(CLIENTS), default=list(CLIENTS))
    parser.add_argument(
        "--batch", type=int, default=64, help="sentences that a client reads at once"
    )
    args = parser.parse_args()
    pairs = read_pairs(args.pairs)
    files = sorted(args.pairs.glob("*.jsonl"))
    assert len(files) == len({pair.paradigm for pair in pairs}), "a file is a paradigm"
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TQDM_DISABLE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HF_HOME"] = f"{folder}/home"
        start = time.perf_counter()
        model = LanguageModel.load(args.model)
        scores = score_pairs(model, pairs)
        ours = np.stack([scores.good, scores.bad], axis=1)
        seconds = time.perf_counter() - start
        export_model(model, f"{folder}/exported")
        del model
        # Scores depend on the model and the pairs, which our own scores identify.
        known = hashlib.sha256(ours.tobytes()).hexdigest()[:12]
        for name in args.clients:
            client, version = CLIENTS[name](f"{folder}/exported", args.batch)
            done = args.scores / f"{known}-{version.replace(' ', '-')}"
            done.mkdir(parents=True, exist_ok=True)
            theirs, took = np.empty_like(ours), 0.0
            for file in tqdm(files, desc=name, disable=False):
                which = [i for i, pair in enumerate(pairs) if pair.paradigm == file.stem]
                texts = [(pairs[i].good, pairs[i].bad) for i in which]
                theirs[which], spent = kept(done / f"{file.stem}.npz", client, file, texts)
                took += spent
            setting = f"{args.model.name}, {len(pairs)} pairs, {version}"
            report(
                "outside_scorers",
                rows(setting, ours, theirs, scores.ties, seconds, took),
                merge=True,
            )


def kept(
    place: Path, client: Client, file: Path, texts: Sequence[tuple[str, str]]
) -> tuple[NDArray[np.float64], float]:
    """Scores (n, 2) and seconds of a paradigm, from ``place`` or put there."""
    if not place.exists():
        start = time.perf_counter()
        found = client(file, texts)
        aside = place.with_suffix(".part.npz")
        np.savez(aside, scores=found, seconds=time.perf_counter() - start)
        aside.replace(place)
    with np.load(place, allow_pickle=False) as known_scores:
        return known_scores["scores"], float(known_scores["seconds"])


def rows(
    setting: str,
    ours: NDArray[Any],
    theirs: NDArray[Any],
    ties: NDArray[np.bool_],
    our_seconds: float,
    seconds: float,
) -> list[dict[str, Any]]:
    """Accuracies, the largest difference, and the seconds of both."""
    decided, their_decided = ours[~ties], theirs[~ties]
    right, found = (scores[:, 0] > scores[:, 1] for scores in (decided, their_decided))
    apart = right != found
    margins = np.abs(decided[:, 0] - decided[:, 1])[apart]
    worst = float(np.abs(ours - theirs).max())
    accuracies = (100 * right.mean(), 100 * found.mean())
    least: Any = float(margins.min()) if len(margins) else ""
    settings = (
        f"{setting}: accuracy; {apart.sum()} decisions differ; {ties.sum()} ties",
        f"{setting}: largest difference of a sentence's score",
        f"{setting}: all pairs scored",
    )
    met: list[Any] = [
        {"ratio": "", "target": "no decision differs", "met": not apart.any()},
        {"ratio": "", "target": f"<= {TOLERANCE}", "met": worst <= TOLERANCE},
        {"ratio": seconds / our_seconds},
    ]
    return [
        row("outside_scorers", settings[0], *accuracies, "%", **met[0]),
        row("outside_scorers", settings[1], least, worst, "nats", **met[1]),
        row("outside_scorers", settings[2], our_seconds, seconds, "s", **met[2]),
    ]


def through_lm_eval(folder: str, batch: int) -> tuple[Client, str]:
    """lm-evaluation-harness, its own model class, a task a file."""
    import lm_eval
    from lm_eval.models.huggingface import HFLM

    from esnlm.interop.lm_eval import blimp_tasks

    model = HFLM(folder, trust_remote_code=True, batch_size=batch, device="cpu")

    def score(file: Path, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        (task,) = (t for t in blimp_tasks(file.parent) if t["task"] == f"blimp_{file.stem}")
        results = lm_eval.simple_evaluate(
            model=model, tasks=[task], bootstrap_iters=0, log_samples=True
        )
        samples = sorted(results["samples"][task["task"]], key=lambda row: row["doc_id"])
        for (good, bad), sample in zip(pairs, samples, strict=True):
            assert [request[1] for request in sample["arguments"]] == [good, bad]
        return np.array([[score for score, _ in row["filtered_resps"]] for row in samples])

    return score, f"lm-evaluation-harness {lm_eval.__version__}"


def through_minicons(folder: str, batch: int) -> tuple[Client, str]:
    """minicons, sums of its token scores."""
    from importlib.metadata import version

    from minicons import scorer

    client = scorer.IncrementalLMScorer(folder, "cpu", tokenizer=folder, trust_remote_code=True)

    def score(file: Path, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        texts = [text for pair in pairs for text in pair]
        found: list[float] = []
        for start in range(0, len(texts), batch):
            found += client.sequence_score(
                texts[start : start + batch], reduction=lambda scores: scores.sum(0).item()
            )
        return np.array(found).reshape(-1, 2)

    return score, f"minicons {version('minicons')}"


CLIENTS = {"lm_eval": through_lm_eval, "minicons": through_minicons}

if __name__ == "__main__":
    main()
