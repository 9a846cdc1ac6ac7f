"""``esnlm search``: settings of ``esnlm train`` found by trials, judged on held-out text."""

import math
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import CycloptsError, Parameter

from esnlm.options.common import finish, option_name, results_folder, set_options
from esnlm.options.recipes import setting_names, train_options, words
from esnlm.options.search import SearchOptions
from esnlm.storage.results import write_rows
from esnlm.utils.messages import log

if TYPE_CHECKING:
    from esnlm.search.space import Settings, Space
    from esnlm.search.study import Best, Executor, Search
    from esnlm.search.trial_models import TrialModels

_FILES = ("trials.csv", "best.toml", "importance.csv", "importance.png", "test.csv")
_TEST_COLUMNS = ("settings", "seed", "nats", "perplexity", "floor", "trial", "version")
# Where they differ, nats a token do not compare.
_ONE_VALUE = ("tokenizer", "vocab-size", "lower", "documents")
_SPACE = Annotated[
    Path, Parameter("SPACE", help="A TOML file of fixed values, ranges and choices of options.")
]
_TEXT = Annotated[
    tuple[str, ...],
    Parameter("SHARDS|TEXT", help="As in train; none with --task elman."),
]


def search(space: _SPACE, text: _TEXT = (), /, *, options: SearchOptions) -> int:
    """Run trials, write what they found, say which setting mattered; the exit status."""
    if find_spec("optuna") is None:
        raise ValueError("esnlm search needs optuna: pip install 'esnlm[search]'")
    from esnlm.search.space import read_space
    from esnlm.search.study import Search, SearchPlan, check_plan
    from esnlm.search.trial_models import TrialModels, executor

    plan = SearchPlan(options.sampler, options.pruner, options.seed, options.at_once)
    settings = read_space(space, setting_names())
    try:
        check_plan(plan, settings)
        _check_settings(settings)
    except (CycloptsError, ValueError) as error:
        raise ValueError(f"{space}: {str(error).removeprefix('Invalid value for ')}") from None
    _check_data(text, options)
    with (
        results_folder(options.out, "the same command with --resume"),
        executor(options.cluster) as (over, usual),
    ):
        _make_room(options)
        trials = TrialModels(settings, text, options)
        resume = options.resume
        study = Search(options.out, settings, plan, trials.facts, resume=resume, usual=usual)
        _write(study, options)
        for _ in study.run(trials, options.trials, options.minutes, over):
            _report(study)
            _write(study, options)
        _conclude(study, trials, options, over)
    finish(*(options.out / name for name in _FILES))
    return 0


def _check_settings(space: "Space") -> None:
    """Refuse settings that no trial could be made of, before any text is read."""
    for name in space.free():
        if name.rpartition(".")[2] in _ONE_VALUE:
            raise ValueError(f"{name} must have one value: nats a token of other tokens differ")
    for settings in space.examples():
        options = train_options(settings)
        for name in set_options(options.network):
            raise ValueError(
                f"{name.replace('_', '-')} is of networks trained by gradient: esnlm search tries"
                " settings of reservoirs and readouts alone"
            )
        options.check_model()


def _check_data(text: tuple[str, ...], options: SearchOptions) -> None:
    """Raise ValueError where options, task and texts do not fit together."""
    from esnlm.search.trial_models import held_out_share
    from esnlm.text.source import open_source

    if options.resume and options.overwrite:
        raise ValueError("--resume continues a search, --overwrite replaces it: give one of them")
    share = held_out_share(options.held_out)
    if options.task == "elman":
        for name, value in set_options(options.corpus).items():
            if value is not False and name != "reset":
                raise ValueError(f"{option_name(name)} is of text, not of --task elman")
        if text or options.test or share is None:
            raise ValueError("--task elman draws its sentences, and no text can be given")
        return
    if not text:
        raise ValueError("a text or shards must be given, or --task elman")
    if options.test_seeds is not None and not options.test:
        raise ValueError("--test-seeds needs --test TEXT")
    options.corpus.check(open_source(text), open_source(options.held_out) if not share else None)


def _make_room(options: SearchOptions) -> None:
    """Refuse a folder that holds something else, or a search that is not to be touched."""
    from esnlm.search.study import JOURNAL

    if options.overwrite and (options.out / JOURNAL).exists():
        for name in (JOURNAL, *_FILES):
            (options.out / name).unlink(missing_ok=True)
    there = sorted(path.name for path in options.out.iterdir() if path.name[0] != ".")
    if JOURNAL in there and not options.resume:
        raise FileExistsError(
            f"{options.out} holds a search: pass --resume to continue it, or --overwrite to start"
            " again"
        )
    if there and JOURNAL not in there:
        raise FileExistsError(f"{options.out} holds {there[0]} and no search: name another folder")


def _report(study: "Search") -> None:
    """Say how the last trial ended."""
    row, best = study.rows()[-1], study.best
    if row["state"] == "failed":
        log.info(f"trial {row['trial']} failed: {row['message']}")
        return
    loss = f"{row['nats']:.4f} nats a token"
    if row["state"] == "pruned":
        loss = f"stopped after {row['share']:g} of the text, {loss}"
    least = "" if best is None else f"; the best, {best.number}, has {best.loss:.4f}"
    log.info(f"trial {row['trial']}: {loss}, {row['seconds']:.1f} s{least}")


def _write(study: "Search", options: SearchOptions) -> None:
    """Write the rows of the trials, and the best settings so far."""
    from esnlm.search.space import written
    from esnlm.storage.atomic import write_whole

    write_rows(options.out / "trials.csv", study.columns(), study.rows())
    best = study.best
    if best is None:
        return
    of_text = {n.replace("_", "-"): v for n, v in set_options(options.corpus).items() if v}
    settings = of_text | best.settings
    lines = [f"# {best.loss:.4f} nats a token held out, trial {best.number} of esnlm search"]
    if options.task == "text":
        command = shlex.join(["esnlm", "train", "TEXT", *words(settings), "--out", "MODEL"])
        lines.append(f"# {command}")
    write_whole(options.out / "best.toml", "\n".join([*lines, written(settings), ""]))


def _conclude(
    study: "Search", trials: "TrialModels", options: SearchOptions, over: "Executor"
) -> None:
    """Say what was found and what mattered, and draw it; score the test text."""
    from esnlm.search.importance import COLUMNS, importances, plot_importances

    rows, best, free = study.rows(), study.best, study.space.free()
    n_pruned, n_failed = (
        sum(row["state"] == state for row in rows) for state in ("pruned", "failed")
    )
    if best is None:
        last = f": {rows[-1]['message']}" if rows and "message" in rows[-1] else ""
        raise ValueError(f"none of {len(rows)} trials was completed{last}")
    print(
        f"{options.out}: {len(rows)} trials, {n_pruned} stopped early, {n_failed} failed; the best,"
        f" {best.number}, has {best.loss:.4f} nats a token"
    )
    floors = trials.corpora().floors
    if floors is not None:
        ratio = math.exp(best.loss - floors[0])
        print(f"the oracle has {floors[0]:.4f}: {ratio:.4f} times its perplexity")
    shares = importances(study.trials, free, options.seed)
    if shares:
        write_rows(options.out / "importance.csv", COLUMNS, shares)
        plot_importances(shares, study.trials, free, options.out / "importance.png")
        listed = ", ".join(f"{row['parameter']} {row['importance']:.2f}" for row in shares)
        print(f"what mattered (share of the variance of the losses): {listed}")
    print(f"best settings: {' '.join(words(best.settings))}")
    if options.test or options.test_seeds:
        _test(best, study.space.fixed(), trials, options, over)


def _test(
    best: "Best",
    defaults: "Settings",
    trials: "TrialModels",
    options: SearchOptions,
    over: "Executor",
) -> None:
    """Train the best settings and the defaults with other seeds, and score the test text once."""
    from esnlm.runs.provenance import code_version
    from esnlm.search.trial_models import loss_on_test

    rows: list[dict[str, Any]] = []
    version, settings = code_version(), {"found": best.settings, "defaults": defaults}
    runs = [(name, seed) for name in settings for seed in range(options.test_seeds or 3)]
    scores = over("test", loss_on_test, trials, [(settings[name], seed) for name, seed in runs])
    for (name, seed), (loss, floor) in zip(runs, scores, strict=True):
        values = name, seed, loss, math.exp(loss), floor, best.number, version
        rows.append(dict(zip(_TEST_COLUMNS, values, strict=True)))
        log.info(f"test text, {name}, seed {seed}: {loss:.4f} nats a token")
        write_rows(options.out / "test.csv", _TEST_COLUMNS, rows)
    for name in settings:
        losses = [row["nats"] for row in rows if row["settings"] == name]
        listed = ", ".join(f"{loss:.4f}" for loss in losses)
        print(f"test text, {name}: {sum(losses) / len(losses):.4f} nats a token ({listed})")
