"""Help of ``esnlm``: panels of commands, examples, and options that a short page shows."""

from typing import Any

#: Panels of the help, and their commands.
PANELS = {
    "Text": ("prepare",),
    "Models": ("train", "search", "compare", "ngram", "interpolate", "generate", "export", "serve"),
    "Scoring": ("evaluate", "blimp", "syntaxgym", "reading", "report"),
    "Studies": (
        "elman", "controls", "natural", "shakespeare", "dyck", "timescales", "ablation",
    ),
}  # fmt: skip

EXAMPLES = {
    "prepare": "esnlm prepare texts/ --tokenizer bpe:8192 --out shards/train",
    "train": "esnlm train book.txt --held-out other.txt --units 500 --out model",
    "search": "esnlm search space.toml book.txt --out found",
    "compare": "esnlm compare text.txt --held-out test.txt --tokenizer char --models char-esn aerc"
    " --out compare",
    "ngram": "esnlm ngram book.txt --order 5 --out kn5",
    "interpolate": "esnlm interpolate model kn5 --held-out dev.txt --out both",
    "generate": 'esnlm generate model --prompt "the company" --tokens 40 --temperature 0.8',
    "export": "esnlm export model hf-model",
    "serve": "esnlm serve model",
    "evaluate": "esnlm evaluate model test.txt --interpolate kn5 --held-out dev.txt"
    " --csv scores.csv",
    "blimp": "esnlm blimp model --data blimp/ --csv blimp.csv --plot blimp.png",
    "syntaxgym": "esnlm syntaxgym model kn5 --suites syntaxgym/ --csv suites.csv",
    "reading": "esnlm reading model kn5 --corpus natural-stories --out reading",
    "report": "esnlm report model --out report.html",
    "elman": "esnlm elman --sizes 25 50 100 --readouts ridge softmax --seeds 3 --out elman",
    "controls": "esnlm controls shards/train --held-out shards/dev --out controls",
    "natural": "esnlm natural shards/train --held-out shards/dev --name size --sizes 512 1024"
    " --out reports",
    "shakespeare": "esnlm shakespeare texts/ --models windows carried --out shakespeare",
    "dyck": "esnlm dyck --units 64 --out dyck",
    "timescales": "esnlm timescales mts text.txt --plot timescales.png",
    "ablation": "esnlm ablation model text.txt --plot ablation.png",
}


#: Options that the short help of a command shows; ``--help-all`` shows all.
ESSENTIALS = {
    "train": (
        "--out", "--recipe", "--held-out", "--overwrite", "--seed", "--tokenizer",
        "--readout", "--alpha", "--units", "--leak-rate", "--model", "--resume", "--log",
        "--checkpoint-every",
    ),
}  # fmt: skip


def short_help(command: str) -> Any:
    """Return what prints the help of a command without its less common options."""
    from cyclopts.help import DefaultFormatter, HelpPanel

    names = {"SHARDS|TEXT", *ESSENTIALS[command]}

    class ShortHelp(DefaultFormatter):
        def __call__(self, console: Any, options: Any, panel: Any) -> None:
            """Print a panel, without its text, where an option of it is shown."""
            if entries := [entry for entry in panel.entries if names & {*entry.positive_names}]:
                brief = HelpPanel(panel.format, panel.title, "", entries)
                super().__call__(console, options, brief)

    return ShortHelp()
