"""``esnlm train``: fit a model to shards or text, in closed form and its like or by gradient."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esnlm.commands import train_network
from esnlm.commands.options.common import seed
from esnlm.commands.options.corpus import (
    add_corpus,
    corpus_documents,
    corpus_tokenizer,
    is_shards,
    settle_reset,
)
from esnlm.commands.options.model import (
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
    from esnlm.models.reservoir import LanguageModel


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
    defaults = {name: parser.get_default(name) for name in train_network.RESERVOIR}
    parser.set_defaults(reservoir_defaults=defaults, **dict.fromkeys(defaults))
    add_readout(parser)
    _add_passes(parser)
    train_network.add_arguments(parser)


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
    from esnlm.storage.model_folder import check_target

    check_target(args.out, overwrite=args.overwrite or args.resume)
    shards = is_shards(args.text)
    args.reset_given = args.reset is not None
    settle_reset(args)
    if args.model is not None:
        return train_network.run(args)
    train_network.check_absent(args)
    _settle_reservoir(args)
    return _fit(args, in_passes=shards or _asks_for_passes(args))


def _fit(args: argparse.Namespace, in_passes: bool) -> int:
    """The core's reservoir and readout."""
    from esnlm import LanguageModel

    check_parts(args)
    tokenizer = corpus_tokenizer(args)
    settle_defaults(args, len(tokenizer))
    parts = make_reservoir(args), make_readout(args), tokenizer, make_features(args)
    model = LanguageModel(*parts, args.reset, random_state=args.seed, verbose=True)
    docs = corpus_documents(args.text, tokenizer, args)
    held_out = corpus_documents(args.held_out, tokenizer, args) if args.held_out else None
    if in_passes:
        return _in_passes(model, docs, held_out, args)
    model.fit(docs, held_out=held_out)
    model.save(args.out)
    print(f"{args.out}: {_summary(model)}")
    return 0


def _in_passes(model: "LanguageModel", docs: Any, held_out: Any, args: argparse.Namespace) -> int:
    from esnlm.commands.console.training_run import Running
    from esnlm.models.training import Trainer

    plan, running = _plan(args), Running.prepared(args)
    stream = model.read(docs)
    held = None if held_out is None else model.tokenize(held_out)

    def save() -> str:
        model.save(args.out)
        return _summary(model)

    return running.run(Trainer(model, stream, held, plan), save)


def _plan(args: argparse.Namespace) -> Any:
    from esnlm.models.training import TrainingPlan

    names = "chunk_tokens", "score_every", "held_out_tokens"
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return TrainingPlan(seed=args.seed, **given)


def _settle_reservoir(args: argparse.Namespace) -> None:
    """The defaults of the core, which networks do not share."""
    for name, value in args.reservoir_defaults.items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def _summary(model: "LanguageModel") -> str:
    return f"{model.n_tokens_} tokens, {model.n_parameters_} trained parameters"


def _asks_for_passes(args: argparse.Namespace) -> bool:
    names = "checkpoint_every", "log", "score_every", "held_out_tokens", "chunk_tokens"
    return args.resume or any(getattr(args, name) is not None for name in names)
