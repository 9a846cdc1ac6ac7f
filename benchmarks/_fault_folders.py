"""Small folders of every kind: models of each readout, n-grams, shards, networks, stopped runs.

    python benchmarks/_fault_folders.py FOLDER [NAME ...]

Their sentences are of Elman's grammar. The same version writes the same folders.
"""

import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import esnlm
from esnlm.__main__ import main as esnlm_main
from esnlm.storage.checkpoints import Checkpoints

#: Sentences that models learn after they were loaded.
THEN = ["Mary lives .", "boys walk .", "John sees the cats ."]
#: Options of `esnlm train` for runs that are stopped, by the name of the run's checkpoints.
STOPPED = {
    "interrupted": "--readout softmax --passes 12 --units 6 --degree 3 --chunk-tokens 40",
    "network_interrupted": (
        "--model lstm --units 4 --device cpu --passes 10 --batch-size 8 --learning-rate 0.02"
    ),
}
_NETWORKS = {
    "network_lstm": "--model lstm --units 4 --device cpu --passes 1",
    "network_esn": "--model esn --units 8 --option rank=3 --device cpu --passes 1",
}
_LAST_STEP = 4


def _models() -> dict[str, esnlm.LanguageModel]:
    """Models on sentences of words, by name, without parameters."""
    softmax, moe = esnlm.SoftmaxReadout, esnlm.MixtureOfExpertsReadout

    def factored(classes: Any, solver: Any, words: Any = "softmax") -> Any:
        return esnlm.ClassFactoredReadout(
            class_readout=classes, word_readout=words, solver=solver, random_state=0
        )

    def experts(kind: str) -> Any:
        return moe(n_experts=2, experts=kind, max_iter=3, random_state=0)

    def low_rank(n_components: int, **direct: int) -> Any:
        return esnlm.LowRankReadout(n_components=n_components, random_state=0, **direct)

    readouts: dict[str, Any] = {
        "ridge": esnlm.RidgeReadout(),
        "softmax_newton": softmax(solver="newton-cg"),
        "softmax_incremental": softmax(solver="incremental"),
        "normalised": esnlm.NormalisedSoftmaxReadout(),
        "reduced_rank": esnlm.ReducedRankSoftmaxReadout(rank=3),
        "mixture_softmax": experts("softmax"),
        "mixture_linear": experts("linear"),
        "factored_separate_softmax": factored("softmax", "separate"),
        "factored_joint_softmax": factored("softmax", "joint"),
        "factored_separate_ridge": factored("ridge", "separate", "ridge"),
        "factored_joint_ridge": factored("ridge", "joint"),
        "factored_separate_moe": factored(experts("softmax"), "separate"),
        "factored_joint_moe": factored(moe(n_experts=2), "joint"),
        "low_rank": low_rank(6, n_direct=0),
        "low_rank_direct": low_rank(4, n_direct=2, n_ngrams=6),
    }
    reservoirs: dict[str, dict[str, Any]] = {
        "normalised": {"topology": "small_world"},
        "ridge_float64": {"dtype": "float64"},
    }
    readouts["ridge_float64"] = esnlm.RidgeReadout()
    features = {
        "word_features": esnlm.WordFeatures(n_features=4, random_state=0),
        "spectral_features": esnlm.SpectralWordFeatures(n_features=4, random_state=0),
    }
    readouts |= {name: esnlm.RidgeReadout() for name in features}
    return {
        name: esnlm.LanguageModel(
            esnlm.Reservoir(8, degree=3, random_state=0, **reservoirs.get(name, {})),
            readout, tokenizer="word", features=features.get(name), reset="sentence",
            random_state=0,
        )
        for name, readout in readouts.items()
    }  # fmt: skip


#: What each folder is, by its name.
KINDS = {
    **dict.fromkeys(_models(), "model"),
    "characters": "model",
    "token_gated": "model",
    "ngrams": "ngrams",
    "shards": "shards",
    "interrupted": "checkpoint",
}
if find_spec("torch"):
    KINDS |= {
        "network_lstm": "network",
        "network_esn": "model",
        "network_interrupted": "network checkpoint",
    }


@cache
def _home() -> TemporaryDirectory[str]:
    """A folder of all, which ends with this process. Another process writes them.

    Workers are forks of this one, which had better not have had threads.
    """
    home = TemporaryDirectory()
    subprocess.run([sys.executable, __file__, home.name], check=True, capture_output=True)
    return home


def folders() -> Path:
    """Folder of all the folders, by their names."""
    return Path(_home().name)


def write_folders(root: Path, names: Mapping[str, str] | list[str]) -> None:
    """Write the folders of these names into ``root``, and the shards."""
    sentences = [" ".join(words) for words in _sentences()]
    models = _models()
    text = root / "text.txt"
    text.write_text("\n".join(sentences) + "\n")
    options = "--tokenizer word --sentences line --out"
    _run("prepare", str(text), *options.split(), str(root / "shards"))
    text.unlink()
    for name in names:
        place = str(root / name)
        if name in models:
            models[name].fit(sentences).save(place)
        elif name == "ngrams":
            esnlm.NgramLanguageModel(order=3, tokenizer="word").fit(sentences).save(place)
        elif name in ("characters", "token_gated"):
            _of_characters(name).fit(" ".join(sentences)).save(place)
        elif name in _NETWORKS:
            _run("train", str(root / "shards"), *_NETWORKS[name].split(), "--out", place)
        elif name in STOPPED:
            _stop(root, name)


def _sentences() -> Any:
    return esnlm.ElmanGrammar().sample(120, random_state=0)


def _of_characters(name: str) -> esnlm.LanguageModel:
    readout = "gated" if name == "token_gated" else esnlm.SoftmaxReadout(n_passes=2)
    reservoir = esnlm.Reservoir(8, degree=3, activation="relu", random_state=0)
    return esnlm.LanguageModel(reservoir, readout, tokenizer="char", reset="never", random_state=0)


def _stop(root: Path, name: str) -> None:
    """Leave the checkpoint of a run that Ctrl-C stopped."""
    save = Checkpoints.save

    def save_and_stop(self: Checkpoints, step: int, *rest: Any) -> None:
        save(self, step, *rest)
        if step == _LAST_STEP:
            raise KeyboardInterrupt

    out = root / "stopped"
    arguments = ["train", str(root / "shards"), *STOPPED[name].split(), "--out", str(out)]
    with patch.object(Checkpoints, "save", save_and_stop):
        esnlm_main([*arguments, "--checkpoint-every", "0"])
    place = Path(f"{out}.checkpoints")
    place.rename(root / name)
    for step in sorted((root / name).glob("step-*"))[:-1]:
        for path in step.iterdir():
            path.unlink()
        step.rmdir()


def _run(*arguments: str) -> None:
    if status := esnlm_main(list(arguments)):
        raise SystemExit(status)


if __name__ == "__main__":
    write_folders(Path(sys.argv[1]), sys.argv[2:] or KINDS)
