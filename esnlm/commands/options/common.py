"""Options that commands share."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from esnlm.text.tokenizers import Tokenizer


def add_documents(parser: argparse.ArgumentParser) -> None:
    """Declare what a document is."""
    parser.add_argument(
        "--documents",
        choices=("blank_line", "line", "file"),
        help="what a document is (default: file where line ends are tokens, else blank_line)",
    )


def add_device(parser: argparse.ArgumentParser) -> None:
    """Declare where a model computes."""
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="compute with torch on auto, cpu, cuda or cuda:N, also a reservoir with a softmax"
        " (default: networks on auto, all else without torch)",
    )


def usual_split(tokenizer: "Tokenizer", reset: str) -> str:
    """What a document is, unless the user says so; see `esnlm.text.corpus.TextCorpus`."""
    return "file" if tokenizer.keeps_newlines and reset == "never" else "blank_line"


def seed(text: str) -> int:
    """A seed of an option."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected an integer of at least 0, got {text!r}")
    return int(text)
