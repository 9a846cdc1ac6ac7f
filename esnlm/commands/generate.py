"""``esnlm generate``: continue a prompt."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from esnlm.commands.console.messages import warn
from esnlm.commands.options.common import add_device, seed

if TYPE_CHECKING:
    from esnlm.text.tokenizers import Tokenizer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="folder that train or ngram wrote")
    add("--prompt", default="", metavar="TEXT", help="text to continue (default: none)")
    add("--tokens", type=int, default=200, metavar="N", help="tokens to draw (default: 200)")
    add(
        "--temperature",
        type=float,
        default=1.0,
        metavar="T",
        help="divides log-probabilities; 0 takes the most probable token (default: 1)",
    )
    add("--top-k", type=int, metavar="K", help="draw among the K most probable tokens")
    add("--top-p", type=float, metavar="P", help="draw among the fewest tokens that add up to P")
    add_device(parser)
    add("--seed", type=seed, help="the same seed, the same text")


def run(args: argparse.Namespace) -> int:
    """Write the text as it is drawn; the exit status."""
    from esnlm.loading import load_model
    from esnlm.models.sampling import Choice, text_pieces
    from esnlm.text.boundaries import framed_prefix

    choice = Choice(args.temperature, args.top_k, args.top_p, args.seed)
    model = load_model(args.model, args.device)
    if model.tokenizer_ is None:
        drawn = model.generate(args.tokens, _integers(args.prompt), choice)
        pieces: Iterable[str] = (f" {token}" for token in drawn)
    else:
        before = framed_prefix(args.prompt, model.tokenizer_, model.reset)
        drawn = model.generate(args.tokens, args.prompt, choice)
        pieces = text_pieces(model.tokenizer_, before, drawn)
        _tell_unknown(model.tokenizer_, args.prompt)
    print(_shown(model.tokenizer_, args.prompt), end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
    return 0


def _integers(prompt: str) -> list[int]:
    try:
        return [int(token) for token in prompt.split()]
    except ValueError:
        raise ValueError(
            f"the model was trained on integers: --prompt must be integers, got {prompt!r}"
        ) from None


def _shown(tokenizer: "Tokenizer | None", prompt: str) -> str:
    """The prompt, less spaces at its end that the model does not read but writes."""
    bare = prompt.rstrip()
    if tokenizer is not None and len(tokenizer.encode(bare)) == len(tokenizer.encode(prompt)):
        return bare
    return prompt


def _tell_unknown(tokenizer: "Tokenizer", prompt: str) -> None:
    if tokenizer.unk_id is None:
        return
    ids = tokenizer.encode(prompt)
    n_unknown = int((ids == tokenizer.unk_id).sum())
    if n_unknown:
        warn(
            f"the model knows {len(ids) - n_unknown} of the {len(ids)} tokens of the prompt: it"
            " reads the others as the unknown token"
        )
