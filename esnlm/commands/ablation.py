"""``esnlm ablation``: what is left of a word in a model's state, some tokens later."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esnlm.commands.options.common import add_documents
from esnlm.commands.options.corpus import model_and_stream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from esnlm.experiments.timescales.ablation import Decay

COLUMNS = ("model", "layer", "group", "n_units", "assigned", "lag", "share")
_UNIT_COLUMNS = ("layer", "unit", "assigned", "ablation")
_ALL = "all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="folder of a reservoir's model or of an LSTM")
    add("text", nargs="+", metavar="TEXT", help="files, or folders of them")
    add("--context", type=int, default=20, metavar="T", help="tokens before the word (default: 20)")
    add("--lags", type=int, default=20, metavar="T", help="tokens after the word (default: 20)")
    add("--windows", type=int, default=1000, metavar="K",
        help="words that are left out, at most (default: 1000)")  # fmt: skip
    add("--group", type=int, default=100, metavar="U",
        help="units of a group, by assigned timescale (default: 100)")  # fmt: skip
    add("--csv", type=Path, metavar="FILE", help="write what is left by layer, group and lag here")
    add("--units-csv", type=Path, metavar="FILE", help="write the timescales of all units here")
    add("--plot", type=Path, metavar="PNG", help="draw what is left against tokens since the word")
    add_documents(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print; the exit status."""
    from esnlm.commands.options.grid import check_least
    from esnlm.experiments.timescales.ablation import word_ablation
    from esnlm.storage.atomic import check_results, write_rows

    for option in ("context", "lags", "windows", "group"):
        check_least(f"--{option}", [getattr(args, option)], 1)
    check_results((args.csv, args.units_csv, args.plot), args.text)
    model, stream = model_and_stream(args)
    layers = word_ablation(
        model, stream, context=args.context, n_lags=args.lags, n_windows=args.windows
    )
    assigned = _assigned(model, len(layers))
    for number, decay in enumerate(layers, 1):
        print(_shown(number, decay))
    rows = [
        row
        for number, (decay, given) in enumerate(zip(layers, assigned, strict=True), 1)
        for row in _rows(str(args.model), number, decay, given, args.group)
    ]
    if args.csv is not None:
        write_rows(args.csv, COLUMNS, rows)
    if args.units_csv is not None:
        write_rows(args.units_csv, _UNIT_COLUMNS, _unit_rows(layers, assigned))
    if args.plot is not None:
        from esnlm.experiments.timescales.plots import plot_ablation

        plot_ablation(rows, args.plot)
    return 0


def _assigned(model: Any, n_layers: int) -> list[Any]:
    """Timescales that each layer's units were given, None where they were learned."""
    import numpy as np

    reservoir = getattr(model, "reservoir_", None)
    if reservoir is not None:
        with np.errstate(divide="ignore"):  # without leak, a unit keeps nothing of its own
            return [-1 / np.log1p(-reservoir.leak_rate_.astype(np.float64))]
    given = getattr(model.network, "assigned_timescales", None)
    return [None if given is None else given(layer) for layer in range(n_layers)]


def _rows(
    model: str, layer: int, decay: "Decay", assigned: "NDArray[np.float64] | None", size: int
) -> list[dict[str, Any]]:
    """What is left in a layer, and in groups of its units of about the same timescale."""
    import numpy as np

    curves: list[tuple[str, int, Any, Any]] = [(_ALL, decay.by_unit.shape[1], "", decay.share)]
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


def _unit_rows(layers: list["Decay"], assigned: list[Any]) -> list[dict[str, Any]]:
    rows = []
    for layer, (decay, given) in enumerate(zip(layers, assigned, strict=True), 1):
        for unit, time in enumerate(decay.timescales().tolist()):
            fixed = "" if given is None else float(given[unit])
            rows.append(dict(zip(_UNIT_COLUMNS, (layer, unit, fixed, time), strict=True)))
    return rows


def _shown(layer: int, decay: "Decay") -> str:
    """Some of the lags, and the timescales beside the nearest inverse gamma."""
    import numpy as np

    from esnlm.reservoir.timescales import closest_inverse_gamma

    n_lags = len(decay.share) - 1
    lags = sorted({1, max(1, n_lags // 4), max(1, n_lags // 2), n_lags})
    left = ", ".join(f"{decay.share[lag]:.2g} after {lag}" for lag in lags)
    times = decay.timescales()
    told = times[np.isfinite(times)]
    line = f"layer {layer}: {decay.by_unit.shape[1]} units  left {left}"
    if len(told):
        alpha, distance = closest_inverse_gamma(told)
        line += f"  median timescale {np.median(told):.3g}"
        line += f"  closest inverse gamma {alpha:g} (KS {distance:.3f})"
    return line
