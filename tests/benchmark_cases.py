"""A corpus of a few lines for benchmarks that read shards and minimal pairs."""

import json
from pathlib import Path

import numpy as np

from esnlm.__main__ import main as esnlm

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PAIRS = [("the dog sees a cat .", "the dog see a cat ."), ("a cat runs .", "a cat run .")]


def make_corpus(folder: Path) -> Path:
    """Shards ``train`` and ``dev`` of one tokenizer, and the minimal ``pairs``; the folder."""
    rng = np.random.default_rng(0)
    nouns, verbs = ["dog", "cat", "boy"], ["sees", "runs", "see", "run"]
    lines = [f"the {rng.choice(nouns)} {rng.choice(verbs)} a {rng.choice(nouns)} ."] * 2
    lines += [f"a {rng.choice(nouns)} {rng.choice(verbs)} ." for _ in range(60)]
    text, dev = folder / "train.txt", folder / "dev.txt"
    text.write_text("\n".join(lines) + "\n")
    dev.write_text("the dog sees a cat .\na boy runs .\n")
    given = ["--tokenizer", "word", "--sentences", "line", "--out", str(folder / "train")]
    assert esnlm(["prepare", str(text), *given]) == 0
    given = ["--tokenizer", str(folder / "train" / "tokenizer.json"), "--sentences", "line"]
    assert esnlm(["prepare", str(dev), *given, "--out", str(folder / "dev")]) == 0
    pairs = [
        json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": "agreement",
                    "field": "syntax", "linguistics_term": "subject_verb_agreement"})
        for good, bad in PAIRS
    ]  # fmt: skip
    (folder / "pairs").mkdir()
    (folder / "pairs" / "agreement.jsonl").write_text("\n".join(pairs) + "\n")
    return folder
