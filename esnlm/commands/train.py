"""``esnlm train``: fit a model to shards or text."""

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esnlm.commands.arguments import seed
from esnlm.commands.corpora import (
    add_corpus,
    corpus_documents,
    corpus_tokenizer,
    is_shards,
    settle_reset,
)
from esnlm.commands.parts import (
    add_readout,
    add_reservoir,
    check_parts,
    features,
    make_features,
    make_readout,
    make_reservoir,
    settle_defaults,
)

if TYPE_CHECKING:
    from esnlm.language_model import LanguageModel

_INTERRUPTED = 130
_MINUTES = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add_corpus(parser)
    add("--out", type=Path, required=True, metavar="MODEL", help="folder to write")
    add("--overwrite", action="store_true", help="replace a model or checkpoints that are there")
    add(
        "--held-out",
        nargs="+",
        metavar="SHARDS|TEXT",
        help="text to choose penalties and stops by, and to score along the way",
    )
    add(
        "--features",
        type=features,
        metavar="[spectral:]F",
        help="dimensions of word features that drive the reservoir, learned by gradient or, with"
        " spectral:, from bigram counts; 0: one-hot tokens (default: 0; from 5000 words on"
        " spectral:128)",
    )
    add("--seed", type=seed, default=0, help="the same seed, the same model (default: 0)")
    add_reservoir(parser)
    add_readout(parser)
    _add_passes(parser)


def _add_passes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "training in passes",
        "Shards are read in passes, a chunk at a time, and text too where one of these is given."
        " Interrupted runs go on from a checkpoint beside MODEL, and end in the same model.",
    )
    add = group.add_argument
    add("--resume", action="store_true", help="go on from the last checkpoint, if there is one")
    add(
        "--checkpoint-every",
        type=float,
        metavar="MINUTES",
        help="time between checkpoints; 0: after every chunk (default: 10)",
    )
    add("--log", type=Path, metavar="CSV", help="file for the held-out losses along the way")
    add(
        "--score-every",
        type=int,
        metavar="TOKENS",
        help="between held-out losses; 0: after passes (default: a tenth of a pass, or a pass)",
    )
    add(
        "--held-out-tokens",
        type=int,
        metavar="T",
        help="held-out tokens that are scored, taken evenly (default: 32768)",
    )
    add("--chunk-tokens", type=int, metavar="T", help="tokens of a chunk (default: 65536)")


def run(args: argparse.Namespace) -> int:
    """Fit and save; the exit status."""
    from esnlm import LanguageModel
    from esnlm.persistence import check_target

    check_target(args.out, overwrite=args.overwrite or args.resume)
    shards = is_shards(args.text)
    settle_reset(args)
    check_parts(args)
    tokenizer = corpus_tokenizer(args)
    settle_defaults(args, len(tokenizer))
    parts = make_reservoir(args), make_readout(args), tokenizer, make_features(args)
    model = LanguageModel(*parts, args.reset, random_state=args.seed, verbose=True)
    docs = corpus_documents(args.text, tokenizer, args)
    held_out = corpus_documents(args.held_out, tokenizer, args) if args.held_out else None
    if shards or _asks_for_passes(args):
        return _in_passes(model, docs, held_out, args)
    model.fit(docs, held_out=held_out)
    model.save(args.out)
    print(_summary(args.out, model))
    return 0


def _in_passes(model: "LanguageModel", docs: Any, held_out: Any, args: argparse.Namespace) -> int:
    from esnlm.checkpoints import Checkpoints
    from esnlm.commands.signals import stopping
    from esnlm.training import StoppedError, Trainer
    from esnlm.training_log import TrainingLog

    every = _MINUTES if args.checkpoint_every is None else args.checkpoint_every
    if not (math.isfinite(every) and every >= 0):
        raise ValueError(f"--checkpoint-every must be at least 0, got {every}")
    plan, log = _plan(args), TrainingLog(args.log)
    log.check()
    checkpoints = Checkpoints(Path(f"{args.out}.checkpoints"))
    if checkpoints.exists() and not args.resume:
        if not args.overwrite:
            raise FileExistsError(
                f"{checkpoints.folder} holds a checkpoint of a run that did not end: pass"
                " --resume to go on, or --overwrite to start again"
            )
        checkpoints.remove()
    stream = model.read(docs)
    held = None if held_out is None else model.tokenize(held_out)
    trainer = Trainer(model, stream, held, plan)
    if args.resume and not checkpoints.exists() and _is_done(args.out, trainer):
        print(f"{args.out} is whole: there is nothing to resume")
        return 0
    with stopping() as stop:
        try:
            trainer.run(
                checkpoints,
                resume=args.resume,
                save_every=60 * every,
                log=log,
                stop=stop,
                verbose=True,
            )
        except StoppedError:
            return _stopped(trainer.step)
        model.save(args.out)
        checkpoints.remove()
    score = trainer.last_score
    told = "" if score is None else f", held-out loss {score:.4f} nats a token"
    print(_summary(args.out, model) + told)
    return 0


def _plan(args: argparse.Namespace) -> Any:
    from esnlm.training import TrainingPlan

    names = "chunk_tokens", "score_every", "held_out_tokens"
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return TrainingPlan(seed=args.seed, **given)


def _is_done(folder: Path, trainer: Any) -> bool:
    """Whether the run that is to be resumed has left its model already."""
    from esnlm.persistence import read_config

    if not (folder / "config.json").is_file():
        return False
    if read_config(folder).get("run") != trainer.digest():
        raise FileExistsError(
            f"{folder} is a model of another run, and there is no checkpoint to resume from:"
            " choose another folder, or pass --overwrite"
        )
    return True


def _stopped(step: int) -> int:
    from esnlm.commands.messages import note

    note(f"interrupted after step {step}: the same command with --resume goes on from there")
    return _INTERRUPTED


def _summary(folder: Path, model: "LanguageModel") -> str:
    return f"{folder}: {model.n_tokens_} tokens, {model.n_parameters_} trained parameters"


def _asks_for_passes(args: argparse.Namespace) -> bool:
    names = "checkpoint_every", "log", "score_every", "held_out_tokens", "chunk_tokens"
    return args.resume or any(getattr(args, name) is not None for name in names)
