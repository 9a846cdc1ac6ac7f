"""Options that name a corpus, text or shards, and what they hold."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esnlm.commands.options.common import add_documents, usual_split

if TYPE_CHECKING:
    from esnlm.text.tokenizers import Tokenizer


def add_corpus(parser: argparse.ArgumentParser) -> None:
    """Declare the corpus, and what a token and a document are where it is text."""
    add = parser.add_argument
    add(
        "text",
        nargs="+",
        metavar="SHARDS|TEXT",
        help="a folder that prepare wrote; or UTF-8 files, plain or .gz, or folders of them",
    )
    add(
        "--tokenizer",
        metavar="word|char|FILE",
        help="of text: words, characters, or a tokenizer.json (default: word)",
    )
    add("--vocab-size", type=int, metavar="V", help="keep the most frequent tokens (default: all)")
    add("--lower", action="store_true", help="lower-case the text")
    add_documents(parser)
    add(
        "--reset",
        choices=("sentence", "document", "never"),
        help="where the state returns to zero (default: never for characters, else sentence)",
    )


def settle_reset(args: argparse.Namespace) -> None:
    """Refuse options that shards leave no choice of, and set ``args.reset`` where it is not."""
    if is_shards(args.text):
        if args.tokenizer or args.lower or args.vocab_size is not None or args.documents:
            raise ValueError(
                "--tokenizer, --vocab-size, --lower and --documents are of text: shards were cut"
                " in tokens by prepare"
            )
        if args.reset not in (None, "sentence"):
            raise ValueError(f"shards hold sentences: --reset must be sentence, got {args.reset}")
        if len(args.text) > 1:
            raise ValueError(f"expected one folder of shards, got {len(args.text)}")
    args.reset = args.reset or ("never" if args.tokenizer == "char" else "sentence")


def is_shards(names: list[str]) -> bool:
    """Whether the corpus is a folder of shards; text and shards together are refused."""
    found = [name for name in names if name and (Path(name) / "manifest.json").is_file()]
    if found and len(found) < len(names):
        raise ValueError(f"{found[0]} is a folder of shards, the rest is text: give one of them")
    return bool(found)


def corpus_documents(names: list[str], tokenizer: "Tokenizer", args: argparse.Namespace) -> Any:
    """What the names hold: a stream of shards, or documents of text."""
    from esnlm.text.corpus import TextCorpus

    if not is_shards(names):
        return TextCorpus(names, args.documents or usual_split(tokenizer, args.reset))
    from esnlm.text.shards import Shards

    if len(names) > 1:
        raise ValueError(f"expected one folder of shards, got {len(names)}")
    shards = Shards(names[0])
    if shards.tokenizer.to_json() != tokenizer.to_json():
        raise ValueError(f"the tokenizer of {names[0]} is not the one of the training text")
    return shards.stream()


def model_and_stream(args: argparse.Namespace) -> tuple[Any, Any]:
    """The model of a folder, and the tokens of text as it reads them."""
    from esnlm.loading import load_model
    from esnlm.text.corpus import TextCorpus

    model = load_model(args.model)
    if model.tokenizer_ is None:
        raise ValueError("the model was trained on integers and has no tokenizer to read text with")
    split = args.documents or usual_split(model.tokenizer_, model.reset)
    return model, model.tokenize(TextCorpus(args.text, split))


def corpus_tokenizer(args: argparse.Namespace) -> "Tokenizer":
    """The tokenizer of shards, that of a file, or one trained on the text."""
    from esnlm.text.corpus import TextCorpus
    from esnlm.text.tokenizers import Tokenizer

    if is_shards(args.text):
        from esnlm.text.shards import Shards

        tokenizer: Tokenizer = Shards(args.text[0], verify=False).tokenizer
        return tokenizer
    name = args.tokenizer or "word"
    options = {"lower": args.lower, "boundaries": args.reset != "never"}
    if name == "word":
        options["boundaries"] = True
        return Tokenizer.train_words(TextCorpus(args.text, "line"), args.vocab_size, **options)
    if name == "char":
        text = TextCorpus(args.text, "file")
        return Tokenizer.train_characters(text, args.vocab_size, **options)
    if args.lower or args.vocab_size is not None:
        raise ValueError("--lower and --vocab-size need --tokenizer word or char, not a file")
    return Tokenizer.from_file(name)
