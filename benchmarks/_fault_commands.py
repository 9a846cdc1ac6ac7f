"""Command lines: whole ones, with an argument left out, doubled, or of another value."""

import json
import os
from pathlib import Path

import numpy as np
from _fault_folders import folders
from _fault_runner import Case, command_failure

_TEXT = "boys see the dog\nthe dog that sees cats walks\n\n" * 5
_PAIR = {"sentence_good": "the dog walks", "sentence_bad": "the dog walk"}
_LINES = (
    "train TEXT --tokenizer word --units 8 --out OUT",
    "train TEXT --tokenizer char --units 8 --readout softmax --out OUT --held-out TEXT",
    "train SHARDS --units 8 --readout ridge --topology ring --out OUT --log CSV --held-out TEXT",
    "train TEXT --tokenizer word --units 8 --readout moe --experts 2 --seed 1 --out OUT",
    "prepare TEXT --tokenizer bpe:300 --out OUT --sentences line --min-length 1",
    "prepare TEXT --tokenizer word:9 --out OUT --documents line --max-length 5",
    "ngram TEXT --order 3 --tokenizer word --out OUT",
    "evaluate MODEL TEXT --csv CSV --unit word --surprisal-csv CSV2",
    "evaluate MODEL TEXT --interpolate NORMALISED --weight 0.5 --bins TEXT --bins-csv CSV",
    "blimp NGRAMS --data PAIRS --csv CSV",
    "generate MODEL --prompt boys --tokens 3 --temperature 0.5 --top-k 3 --top-p 0.9 --seed 1",
    "export MODEL OUT --format hf",
)
_VALUES = (
    "", " ", "-", "--", "-1", "0", "1", "2", "3.5", "nan", "inf", "-inf", "1e400",
    "x", "\u00e9", "\udcff", "../../nowhere/x", "/dev/null", "/dev/full", "/proc/self/mem", "TEXT",
    "OUT",
    "MODEL", "FIFO", "LOOP", "FOLDER", "CSV", "word", "bpe:1", "char:5", "ridge", "never",
    "[1]", "{}", "uniform:0:1", "--out", "--help", "--version", "--units", "8", "auto", "cuda:9",
)  # fmt: skip


def command_lines(rng: np.random.Generator, folder: Path) -> Case:
    """A command line that is altered in a place or two."""
    words = _LINES[rng.integers(len(_LINES))].split()
    for _ in range(rng.integers(0, 3)):
        place = int(rng.integers(1, len(words)))
        value = str(rng.choice(_VALUES))
        changes = (
            lambda place=place: words.pop(place),
            lambda place=place: words.insert(place, words[place]),
            lambda place=place, value=value: words.__setitem__(place, value),
            lambda place=place, value=value: words.__setitem__(place, value),
            lambda place=place, value=value: words.insert(place, value),
        )
        changes[rng.integers(len(changes))]()
        if len(words) < 2:
            break
    known = places(folder)

    def run() -> str:
        # A pipe that nobody reads is waited for, as by any program.
        reader = os.open(known["FIFO"], os.O_RDONLY | os.O_NONBLOCK)
        try:
            return command_failure(*(known.get(word, word) for word in words))
        finally:
            os.close(reader)

    return Case(" ".join(map(repr, words)), run)


def places(folder: Path) -> dict[str, str]:
    """What the words of capitals stand for."""
    names = {
        "TEXT": "t.txt", "OUT": "out", "CSV": "a.csv", "CSV2": "b.csv", "PAIRS": "p.jsonl",
        "FIFO": "fifo", "LOOP": "loop", "FOLDER": "folder",
    }  # fmt: skip
    paths = {word: folder / name for word, name in names.items()}
    paths["TEXT"].write_text(_TEXT)
    paths["PAIRS"].write_text(json.dumps(_PAIR) + "\n")
    paths["FOLDER"].mkdir()
    os.mkfifo(paths["FIFO"])
    paths["LOOP"].symlink_to(paths["LOOP"])
    known = {"MODEL": "ridge", "NORMALISED": "normalised", "NGRAMS": "ngrams", "SHARDS": "shards"}
    paths |= {word: folders() / name for word, name in known.items()}
    return {word: str(path) for word, path in paths.items()}
