"""``esnlm timescales``: how long the units of a trained LSTM remember."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from esnlm.commands.options.common import Documents, File, Model, Texts, group
from esnlm.commands.options.corpus import model_and_stream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_UNIT_COLUMNS = ("layer", "unit", "assigned", "measured")
COLUMNS = (
    "model", "layer", "n_units", "fixed", "n_tokens", "median", "share_below_20", "longest",
    "closest_alpha", "ks_closest_alpha", "gaussian_mean", "ks_gaussian", "correlation",
)  # fmt: skip


@group()
class TimescalesOptions:
    """Options of ``esnlm timescales``."""

    csv: File | None = None
    """Also write the rows of the layers here."""
    units_csv: File | None = None
    """Write the timescales of all units here."""
    plot: Annotated[Path | None, Parameter(metavar="PNG")] = None
    """Draw the distributions here."""
    documents: Documents = None


_DEFAULTS = TimescalesOptions()


def timescales(model: Model, text: Texts, /, *, options: TimescalesOptions = _DEFAULTS) -> int:
    """Measure and print; the exit status."""
    from esnlm.storage.atomic import check_results, write_rows
    from esnlm.torch.optional import require_torch

    require_torch("esnlm timescales")
    check_results((options.csv, options.units_csv, options.plot), text)
    loaded, stream = model_and_stream(model, text, options.documents)
    measured, assigned = _timescales(loaded, stream, model)
    rows = [
        _row(str(model), name, times, chosen, len(stream.tokens))
        for name, times, chosen in _groups(measured, assigned)
    ]
    for row in rows:
        print("  ".join(_shown(row)))
    if options.csv is not None:
        write_rows(options.csv, COLUMNS, rows)
    if options.units_csv is not None:
        write_rows(options.units_csv, _UNIT_COLUMNS, unit_rows(_UNIT_COLUMNS, measured, assigned))
    if options.plot is not None:
        from esnlm.experiments.timescales.plots import plot_timescales

        plot_timescales(measured, assigned, options.plot)
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
        (str(number), times, chosen)
        for number, (times, chosen) in enumerate(zip(measured, assigned, strict=True), 1)
    ]
    return layers if len(layers) == 1 else [*layers, ("all", np.concatenate(measured), None)]


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


def unit_rows(
    columns: tuple[str, ...], measured: list[Any], assigned: list[Any]
) -> list[dict[str, Any]]:
    """Layer, unit, assigned timescale (empty where it was learned) and measured one, by column."""
    rows = []
    for layer, (times, fixed) in enumerate(zip(measured, assigned, strict=True), 1):
        for unit, time in enumerate(times.tolist()):
            values = (layer, unit, "" if fixed is None else float(fixed[unit]), time)
            rows.append(dict(zip(columns, values, strict=True)))
    return rows
