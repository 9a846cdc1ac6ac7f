"""``esnlm ablation``: what is left of a word in a model's state, some tokens later."""

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from esnlm.options.common import Model, Texts, finish, group
from esnlm.options.corpus import model_and_stream
from esnlm.options.values import integer
from esnlm.studies.timescales.command import TimescalesOptions, assigned_timescales, tables
from esnlm.utils.arrays import Floats

if TYPE_CHECKING:
    from esnlm.studies.timescales.ablation import Decay

COLUMNS = ("model", "layer", "group", "n_units", "assigned", "lag", "share")


@group()
class AblationOptions(TimescalesOptions):
    """Options of ``esnlm ablation``."""

    context: Annotated[int, integer("T", 1)] = 20
    """Tokens before the word."""
    lags: Annotated[int, integer("T", 1)] = 20
    """Tokens after the word."""
    windows: Annotated[int, integer("K", 1)] = 1000
    """Words that are left out, at most."""
    group: Annotated[int, integer("U", 1)] = 100
    """Units of a group, by assigned timescale."""


def ablation(model: Model, text: Texts, /, *, options: AblationOptions = AblationOptions()) -> int:
    """Measure and print; the exit status."""
    with tables(options, COLUMNS, "ablation", (model, *text)) as write:
        from esnlm.studies.timescales.ablation import word_ablation

        loaded, stream = model_and_stream(model, text, options.documents)
        layers = word_ablation(
            loaded, stream, context=options.context, n_lags=options.lags, n_windows=options.windows
        )
        assigned = assigned_timescales(loaded, len(layers))
        times = [decay.timescales() for decay in layers]
        rows = []
        for number, decay in enumerate(layers, 1):
            print(_shown(number, decay, times[number - 1]))
            rows += _rows(str(model), number, decay, assigned[number - 1], options.group)
        write(rows, times, assigned)
        if options.plot is not None:
            from esnlm.studies.timescales.plots import plot_ablation

            plot_ablation(rows, options.plot)
    finish(options.csv, options.units_csv, options.plot)
    return 0


def _rows(
    model: str, layer: int, decay: "Decay", assigned: Floats | None, size: int
) -> list[dict[str, Any]]:
    """Rows of a layer, and of groups of its units of about the same timescale."""
    curves: list[tuple[str, int, Any, Any]] = [("all", decay.by_unit.shape[1], "", decay.share)]
    if assigned is not None and len(assigned) > size:
        order = np.argsort(assigned, kind="stable")
        for number, start in enumerate(range(0, len(order), size), 1):
            units = order[start : start + size]
            left = decay.by_unit[:, units].sum(axis=1)
            mean = float(np.mean(assigned[units]))
            share = left / left[0] if left[0] > 0 else np.zeros_like(left)
            curves.append((str(number), len(units), mean, share))
    return [
        dict(zip(COLUMNS, (model, layer, group, n, mean, lag, float(share)), strict=True))
        for group, n, mean, shares in curves
        for lag, share in enumerate(shares)
    ]


def _shown(layer: int, decay: "Decay", times: Floats) -> str:
    """Return some of the lags, and the timescales beside the nearest inverse gamma."""
    from esnlm.reservoir.timescales import closest_inverse_gamma

    n_lags = len(decay.share) - 1
    lags = sorted({1, max(1, n_lags // 4), max(1, n_lags // 2), n_lags})
    left = ", ".join(f"{decay.share[lag]:.2g} after {lag}" for lag in lags)
    finite = times[np.isfinite(times)]
    line = f"layer {layer}: {decay.by_unit.shape[1]} units  left {left}"
    if len(finite):
        alpha, distance = closest_inverse_gamma(finite)
        line += f"  median timescale {np.median(finite):.3g}"
        line += f"  closest inverse gamma {alpha:g} (KS {distance:.3f})"
    return line
