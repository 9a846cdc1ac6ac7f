"""``esnlm ngram``: count the n-grams of text."""

import argparse
from pathlib import Path

from esnlm.commands.arguments import add_documents, add_tokenizer, chosen_tokenizer, usual_split


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("text", nargs="+", metavar="TEXT", help="UTF-8 files, plain or .gz, or folders of them")
    add("--out", type=Path, required=True, metavar="MODEL", help="folder to write")
    add("--overwrite", action="store_true", help="replace a model that is there")
    add("--order", type=int, default=5, metavar="N", help="longest n-gram (default: 5)")
    add(
        "--discounts",
        choices=("modified", "single"),
        default="modified",
        help="three an order (Chen & Goodman), or one (Kneser & Ney); default: modified",
    )
    add(
        "--reset",
        choices=("sentence", "document", "never"),
        help="where contexts begin anew (default: never for characters, else sentence)",
    )
    add_tokenizer(parser)
    add_documents(parser)


def run(args: argparse.Namespace) -> int:
    """Count and save; the exit status."""
    from esnlm.corpus import TextCorpus
    from esnlm.ngram_model import NgramLanguageModel
    from esnlm.persistence import check_target

    check_target(args.out, overwrite=args.overwrite)
    reset = args.reset or ("never" if args.tokenizer == "char" else "sentence")
    tokenizer = chosen_tokenizer(args, args.text, reset)
    docs = TextCorpus(args.text, args.documents or usual_split(tokenizer, reset))
    model = NgramLanguageModel(args.order, tokenizer, reset, discounts=args.discounts).fit(docs)
    model.save(args.out)
    print(f"{args.out}: {model.n_tokens_} tokens, {model.n_parameters_} n-grams")
    return 0
