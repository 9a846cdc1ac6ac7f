"""``esnlm compare``: networks trained on one corpus, side by side."""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from esnlm.commands.options.corpus import (
    add_corpus,
    corpus_documents,
    corpus_tokenizer,
    settle_reset,
)
from esnlm.commands.options.values import pair, separate

#: Nearest to Köster & Uchida's five sizes where published settings are.
_SIZES = (15_000, 30_000, 45_000, 103_000, 155_000)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add_corpus(parser)
    add("--held-out", nargs="+", required=True, metavar="SHARDS|TEXT", help="text to score")
    add("--blimp", type=Path, metavar="FOLDER", help="minimal pairs that the networks judge")
    add("--out", type=Path, default=Path("compare"), metavar="DIR",
        help="folder of the CSV, the table and the plot (default: compare)")  # fmt: skip
    add("--models", nargs="+", required=True, metavar="NAME[:SETTING=VALUE,...]",
        help="networks, as --model of train has them, in every size of --sizes unless settings"
        " decide it: lstm laerc:reservoir_gradient=true aerc:n_units=75,n_hidden=13"
        " esn:reservoir.n_units=1024,rank=64")  # fmt: skip
    add("--sizes", type=int, nargs="+", default=list(_SIZES), metavar="P",
        help="trained parameters, which settings are chosen for (default: those of paper 004)",
        )  # fmt: skip
    add("--default-size", action="store_true",
        help="each network in its own default settings, in the place of --sizes")  # fmt: skip
    add("--plan", nargs="+", default=[], metavar="NAME=VALUE",
        help="training of all networks where it is to differ from each one's recipe: epochs=1"
        " batch_size=256 learning_rate=1e-3")  # fmt: skip
    add("--seeds", type=int, default=1, metavar="K", help="runs of each, from seeds 0 to K - 1")
    add("--device", default="auto", metavar="NAME", help="auto (default), cpu, cuda or cuda:N")


def run(args: argparse.Namespace) -> int:
    """Run what ``compare.csv`` does not hold yet: 0 when all is done, 130 when interrupted."""
    from esnlm.torch.optional import require_torch

    require_torch("esnlm compare")
    from esnlm.commands.options.grid import check_least, interrupted, prepared_folder
    from esnlm.experiments.networks.compare import grid, run_comparison
    from esnlm.torch.device import chosen_device

    check_least("--sizes", args.sizes, 1)
    check_least("--seeds", [args.seeds], 1)
    chosen_device(args.device)
    settle_reset(args)
    entries = [_entry(text) for text in args.models]
    plan = _settings(args.plan, "--plan")
    tokenizer = corpus_tokenizer(args)
    sizes = [] if args.default_size else args.sizes
    one_text = args.reset == "never"
    rows = grid(entries, sizes, plan, args.seeds, len(tokenizer), one_text=one_text)
    command = f"esnlm {shlex.join(sys.argv[1:])}"
    with prepared_folder(args.out):
        streams = {
            part: _stream(names, tokenizer, args)
            for part, names in (("train", args.text), ("held_out", args.held_out))
        }
        try:
            done = run_comparison(
                rows,
                streams,
                tokenizer,
                args.out,
                reset=args.reset,
                blimp=args.blimp,
                device=args.device,
                command=command,
            )
        except KeyboardInterrupt:
            return interrupted(args.out)
    for row in done:
        size = f"{row['n_parameters']} parameters"
        judged = "" if row["blimp"] is None else f", BLiMP {100 * row['blimp']:.1f} %"
        print(f"{row['model']:12} {size:22} {row['held_out_nll']:.4f} nats a token{judged}")
    return 0


def _stream(names: list[str], tokenizer: Any, args: argparse.Namespace) -> Any:
    """Shards or text as one stream of tokens."""
    from esnlm.text.boundaries import framed
    from esnlm.text.corpus import TokenStream, join_sequences

    found: Any = corpus_documents(names, tokenizer, args)
    if isinstance(found, TokenStream):
        return found
    sequences = framed(found, tokenizer, args.reset)
    return join_sequences(sequences, n_tokens=len(tokenizer), reset=args.reset != "never")


def _entry(text: str) -> Any:
    from esnlm.experiments.networks.compare import Entry
    from esnlm.torch.networks.registry import network_class

    name, given, settings = text.partition(":")
    network_class(name)
    chosen = _settings(separate(settings), f"--models {name}") if given else {}
    _check_reservoir(chosen.get("reservoir", {}))
    return Entry(name, chosen)


def _check_reservoir(chosen: Any) -> None:
    from esnlm import Reservoir

    known = Reservoir._get_param_names()
    if not isinstance(chosen, dict):
        raise ValueError(f"reservoir is set by its parts, as in reservoir.n_units=9, got {chosen}")
    for name in chosen:
        if name not in known:
            raise ValueError(f"{name} is no setting of a reservoir, which has {', '.join(known)}")


def _settings(pairs: list[str], option: str) -> dict[str, Any]:
    """Values by name; a dot in a name leads into a mapping.

    >>> _settings(["rank=64", "reservoir.n_units=9", "schedule=cosine"], "--models esn")
    {'rank': 64, 'reservoir': {'n_units': 9}, 'schedule': 'cosine'}
    """
    found: dict[str, Any] = {}
    for text in pairs:
        try:
            name, value = pair(text)
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"{option}: {error}") from None
        *path, last = name.split(".")
        inner = found
        for part in path:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise ValueError(f"{option} has both {part} and {name}, one inside the other")
        inner[last] = value
    return found
