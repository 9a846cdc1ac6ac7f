"""``esnlm text``: reservoirs beside Kneser-Ney n-grams on Penn Treebank and tiny Shakespeare.

Words are read sentence by sentence, each from a zero state; characters as one sequence. N-grams
are fitted and scored on the same tokens.
"""

import json
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from esnlm.commands.options.common import Folder, finish, group, option_name
from esnlm.commands.options.grid import Sizes, names, offsets, results_folder
from esnlm.commands.options.values import Cluster, integer, positive
from esnlm.experiments.common.grid import Row, run_grid_apart
from esnlm.readouts.registry import BY_OPTION

DATASETS = ("ptb", "tiny_shakespeare")
#: Longest n-gram of the baseline.
_ORDERS = {"word": 5, "char": 8}
#: With thousands of words a softmax over all of them is what costs: it is left out by default.
_DEFAULT_READOUTS = {"word": ("ridge", "factored"), "char": ("ridge", "softmax")}
_READOUTS: dict[str, dict[str, Any]] = {
    "ridge": {},
    "softmax": {"solver": "incremental", "n_passes": 4},
    "moe": {"random_state": 0},
    "factored": {"random_state": 0},
}
_KEY = ("dataset", "tokenizer", "model", "size", "settings")
COLUMNS = (
    *_KEY, "vocabulary", "n_train_tokens", "n_test_tokens", "nll_per_token", "perplexity",
    "bits_per_character", "unknown_share", "fit_seconds", "score_seconds", "n_parameters",
    "peak_rss_mib", "command", "commit",
)  # fmt: skip


@group()
class TextOptions:
    """Options of ``esnlm text``."""

    out: Folder = Path("text")
    """Folder of the CSV."""
    sizes: Sizes = (1000,)
    """Reservoir sizes."""
    spectral_radius: Annotated[float, positive("R")] = 0.97
    """Spectral radius of the recurrent weights."""
    input_scaling: Annotated[float, positive("S")] = 1.0
    """Deviation of the input weights."""
    degree: Annotated[int, integer("D", 1)] = 16
    """Mean recurrent in-degree of a unit."""
    datasets: Annotated[tuple[str, ...], names(DATASETS)] = DATASETS
    """Texts to model."""
    tokenizers: Annotated[tuple[str, ...], names(tuple(_ORDERS))] = tuple(_ORDERS)
    """What tokens are."""
    readouts: Annotated[tuple[str, ...], names(tuple(_READOUTS))] = ()
    """Readouts of the reservoirs (default: ridge, and factored of words or softmax of
    characters)."""
    ptb: Annotated[str | None, Parameter(metavar="FOLDER")] = None
    """Where Penn Treebank is (default: it is downloaded)."""
    tiny_shakespeare: Annotated[str | None, Parameter(metavar="FILE")] = None
    """Where tiny Shakespeare is (default: it is downloaded)."""
    cluster: Cluster = None


def text(*, options: TextOptions = TextOptions()) -> int:
    """Run what ``text.csv`` does not hold yet: 0 when all is done, 130 when interrupted."""
    from esnlm.experiments.text.run import read_texts

    places = {"ptb": options.ptb, "tiny_shakespeare": options.tiny_shakespeare}
    with results_folder(options.out):
        for dataset in options.datasets:  # a wrong file is refused now, not after other runs
            read_texts(dataset, places[dataset])
        rows = run_grid_apart(
            settings(options),
            "esnlm.experiments.text.run",
            options.out / "text.csv",
            key=_KEY,
            columns=COLUMNS,
            given=lambda setting: {"place": places[setting["dataset"]]},
            made={"command": _command(options)},
            cluster=options.cluster,
        )
    for row in rows:
        name = f"{row['dataset']} {row['tokenizer']} {row['model']} {row['size']}"
        print(f"{name:55} perplexity {row['perplexity']:<10.6g} nats {row['nll_per_token']:.4f}")
    finish(options.out / "text.csv")
    return 0


def settings(options: TextOptions) -> list[Row]:
    """Every run of the grid: n-grams first, then readouts by size."""
    made: list[Row] = []
    for dataset, tokenizer in product(options.datasets, options.tokenizers):
        orders = range(1, _ORDERS[tokenizer] + 1)
        runs = [("kneser-ney", order, "{}") for order in orders]
        for name in options.readouts or _DEFAULT_READOUTS[tokenizer]:
            parts = json.dumps({"reservoir": offsets(options), "readout": _READOUTS[name]})
            runs += [(BY_OPTION[name].class_name, size, parts) for size in options.sizes]
        made += [dict(zip(_KEY, (dataset, tokenizer, *run), strict=True)) for run in runs]
    return made


def _command(options: TextOptions) -> str:
    """The command with the options that decide on the results; places of files left out."""
    words = ["esnlm", "text"]
    for name in ("datasets", "tokenizers", "readouts", "sizes"):
        values = getattr(options, name)
        words += [f"--{name}", *map(str, values)] if values else []
    numbers = ("spectral_radius", "input_scaling", "degree")
    return " ".join(words + [f"{option_name(n)} {getattr(options, n):g}" for n in numbers])
