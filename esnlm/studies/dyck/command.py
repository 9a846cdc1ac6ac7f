"""``esnlm dyck``: fixed timescales against learned ones on nested brackets.

Section 3.2.3 of Mahto et al. (paper 002): an LSTM layer says after each bracket which closers may
come next. The baseline learns all its biases; the multi-timescale model has those of forget and
input gates fixed so that its units' timescales follow an inverse gamma distribution. A reservoir
whose leak rates follow the same law, read out by ridge regression, stands beside them.
"""

import sys
from itertools import product
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from esnlm.options.common import Folder, Sizes, finish, group, names, results_folder
from esnlm.options.values import Cluster, integer, positive
from esnlm.runs.grid import run_grid
from esnlm.runs.provenance import code_version
from esnlm.torch import require_torch
from esnlm.utils import __version__

MODELS = ("baseline", "mts", "esn")
_KEY = ("model", "n_units", "seed")
_SHARED = (
    "alpha", "passes", "batch_size", "learning_rate", "train_sequences", "validation_sequences",
    "test_sequences", "max_length", "version",
)  # fmt: skip
COLUMNS = (
    *_KEY, "right", "validation_right", "train_loss", "validation_loss", "passes_run",
    "n_train_tokens", "n_test_tokens", "n_parameters", "ks_alpha", "closest_alpha",
    "ks_closest_alpha", "fit_seconds", "score_seconds", "device", "right_by_length",
    "right_by_distance", "timescale_quantiles", *_SHARED, "command", "commit",
)  # fmt: skip


@group()
class DyckOptions:
    """Options of ``esnlm dyck``; the defaults are the paper's."""

    out: Folder = Path("dyck")
    """Folder of CSV and plot."""
    models: Annotated[tuple[str, ...], names(MODELS)] = MODELS
    """Models to train."""
    units: Sizes = (256,)
    """Sizes of the layer."""
    seeds: Annotated[int, integer("K", 1)] = 20
    """Run seeds 0 .. K-1 on the same data."""
    alpha: Annotated[float, positive("A")] = 1.5
    """Shape of the inverse gamma law."""
    passes: Annotated[int, integer("N", 1)] = 2000
    """Most passes over the training sequences."""
    batch_size: Annotated[int, integer("N", 1)] = 32
    """Sequences a step."""
    learning_rate: Annotated[float, positive("R")] = 1e-4
    """Of Adam."""
    train: Annotated[int, integer("N", 1)] = 10_000
    """Sequences to train on."""
    validation: Annotated[int, integer("N", 1)] = 2000
    """Sequences that end training."""
    test: Annotated[int, integer("N", 1)] = 5000
    """Sequences to judge on."""
    max_length: Annotated[int, integer("L", 2)] = 200
    """Longest sequence, in brackets."""
    device: Annotated[str, Parameter(metavar="NAME")] = "auto"
    """Of the LSTMs: auto, cpu, cuda, cuda:N."""
    cluster: Cluster = None
    no_plots: bool = False
    """Write the CSV alone."""


def dyck(*, options: DyckOptions = DyckOptions()) -> int:
    """Run what ``dyck.csv`` does not hold yet, then plot: 0, or 130 when interrupted."""
    from esnlm.studies.dyck.run import run_model

    if set(options.models) != {"esn"}:
        require_torch("esnlm dyck")
        from esnlm.torch.device import chosen_device

        chosen_device(options.device)
    origin = {"command": "esnlm dyck " + " ".join(sys.argv[2:]), "commit": code_version()}
    models, sizes = dict.fromkeys(options.models), dict.fromkeys(options.units)
    shared = (
        options.alpha, options.passes, options.batch_size, options.learning_rate, options.train,
        options.validation, options.test, options.max_length, __version__,
    )  # fmt: skip
    path = options.out / "dyck.csv"
    figure = None if options.no_plots else path.with_suffix(".png")
    with results_folder(options.out):
        rows = run_grid(
            [
                {"model": model, "n_units": size, "seed": seed}
                for size, seed, model in product(sizes, range(options.seeds), models)
            ],
            lambda setting: origin | run_model(options, setting),
            path,
            key=_KEY,
            columns=COLUMNS,
            fixed=dict(zip(_SHARED, shared, strict=True)),
            jobs=1,
            cluster=options.cluster,
        )
    for row in rows:
        print(f"{row['model']:10} {row['n_units']:5} units  seed {row['seed']}  {row['right']:.2%}")
    if figure is not None:
        from esnlm.plots.figures import save
        from esnlm.studies.dyck.plots import dyck_figure

        save(dyck_figure(rows), figure)
    finish(path, figure)
    return 0
