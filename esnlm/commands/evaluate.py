"""``esnlm evaluate``: score text with a model."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from esnlm.commands.arguments import add_documents, usual_split

if TYPE_CHECKING:
    from esnlm.language_model import LanguageModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="folder that train wrote")
    parser.add_argument("text", nargs="+", metavar="TEXT", help="one row of the result for each")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the rows here")
    add_documents(parser)


def run(args: argparse.Namespace) -> int:
    """Score and print; the exit status."""
    from esnlm import LanguageModel
    from esnlm.evaluation import COLUMNS, check_csv, evaluate_texts, write_rows

    if args.csv is not None:
        check_csv(args.csv)
    model = LanguageModel.load(args.model)
    split = args.documents or _split_of(model)
    rows = evaluate_texts(model, args.text, split)
    for row in rows:
        row["model"] = str(args.model)
        for name in COLUMNS[1:]:
            value = row[name]
            print(f"{name:20}  {value:.6g}" if isinstance(value, float) else f"{name:20}  {value}")
    if args.csv is not None:
        write_rows(args.csv, rows)
    return 0


def _split_of(model: "LanguageModel") -> str:
    if model.tokenizer_ is None:
        raise ValueError("the model was trained on integers and has no tokenizer to read text with")
    return usual_split(model.tokenizer_, model.reset)
