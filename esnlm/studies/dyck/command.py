"""``esnlm dyck``: fixed timescales against learned ones on nested brackets.

Section 3.2.3 of Mahto et al. (2021): an LSTM layer says after each bracket which closers may
come next. The baseline learns all its biases; the multi-timescale model has those of forget and
input gates fixed so that its units' timescales follow an inverse gamma distribution. Frozen
reservoirs of several laws of leak rates and readouts stand beside them.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

from esnlm.options.common import finish, results_folder
from esnlm.options.needs import check_needs
from esnlm.runs.grid import run_grid
from esnlm.runs.provenance import code_version
from esnlm.studies.dyck.options import RESERVOIRS, DyckOptions
from esnlm.torch import require_torch
from esnlm.utils import __version__
from esnlm.utils.messages import this_command

_KEY = ("model", "readout", "leak", "n_units", "seed")
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


def dyck(*, options: DyckOptions = DyckOptions()) -> int:
    """Run what ``dyck.csv`` does not hold yet, then plot: 0, or 130 when interrupted."""
    from esnlm.studies.dyck.reservoirs import check_reservoir
    from esnlm.studies.dyck.run import run_model

    has_reservoirs = not set(options.models).isdisjoint(RESERVOIRS)
    check_needs(options, ("readouts leaks", has_reservoirs, "esn or stack among --models"))
    if "attention" in options.readouts or not set(options.models) <= set(RESERVOIRS):
        require_torch("esnlm dyck")
        from esnlm.torch.device import chosen_device

        chosen_device(options.device)
    settings = list(_settings(options))
    for setting in settings:
        if setting["seed"] == 0 and setting["model"] in RESERVOIRS:
            check_reservoir(setting["model"], setting["n_units"], setting["leak"])
    origin = {"command": this_command(), "commit": code_version()}
    shared = (
        options.alpha, options.passes, options.batch_size, options.learning_rate, options.train,
        options.validation, options.test, options.max_length, __version__,
    )  # fmt: skip
    path = options.out / "dyck.csv"
    figure = None if options.no_plots else path.with_suffix(".png")
    with results_folder(options.out):
        rows = run_grid(
            settings,
            lambda setting: origin | run_model(options, setting),
            path,
            key=_KEY,
            columns=COLUMNS,
            fixed=dict(zip(_SHARED, shared, strict=True)),
            jobs=1,
            cluster=options.cluster,
        )
    for row in rows:
        name = " ".join(str(row[part]) for part in ("model", "leak", "readout") if row[part])
        print(f"{name:32} {row['n_units']:5} units  seed {row['seed']}  {row['right']:.2%}")
    if figure is not None:
        from esnlm.plots.figures import save
        from esnlm.studies.dyck.plots import dyck_figure

        save(dyck_figure(rows), figure)
    finish(path, figure)
    return 0


def _settings(options: DyckOptions) -> Iterator[dict[str, Any]]:
    """Yield the settings of all runs; LSTMs have neither readout nor law of leak rates."""
    leaks = dict.fromkeys(options.leaks or (f"inverse_gamma:{options.alpha:g}",))
    readouts, models = dict.fromkeys(options.readouts), dict.fromkeys(options.models)
    for size, seed, model in product(dict.fromkeys(options.units), range(options.seeds), models):
        pairs = product(leaks, readouts) if model in RESERVOIRS else [(None, None)]
        for leak, readout in pairs:
            yield dict(zip(_KEY, (model, readout, leak, size, seed), strict=True))
