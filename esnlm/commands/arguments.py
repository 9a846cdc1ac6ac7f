"""Options that commands share."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from esnlm.tokenizers import Tokenizer


def add_documents(parser: argparse.ArgumentParser) -> None:
    """Declare what a document is."""
    parser.add_argument(
        "--documents",
        choices=("blank_line", "line", "file"),
        help="what a document is (default: file where line ends are tokens, else blank_line)",
    )


def add_tokenizer(parser: argparse.ArgumentParser) -> None:
    """Declare what a token is."""
    add = parser.add_argument
    add(
        "--tokenizer",
        default="word",
        metavar="word|char|FILE",
        help="words, characters, or a tokenizer.json (default: word)",
    )
    add("--vocab-size", type=int, metavar="V", help="keep the most frequent tokens (default: all)")
    add("--lower", action="store_true", help="lower-case the text")


def chosen_tokenizer(args: argparse.Namespace, text: "Sequence[str]", reset: str) -> "Tokenizer":
    """The tokenizer of the options of `add_tokenizer`, trained on files where it is no file."""
    from esnlm.corpus import TextCorpus
    from esnlm.tokenizers import Tokenizer

    if args.tokenizer == "word":
        return Tokenizer.train_words(TextCorpus(text, "line"), args.vocab_size, lower=args.lower)
    if args.tokenizer == "char":
        whole = TextCorpus(text, "file")
        return Tokenizer.train_characters(
            whole, args.vocab_size, lower=args.lower, boundaries=reset != "never"
        )
    if args.lower or args.vocab_size is not None:
        raise ValueError("--lower and --vocab-size need --tokenizer word or char, not a file")
    return Tokenizer.from_file(args.tokenizer)


def usual_split(tokenizer: "Tokenizer", reset: str) -> str:
    """What a document is, unless the user says so; see `esnlm.corpus.TextCorpus`."""
    return "file" if tokenizer.keeps_newlines and reset == "never" else "blank_line"


def seed(text: str) -> int:
    """A seed of an option."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected an integer of at least 0, got {text!r}")
    return int(text)
