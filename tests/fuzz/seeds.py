"""Write the corpora anew, by the package's own writers: ``python tests/fuzz/seeds.py``."""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import contextlib

from fuzz.targets import READOUTS, described, trainer_of

from esnlm import (
    ClassFactoredReadout,
    LanguageModel,
    LowRankReadout,
    MixtureOfExpertsReadout,
    NgramLanguageModel,
    ReducedRankSoftmaxReadout,
    Reservoir,
    RidgeReadout,
    SoftmaxReadout,
    SpectralWordFeatures,
    TokenGatedReadout,
)
from esnlm.models.arpa import write_arpa
from esnlm.reporting.contents import KINDS
from esnlm.runs.run_record import RunRecord
from esnlm.storage.checkpoints import Checkpoints
from esnlm.storage.tensor_file import read_tensors, write_tensors
from esnlm.text.named_tokenizers import trained
from esnlm.text.prepare import prepare
from esnlm.training.resumable_run import StoppedError

CORPUS = Path(__file__).with_name("corpus")
REPORTS = Path(__file__).parents[2] / "reports"
_LONGEST = 3000
DOCS = ["the boy sees the dog", "the dog sees", "boys see"] * 2
_DROPPED = ("format", "version", "sha256", "config_sha256", "manifest_sha256")


def plain(path: Path) -> Any:
    """Return a JSON file without its checksums."""
    return {
        name: value for name, value in json.loads(path.read_text()).items() if name not in _DROPPED
    }


def folder_case(folder: Path) -> dict[str, Any]:
    """Return a model folder as a case."""
    arrays = {path.name: described(read_tensors(path)) for path in folder.glob("*.safetensors")}
    tokenizer = folder / "tokenizer.json"
    text = json.loads(tokenizer.read_text()) if tokenizer.exists() else None
    return {"config": plain(folder / "config.json"), "tokenizer.json": text, **arrays}


def models(at: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a small model of each kind."""
    readouts = {
        "ridge": RidgeReadout(),
        "softmax": SoftmaxReadout(max_iter=3),
        "reduced_rank": ReducedRankSoftmaxReadout(rank=2),
        "mixture": MixtureOfExpertsReadout(n_experts=2, random_state=0),
        "factored": ClassFactoredReadout(n_classes=2, random_state=0),
        "factored_joint": ClassFactoredReadout(n_classes=2, solver="joint", random_state=0),
        "low_rank": LowRankReadout(n_components=2, n_frequent=1, n_classes=2, random_state=0),
        "low_rank_direct": LowRankReadout(n_direct=2, random_state=0),
        "token_gated": TokenGatedReadout(n_direct=1),
    }
    for name, readout in readouts.items():
        features = SpectralWordFeatures(n_features=2) if name == "ridge" else None
        reservoir = Reservoir(3, degree=2, random_state=0)
        model = LanguageModel(
            reservoir, readout, features=features, tokenizer="word", reset="sentence"
        )
        model.fit(DOCS).save(at / name, training=name in ("ridge", "softmax", "low_rank"))
        yield name, folder_case(at / name)
    NgramLanguageModel(order=2, tokenizer="word").fit(DOCS).save(at / "ngrams")
    yield "ngrams", folder_case(at / "ngrams")


def checkpoints(at: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a checkpoint of each kind of run."""
    for name in READOUTS:
        place, steps = at / f"run-{name}", iter([False, True])
        with contextlib.suppress(StoppedError):
            trainer_of(name).run(Checkpoints(place), stop=lambda steps=steps: next(steps))
        (step,) = place.iterdir()
        arrays = described(read_tensors(step / "training.safetensors"))
        yield name, {"readout": name, **plain(step / "config.json"), "arrays": arrays}


def shard_case(at: Path) -> dict[str, Any]:
    """Return shards as a case."""
    (at / "text.txt").write_text("".join(f"{line}\n\n" for line in DOCS))
    prepare(at / "text.txt", at / "shards", "word")
    arrays = {
        path.name: np.fromfile(path, "<u2" if path.name == "tokens.bin" else "<i8")
        for path in (at / "shards").glob("*.bin")
    }
    tokenizer = json.loads((at / "shards" / "tokenizer.json").read_text())
    return {
        "manifest": plain(at / "shards" / "manifest.json"),
        "tokenizer.json": tokenizer,
        "arrays": described(arrays),
    }


def journal(at: Path) -> bytes:
    """Return the journal of a search of three trials."""
    from fuzz.targets import search_of

    for _ in search_of(at, resume=False).run(lambda settings, _: settings["alpha"], 3, None):
        pass
    return (at / "study.journal").read_bytes()


def record() -> bytes:
    """Return the record of a run, without its checksum."""
    run = RunRecord(seed=0, held_out={"unigrams": 2.5})
    run.add({"command": "esnlm train text.txt", "commit": "abc"})
    run.add({"machine": "a machine", "python": "3.11.7"})
    run.add({"data": {"train": [{"file": "text.txt", "bytes": 9, "sha256": "0"}]}})
    run.add({"phases": [{"phase": "fit", "seconds": 1.5, "cpu_seconds": 1.5, "peak_rss_mib": 9.0}]})
    return json.dumps(run.content).encode()


def files(at: Path) -> Iterator[tuple[str, str, dict[str, bytes]]]:
    """Yield target, name of a case and its files."""
    ngrams = NgramLanguageModel(order=2, tokenizer="word").fit(DOCS)
    write_arpa(ngrams, at / "m.arpa")
    yield "arpa", "ours", {"m.arpa": (at / "m.arpa").read_bytes()}
    texts = {path.name: path.read_bytes() for path in (at / "m.arpa", at / "m.arpa.tokenizer.json")}
    yield "arpa", "with_tokenizer", texts
    for kind in ("word", "char", "bpe:270"):
        text = trained(kind, DOCS).to_json().encode()
        yield "tokenizer", kind.replace(":", "_"), {"tokenizer.json": text}
    yield "journal", "three_trials", {"study.journal": journal(at)}
    for kind, rows in results():
        yield "results", kind, {"rows.csv": rows}
    yield "results", "record", {"model.run.json": record()}
    write_tensors(at / "arrays.safetensors", {"a": np.ones(3, np.float32), "b": np.arange(2)})
    yield "safetensors", "two", {"arrays.safetensors": (at / "arrays.safetensors").read_bytes()}
    for target, name, parts in TEXTS:
        yield target, name, {each: text.encode() for each, text in parts.items()}


_SUITE = {
    "meta": {"name": "agreement", "metric": "sum"},
    "predictions": [{"type": "formula", "formula": "(1;%a%) < [(1;%b%) + 0.5] & (*;%a%) > 0"}],
    "items": [
        {
            "item_number": 1,
            "conditions": [
                {"condition_name": c, "regions": [{"region_number": 1, "content": "the boy"}]}
                for c in "ab"
            ],
        }
    ],
}
#: Cases that no writer of ours makes.
TEXTS: list[tuple[str, str, dict[str, str]]] = [
    ("toml", "space", {"space.toml": (
        'units = 9\nspectral-radius = {low = 0.1, high = 1.5, start = 1.0}\n'
        'leak-rate = {choices = [1, "uniform:0:1"]}\ndegree = {low = 2, high = 8, step = 2}\n\n'
        "[readout.ridge]\n\n[readout.softmax]\nalpha = {low = 1e-2, high = 1e3, log = true}\n"
        "[option]\nrank = 2\n")}),
    ("toml", "recipe", {"recipe.toml": (
        'units = 9\nleak-rate = "uniform:0:1"\nfeatures = "spectral:6"\n\n[readout.softmax]\n'
        "alpha = 0.5\n\n[readout.ridge]\n\n[topology.random]\ndegree = 4\n")}),
    ("pairs", "lines", {"pairs.jsonl": '{"sentence_good": "a b", "sentence_bad": "b a", "UID": '
        '"x", "linguistics_term": "y", "field": "z", "pairID": "1"}\n'
        '{"sentence": "a", "label": 1}\n{"sentence": "b", "label": 0}\n'}),
    ("pairs", "csv", {"pairs.csv": 'good,bad,paradigm\n"a, b",b a,x\nc,d,x\n'}),
    ("pairs", "tsv", {"pairs.tsv": "sentence\tlabel\na b\t1\nb a\t0\n"}),
    ("pairs", "agreement", {"a.gold": "1\tsees\tsee\t0\n", "a.text": "boy sees it\n"}),
    ("pairs", "gulordava", {"g.tab": "form\tclass\tprefix\ttype\tn_attr\nsees\tcorrect\tthe boy\tt"
        "\t1\nsee\twrong\tthe boy\tt\t1\n"}),
    ("tables", "texts", {"texts.csv": 'item,text\n1,"the boy, sees"\n2,it\n'}),
    ("tables", "words", {"words.tsv": "item\tword\n1\tthe\n1\tboy\n2\tit\n"}),
    ("tables", "pairs", {"published.csv": "level,linguistics_term,gpt2\noverall,overall,0.8\n"
        "phenomenon,binding,0.9\n"}),
    ("tables", "suites", {"suites.csv": "model,suite,accuracy\ngpt2,agreement,0.9\n"}),
    ("suites", "one", {"suite.json": json.dumps(_SUITE)}),
    ("formula", "one", {"formula": "((1;%a%) < [(2;%b%) - 0.5]) & ((*;%a%) = 3 | (1;%a%) > 0)"}),
]  # fmt: skip


def results() -> Iterator[tuple[str, bytes]]:
    """Yield a CSV of each kind that a report knows: two rows of a published one, or of ones."""
    published = {path: path.read_text().splitlines() for path in sorted(REPORTS.rglob("*.csv"))}
    for kind, columns in KINDS.items():
        lines = [",".join(columns), ",".join("1" for _ in columns)]
        for text in published.values():
            names = set(text[0].split(","))
            first = next(k for k, needed in KINDS.items() if names.issuperset(needed))
            if first == kind and len("".join(text[:3])) < _LONGEST:
                lines = text[:3]
                break
        yield kind.replace(" ", "_"), "".join(f"{line}\n" for line in lines).encode()


def main() -> None:
    """Write every case."""
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        cases: list[tuple[str, str, bytes]] = []
        jsons = [("model", *each) for each in models(at)]
        jsons += [("checkpoint", *each) for each in checkpoints(at)]
        jsons.append(("shards", "words", shard_case(at)))
        cases += [(target, name, json.dumps(case).encode()) for target, name, case in jsons]
        for target, name, parts in files(at):
            data = b"".join(b"=== %s\n%s" % (each.encode(), text) for each, text in parts.items())
            cases.append((target, name, data))
        for target, name, data in cases:
            (CORPUS / target).mkdir(parents=True, exist_ok=True)
            (CORPUS / target / name).write_bytes(data)


if __name__ == "__main__":
    main()
