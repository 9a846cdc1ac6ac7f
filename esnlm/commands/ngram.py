"""``esnlm ngram``: count the n-grams of text."""

import argparse
from pathlib import Path

from esnlm.commands.options.corpus import (
    add_corpus,
    corpus_documents,
    corpus_tokenizer,
    settle_reset,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add_corpus(parser)
    add("--out", type=Path, required=True, metavar="MODEL", help="folder to write")
    add("--overwrite", action="store_true", help="replace a model that is there")
    add("--order", type=int, default=5, metavar="N", help="longest n-gram (default: 5)")
    add(
        "--discounts",
        choices=("modified", "single"),
        default="modified",
        help="three an order (Chen & Goodman), or one (Kneser & Ney); default: modified",
    )


def run(args: argparse.Namespace) -> int:
    """Count and save; the exit status."""
    from esnlm.models.ngram import NgramLanguageModel
    from esnlm.storage.model_folder import check_target

    check_target(args.out, overwrite=args.overwrite)
    settle_reset(args)
    tokenizer = corpus_tokenizer(args)
    docs = corpus_documents(args.text, tokenizer, args)
    model = NgramLanguageModel(args.order, tokenizer, args.reset, discounts=args.discounts)
    model.fit(docs)
    model.save(args.out)
    print(f"{args.out}: {model.n_tokens_} tokens, {model.n_parameters_} n-grams")
    return 0
