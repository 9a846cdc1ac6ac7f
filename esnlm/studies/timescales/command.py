"""``esnlm timescales``: how long the units of a trained LSTM remember."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from esnlm.options.common import (
    Documents,
    File,
    Model,
    ResultOptions,
    Texts,
    finish,
    group,
)
from esnlm.options.corpus import model_and_stream
from esnlm.storage.results import results, write_rows
from esnlm.torch import require_torch
from esnlm.utils.arrays import Floats

COLUMNS = (
    "model", "layer", "n_units", "fixed", "n_tokens", "median", "share_below_20", "longest",
    "closest_alpha", "ks_closest_alpha", "gaussian_mean", "ks_gaussian", "correlation",
)  # fmt: skip


@group()
class TimescalesOptions(ResultOptions):
    """Options of ``esnlm timescales``."""

    csv: File | None = None
    """Also write the rows of the layers here."""
    units_csv: File | None = None
    """Write the timescales of all units here."""
    plot: Annotated[Path | None, Parameter(metavar="PNG")] = None
    """Draw the distributions here."""
    documents: Documents = None


def timescales(
    model: Model, text: Texts, /, *, options: TimescalesOptions = TimescalesOptions()
) -> int:
    """Measure and print; the exit status."""
    require_torch("esnlm timescales")
    with tables(options, COLUMNS, "measured", (model, *text)) as write:
        loaded, stream = model_and_stream(model, text, options.documents)

        from esnlm.torch.networks.multi_timescale_lstm import is_lstm, measured_timescales

        network = getattr(loaded, "network", None)
        if network is None or not is_lstm(network):
            raise ValueError(f"{model} holds no LSTM: train one with --model lstm or mts-lstm")
        starts = [] if stream.starts is None else stream.starts[1:]
        measured = measured_timescales(network, np.split(stream.tokens, starts))
        assigned = assigned_timescales(loaded, len(measured))
        layers: list[tuple[Any, Any, Any]] = list(zip(count(1), measured, assigned, strict=False))
        if len(layers) > 1:
            layers.append(("all", np.concatenate(measured), None))
        rows = [_row(str(model), *layer, n_tokens=len(stream.tokens)) for layer in layers]
        for row in rows:
            print("  ".join(_shown(row)))
        write(rows, measured, assigned)
        if options.plot is not None:
            from esnlm.studies.timescales.plots import plot_timescales

            plot_timescales(measured, assigned, options.plot)
    finish(options.csv, options.units_csv, options.plot)
    return 0


@contextmanager
def tables(
    options: TimescalesOptions,
    columns: tuple[str, ...],
    name: str,
    read: tuple[str | Path, ...],
) -> Iterator[Callable[[list[dict[str, Any]], list[Any], list[Any]], None]]:
    """Hold the CSVs and the plot that were asked for; the function yielded writes the CSVs.

    None is among what is ``read``.
    Of the rows of layers, and of the timescales of all units, measured as column ``name`` and
    assigned, which is empty where it was learned.
    """
    of_units = "layer", "unit", "assigned", name
    files = (options.csv, columns), (options.units_csv, of_units), (options.plot, None)

    def write(rows: list[dict[str, Any]], times: list[Any], assigned: list[Any]) -> None:
        units = [
            {"layer": layer, "unit": unit, name: time}
            | ({} if fixed is None else {"assigned": float(fixed[unit])})
            for layer, found, fixed in zip(count(1), times, assigned, strict=False)
            for unit, time in enumerate(found.tolist())
        ]
        write_rows(options.csv, columns, rows, overwrite=options.overwrite)
        write_rows(options.units_csv, of_units, units, overwrite=options.overwrite)

    with results(files, read, overwrite=options.overwrite):
        yield write


def assigned_timescales(model: Any, n_layers: int) -> list[Any]:
    """Timescales that each layer's units were given, None where they were learned."""
    reservoir = getattr(model, "reservoir_", None)
    if reservoir is not None:
        with np.errstate(divide="ignore"):  # without leak, a unit keeps nothing of its own
            return [-1 / np.log1p(-reservoir.leak_rate_.astype(np.float64))]
    assigned = getattr(model.network, "assigned_timescales", None)
    return [None if assigned is None else assigned(layer) for layer in range(n_layers)]


def _row(model: str, layer: Any, times: Floats, assigned: Any, n_tokens: int) -> dict[str, Any]:
    """Return the row of a layer: statistics of its timescales (n_units,) and closest laws."""
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
    """Return the row of a layer as phrases to print."""
    words = [
        f"layer {row['layer']:>3}",
        f"{row['n_units']:5} units",
        f"median {row['median']:.3g}",
        f"below 20: {row['share_below_20']:.1%}",
        f"longest {row['longest']:.4g}",
        f"closest inverse gamma {row['closest_alpha']:g} (KS {row['ks_closest_alpha']:.3f})",
        f"Gaussian {row['gaussian_mean']:g} (KS {row['ks_gaussian']:.3f})",
    ]
    if row["correlation"] != "":
        words.append(f"correlation with the assigned {row['correlation']:.3f}")
    return words
