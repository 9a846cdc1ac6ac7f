"""What do models reach in equal processor time? From unigrams to GPT-2 on one corpus.

    python benchmarks/ladder.py TRAIN --validation VAL --held-out DEV --blimp FOLDER \\
        --name "1 million words" --minutes 5 20 60 --models unigram kneser-ney direct reservoir lstm

TRAIN, VAL and DEV are shards of one tokenizer, as ``esnlm prepare`` makes them. Of the runs of a
model that fit a budget the row is the one with the least loss on VAL, training documents that are
not in TRAIN; DEV and the minimal pairs are scored for that one alone.
Each model is trained in a process of its own with one thread; its processor time, all of it, and
its peak memory are measured. Rows are in OUT/ladder.csv; models with a row there are skipped,
and the same command resumes an interrupted run.
`kenlm` and `faster-rnnlm` need --kenlm and --faster-rnnlm, folders where they are or will be built.
A mixture, such as ``esn+mlp+kn``, is made of the runs of its members.
OUT/ladder.md and OUT/ladder.png show the rows of all corpora, OUT/frozen.png those of frozen models
and n-grams; ``python benchmarks/ladder.py --draw`` writes the three again, and trains nothing.
"""

import argparse
import json
import math
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from _ladder_report import plot, plot_frozen, table
from _ladder_runs import SIZES, Runs, Trained, esnlm, first_row, scores_of, validation_of
from _measured import measured
from _report import commit, machine

from esnlm.runs.grid import read_rows, run_grid
from esnlm.storage.atomic import write_whole
from esnlm.text.shards import Shards

KEY = ("corpus", "model", "minutes", "seed")
BLIMP = ("blimp", "blimp_lower", "blimp_upper", "blimp_strict", "blimp_correct")
COLUMNS = (
    *KEY, "says", "units", "steps", "n_parameters", "processor_minutes", "wall_minutes",
    "tokens_per_second", "peak_memory_mib", "nll_validation", "nll_per_token", "nll_per_word",
    *BLIMP,
    "n_train_tokens", "n_held_out_tokens", "score_minutes", "trained_by", "command", "commit",
    "machine", "date",
)  # fmt: skip
_MEASURED = COLUMNS[COLUMNS.index("units") : COLUMNS.index("command")]


class Model(NamedTuple):
    """How a model is trained, and what fills its budget: see `Runs`."""

    says: str
    options: str = ""  #: of ``esnlm``; empty: a peer's own program
    fills: str = "once"
    #: Options of runs of up to three passes, and of longer ones.
    once: str = ""
    more: str = ""
    #: A mixture with Kneser-Ney 5-grams: the models that share the budget.
    mixes: tuple[str, ...] = ()


_ESN_I = "--units 384 --activation tanh --leak-rate uniform:0:1 --input-scaling 0.1"
_NETWORK = "--device cpu --plan bf16=true --plan pool=64 --learning-rate"
#: Settings of an LSTM from outside; other networks have them with another decay.
_OUTSIDE = (
    "--batch-size 128 --plan betas='[0.9,0.98]' --plan weight_decay=0.05 --plan clip=1"
    " --schedule warmup-hold-cosine --plan warmup=0.02"
)
_OTHERS = f"{_OUTSIDE} --plan decay_passes=6.2"
MODELS = {
    "unigram": Model("unigrams", "ngram --order 1"),
    "kneser-ney": Model("modified Kneser-Ney 5-gram", "ngram --order 5"),
    "kenlm": Model("the same by KenLM"),
    "direct": Model(
        "direct connections alone: last three tokens and n-grams, linear",
        "train --units 512 --spectral-radius 0 --input-scaling 0 --leak-rate 1",
    ),
    "default": Model("esnlm train as it is: 640 leaky units, direct connections", "train"),
    "traces": Model("with leaky traces: radius 0 with leak", "train", "units"),
    "reservoir": Model("with the reservoir", "train --topology offsets", "units"),
    "esn+mlp": Model(
        "with a nonlinear readout",
        "train --model esn+mlp --device cpu --plan bf16=true",
        "steps",
        more="--option token_dropout=0.3",
    ),
    "esn+i": Model(
        "ESN+i: 384 units, inputs trained, softmax in two levels",
        f"train --model esn+i {_ESN_I} --option two_level=true {_NETWORK} 0.01 {_OTHERS}",
        "steps",
        "--dropout 0.1",
        "--dropout 0.3 --plan decay_passes=3",
    ),
    "esn+mlp-trained": Model(
        "the same, its inputs trained through fixed decays",
        "train --model esn+mlp --device cpu --plan bf16=true --option trained_inputs=true",
        "steps",
        more="--option token_dropout=0.3",
    ),
    "lstm": Model(
        "LSTM, 384 units, softmax in two levels",
        f"train --model lstm --units 384 --option two_level=true {_NETWORK} 3e-3 {_OTHERS}",
        "steps",
        "--dropout 0",
        "--dropout 0.3 --plan decay_passes=3",
    ),
    "lstm-wide": Model(
        "LSTM, 512 units: size and settings of one written outside of this repository",
        f"train --model lstm --units 512 --option two_level=true {_NETWORK} 3e-3 {_OUTSIDE}",
        "steps",
        "--dropout 0",
    ),
    "gpt": Model(
        "GPT, 256 dimensions, 2 layers, rotary positions, Muon",
        f"train --model gpt --option n_layers=2 {_NETWORK} 8e-3 --plan optimizer=muon"
        " --plan decay_passes=0.28",
        "steps",
    ),
    "faster-rnnlm": Model("faster-rnnlm: 256 units, hashed 4-grams", fills="passes"),
}
_MIXED = ("esn+mlp", "lstm", "gpt", "esn+i")
_MEMBERS: dict[str, tuple[str, ...]] = {
    f"2-{name}": (name, name) for name in ("esn+mlp", "lstm", "gpt")
}
_MEMBERS["esn+mlp+gpt"] = ("esn+mlp", "gpt")
_MEMBERS["2-esn+mlp+gpt"] = ("esn+mlp", "esn+mlp", "gpt")
MODELS |= {
    f"{name}+kn": Model(says, fills="steps", mixes=mixes)
    for says, mixtures in (
        ("interpolated with Kneser-Ney 5-grams", {name: (name,) for name in _MIXED}),
        ("members of equal budgets, and Kneser-Ney 5-grams", _MEMBERS),
    )
    for name, mixes in mixtures.items()
}


def main() -> None:
    options = _options()
    path = options.out / "ladder.csv"
    if options.draw:
        _draw(path)
        return
    shards = Shards(options.train)
    n_predicted = shards.n_tokens - len(shards)
    name = options.name or options.train.name
    work = options.work or options.out / "running"
    runs = Runs(options.train, n_predicted, work / name.replace(" ", "-"), options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    about = {
        "command": shlex.join(["python", "benchmarks/ladder.py", *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
    }
    settings = [
        {"corpus": name, "model": model, "minutes": minutes, "seed": options.seed}
        for minutes in options.minutes
        for model in options.models
    ]
    run_grid(settings, partial(_row, runs, options, about), path, key=KEY, columns=COLUMNS, jobs=1)
    _draw(path)


def _draw(path: Path) -> None:
    """Write the table and the plots of the rows beside them."""
    rows = read_rows(path)
    names = list(MODELS)
    # Older rows have this model, and two weak rivals.
    names.insert(names.index("reservoir") + 1, "learned")
    write_whole(path.with_suffix(".md"), table(rows, [*names, "lstm-512", "gpt2", "esn+i-512"]))
    alone = [name for name in names if not name.endswith("+kn")]
    plot(rows, alone, path.with_suffix(".png"))
    plot_frozen(rows, path.with_name("frozen.png"))


def _row(
    runs: Runs, options: argparse.Namespace, about: dict[str, Any], setting: dict[str, Any]
) -> dict[str, Any]:
    """The measured columns of a row; empty where no run fits the budget."""
    from datetime import UTC, datetime

    name, budget = setting["model"], 60.0 * setting["minutes"]
    model = MODELS[name]
    shorter, settled = _shorter(options.out / "ladder.csv", setting)
    if shorter and (model.fills == "once" or (settled and model.fills == "steps")):
        return shorter
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    row = about | {"says": model.says, "date": date} | dict.fromkeys(_MEASURED)
    if model.options or model.mixes:
        trained, loss = _best(_runs(runs, name, budget, options), options.validation)
        if shorter and (trained is None or shorter["nll_validation"] <= loss):
            return shorter
        scored = trained and {"nll_validation": loss} | _scores(trained, options)
    else:
        trained, scored = _peer(runs, name, budget, options)
    if trained is None or scored is None:
        return row
    used = trained.used
    found = {
        "units": trained.units,
        "steps": trained.steps,
        "n_parameters": trained.n_parameters,
        "processor_minutes": round(used.seconds / 60, 3),
        "wall_minutes": round(used.wall / 60, 3),
        "tokens_per_second": round(trained.n_tokens / used.seconds, 1),
        "peak_memory_mib": used.peak_mib,
        "n_train_tokens": trained.n_tokens,
        "trained_by": trained.command,
    }
    return row | found | scored


def _shorter(path: Path, setting: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The best row of a smaller budget ({} if there is none), to stand in this one too.

    And whether it stood in for a longer run already: then it will for all that are longer still.
    """
    alike = [
        row
        for row in (read_rows(path) if path.exists() else ())
        if all(row[name] == setting[name] for name in KEY if name != "minutes")
        and row["minutes"] < setting["minutes"]
        and row["nll_per_token"] is not None
    ]
    if not alike:
        return {}, False
    best = min(alike, key=lambda row: (row["nll_validation"] or 0.0, row["minutes"]))
    settled = max(row["minutes"] for row in alike) > best["minutes"]
    return best | {"minutes": setting["minutes"]}, settled


def _runs(runs: Runs, name: str, budget: float, options: argparse.Namespace) -> Iterable[Trained]:
    """The runs of a model that fit the budget, growing."""
    model = MODELS[name]
    arguments = shlex.split(model.options)
    if "bf16=true" in arguments and not _has_bfloat16():
        arguments[arguments.index("bf16=true")] = "bf16=false"
    if model.mixes:
        return _mixtures(runs, name, budget, options)
    if model.fills == "steps":
        return runs.of_steps(name, arguments, budget, model.once, model.more)
    if model.fills == "units":
        return runs.of_units(name, arguments, budget, options.sizes)
    return runs.once(name, arguments, budget)


def _has_bfloat16() -> bool:
    import torch

    from esnlm.torch.device import has_bfloat16

    return has_bfloat16(torch.device("cpu"))


def _mixtures(
    runs: Runs, name: str, budget: float, options: argparse.Namespace
) -> Iterable[Trained]:
    """The mixture of members that share a budget, its weights found on the validation text.

    The second member of a name is the run of the next seed. The time of counting n-grams and of
    finding weights is added to that of the members.
    """
    mixes = MODELS[name].mixes
    members: list[Trained] = []
    for k, member in enumerate(mixes):
        of_seed = runs.of_seed(runs.seed + mixes[:k].count(member))
        members += _runs(of_seed, member, budget / len(mixes), options)
    members += _runs(runs, "kneser-ney", budget, options)
    if len(members) == len(mixes) + 1:
        yield runs.mixed(f"{name}-for-{budget:.0f}-s", members, options.validation)


def _best(trained: Iterable[Trained], validation: Path) -> tuple[Trained | None, float]:
    """The run with the least loss a token on text held out of training, and that loss.

    Runs come in growing order, and none is made after one that is worse than the one before.
    """
    best, least = None, math.inf
    for each in trained:
        loss = _validated(each, validation)
        if loss >= least:
            break
        best, least = each, loss
    return best, least


def _validated(trained: Trained, validation: Path) -> float:
    kept = validation_of(trained.folder)
    if not kept.exists():
        command = esnlm("evaluate", str(trained.folder), str(validation), "--csv", str(kept))
        measured(command, kept.with_suffix(".txt"))
    return float(first_row(kept)["nll_per_token"])


def _scores(trained: Trained, options: argparse.Namespace) -> dict[str, Any]:
    """Columns of losses and accuracies, by the commands that users have."""
    folder, kept = trained.folder, scores_of(trained.folder)
    note, text, pairs = kept / "scores.json", kept / "text.csv", kept / "pairs.csv"
    if note.exists():  # of an earlier budget, which the same run fits
        return dict(json.loads(note.read_text()))
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    command = esnlm("evaluate", str(folder), str(options.held_out), "--csv", str(text))
    seconds = measured(command, kept / "text.txt").seconds
    row = first_row(text)
    found: dict[str, Any] = {name: float(row[name]) for name in ("nll_per_token", "nll_per_word")}
    found["n_held_out_tokens"] = int(row["n_tokens"])
    if options.blimp is not None:
        command = esnlm("blimp", str(folder), "--data", str(options.blimp), "--csv", str(pairs))
        seconds += measured(command, kept / "pairs.txt").seconds
        row = first_row(pairs, level="overall")
        names = ("accuracy", "lower", "upper", "strict", "correct")
        for column, each in zip(BLIMP, names, strict=True):
            found[column] = float(row[each]) if row[each] else None  # no interval of few pairs
    found["score_minutes"] = round(seconds / 60, 3)
    note.write_text(json.dumps(found))
    return found


def _peer(
    runs: Runs, name: str, budget: float, options: argparse.Namespace
) -> tuple[Trained | None, dict[str, Any] | None]:
    import _ladder_peers as peers

    places = peers.Places(runs, getattr(options, name.replace("-", "_")))
    peers.build(name, places.programs)
    train = {"kenlm": peers.kenlm, "faster-rnnlm": peers.faster_rnnlm}[name]
    score = {"kenlm": peers.kenlm_scores, "faster-rnnlm": peers.faster_rnnlm_scores}[name]
    trained = train(places, budget)
    if trained is None:
        return None, None
    scored = partial(score, places, trained.folder)
    return trained, peers.peer_scores(scored, options.held_out, options.blimp, trained.folder)


def _options(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path, nargs="?", metavar="SHARDS")
    parser.add_argument("--draw", action="store_true", help="the rows of OUT again, without a run")
    parser.add_argument("--validation", type=Path, metavar="SHARDS",
                        help="training documents that are not in SHARDS, to choose by")  # fmt: skip
    parser.add_argument("--held-out", type=Path, metavar="SHARDS")
    parser.add_argument("--blimp", type=Path, metavar="FOLDER", help="minimal pairs")
    parser.add_argument("--name", help="of the corpus in tables (default: the folder's)")
    parser.add_argument("--minutes", type=float, nargs="+", default=[5.0, 20.0, 60.0])
    parser.add_argument(
        "--models",
        nargs="+",
        default=None,
        choices=MODELS,
        metavar="NAME",
        help=f"{', '.join(MODELS)} (default: those that need no program)",
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="UNITS",
                        help=f"of reservoirs (default: {' '.join(map(str, SIZES))})")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("reports/ladder"), metavar="FOLDER")
    parser.add_argument(
        "--work",
        type=Path,
        metavar="FOLDER",
        help="for models and notes of runs (default: OUT/running)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--kenlm", type=Path, metavar="FOLDER", help="with bin/lmplz, or to build it in"
    )
    parser.add_argument("--faster-rnnlm", type=Path, metavar="FOLDER",
                        help="with faster-rnnlm/rnnlm, or to build it in")  # fmt: skip
    options = parser.parse_args(given)
    if not options.draw and None in (options.train, options.validation, options.held_out):
        parser.error("SHARDS, --validation and --held-out are needed, or --draw alone")
    for name in ("kenlm", "faster-rnnlm"):
        folder = getattr(options, name.replace("-", "_"))
        if name in (options.models or ()) and folder is None:
            parser.error(f"--models {name} needs --{name}, the folder where it is or will be built")
    if options.models is None:
        options.models = [
            name
            for name, model in MODELS.items()
            if model.options or (not model.mixes and getattr(options, name.replace("-", "_")))
        ]
    if min(options.minutes) <= 0:
        parser.error(f"--minutes must be positive, got {min(options.minutes):g}")
    if list(options.sizes) != sorted({max(each, 1) for each in options.sizes}):
        parser.error(f"--sizes must be positive and grow, got {' '.join(map(str, options.sizes))}")
    return options


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt as stopped:
        print(stopped or "interrupted", file=sys.stderr)
        sys.exit(130)
