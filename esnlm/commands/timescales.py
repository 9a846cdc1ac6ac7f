"""``esnlm timescales``: how long the units of a trained LSTM remember."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esnlm.commands.options.common import add_documents
from esnlm.commands.options.corpus import model_and_stream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_UNIT_COLUMNS = ("layer", "unit", "assigned", "measured")
COLUMNS = (
    "model", "layer", "n_units", "fixed", "n_tokens", "median", "share_below_20", "longest",
    "closest_alpha", "ks_closest_alpha", "gaussian_mean", "ks_gaussian", "correlation",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="folder of a trained LSTM")
    add("text", nargs="+", metavar="TEXT", help="files, or folders of them, to average over")
    add("--csv", type=Path, metavar="FILE", help="also write the rows of the layers here")
    add("--units-csv", type=Path, metavar="FILE", help="write the timescales of all units here")
    add("--plot", type=Path, metavar="PNG", help="draw the distributions beside inverse gammas")
    add_documents(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print; the exit status."""
    from esnlm.storage.atomic import check_results, write_rows
    from esnlm.torch.optional import require_torch

    require_torch("esnlm timescales")
    check_results((args.csv, args.units_csv, args.plot), args.text)
    model, stream = model_and_stream(args)
    measured, assigned = _timescales(model, stream, args.model)
    rows = [
        _row(str(args.model), name, times, given, len(stream.tokens))
        for name, times, given in _groups(measured, assigned)
    ]
    for row in rows:
        print("  ".join(_shown(row)))
    if args.csv is not None:
        write_rows(args.csv, COLUMNS, rows)
    if args.units_csv is not None:
        write_rows(args.units_csv, _UNIT_COLUMNS, _unit_rows(measured, assigned))
    if args.plot is not None:
        from esnlm.experiments.timescales.plots import plot_timescales

        plot_timescales(measured, assigned, args.plot)
    return 0


def _timescales(model: Any, stream: Any, folder: Path) -> tuple[list[Any], list[Any]]:
    """Measured and assigned timescales of each layer, None where they were learned."""
    import numpy as np

    from esnlm.torch.language_model import TorchLanguageModel
    from esnlm.torch.networks.forget_gates import is_lstm, measured_timescales
    from esnlm.torch.networks.lstm import LSTM

    network = model.network if isinstance(model, TorchLanguageModel) else None
    if network is None or not is_lstm(network):
        raise ValueError(f"{folder} holds no LSTM: train one with --model lstm or mts-lstm")
    starts = [] if stream.starts is None else stream.starts[1:]
    measured = measured_timescales(network, np.split(stream.tokens, starts))
    if isinstance(network, LSTM):
        return measured, [None] * len(measured)
    return measured, [network.assigned_timescales(i) for i in range(len(measured))]


def _groups(measured: list[Any], assigned: list[Any]) -> list[tuple[str, Any, Any]]:
    """Each layer, counted from 1, and all together."""
    import numpy as np

    layers = [
        (str(number), times, given)
        for number, (times, given) in enumerate(zip(measured, assigned, strict=True), 1)
    ]
    if len(layers) == 1:
        return layers
    return [*layers, ("all", np.concatenate(measured), None)]


def _row(
    model: str, layer: str, times: "NDArray[np.float64]", assigned: Any, n_tokens: int
) -> dict[str, Any]:
    import numpy as np

    from esnlm.reservoir.timescales import closest_gaussian, closest_inverse_gamma

    alpha, distance = closest_inverse_gamma(times)
    mean, to_gaussian = closest_gaussian(times)
    correlation: Any = ""
    if assigned is not None:
        correlation = float(np.corrcoef(np.log(times), np.log(assigned))[0, 1])
    values = (
        model, layer, len(times), assigned is not None, n_tokens, float(np.median(times)),
        float((times < 20).mean()), float(times.max()), alpha, distance, mean, to_gaussian,
        correlation,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _shown(row: dict[str, Any]) -> list[str]:
    words = [f"layer {row['layer']:>3}", f"{row['n_units']:5} units"]
    words += [f"median {row['median']:.3g}", f"below 20: {row['share_below_20']:.1%}"]
    words.append(f"longest {row['longest']:.4g}")
    words.append(
        f"closest inverse gamma {row['closest_alpha']:g} (KS {row['ks_closest_alpha']:.3f})"
    )
    words.append(f"Gaussian {row['gaussian_mean']:g} (KS {row['ks_gaussian']:.3f})")
    if row["correlation"] != "":
        words.append(f"correlation with the assigned {row['correlation']:.3f}")
    return words


def _unit_rows(measured: list[Any], assigned: list[Any]) -> list[dict[str, Any]]:
    rows = []
    for layer, (times, given) in enumerate(zip(measured, assigned, strict=True), 1):
        for unit, time in enumerate(times.tolist()):
            fixed = "" if given is None else float(given[unit])
            values = (layer, unit, fixed, time)
            rows.append(dict(zip(_UNIT_COLUMNS, values, strict=True)))
    return rows
