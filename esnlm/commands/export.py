"""``esnlm export``: a model as a folder that other libraries load."""

import argparse
from pathlib import Path

from esnlm.commands.console.messages import warn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="folder that train wrote")
    add("folder", type=Path, metavar="DIR", help="folder to write, which must not exist")
    add(
        "--format",
        choices=("hf",),
        default="hf",
        help="hf: AutoModelForCausalLM.from_pretrained(DIR, trust_remote_code=True) of Hugging"
        " Face transformers loads it, the model's code being in it (default)",
    )


def run(args: argparse.Namespace) -> int:
    """Load the model, write the folder; the exit status."""
    from esnlm.interop.huggingface import check_free, export_model
    from esnlm.loading import load_model

    check_free(args.folder)
    model = load_model(args.model)
    export_model(model, args.folder)
    if model.tokenizer_ is None:
        warn("the model was trained on integers: DIR has no tokenizer and reads token ids alone")
    print(f"wrote {args.folder}")
    return 0
