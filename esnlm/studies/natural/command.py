"""``esnlm natural``: reservoirs of many sizes, connectivities and leak rates on natural language.

The experiments of Ueda et al. (sizes; appendices A and B): each setting is trained on shards,
scored on held-out shards and on minimal pairs, a row of a CSV each.
"""

import math
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from esnlm.options.common import Folder, finish, group, results_folder
from esnlm.options.needs import check_needs
from esnlm.options.values import read
from esnlm.runs.grid import Row, read_rows
from esnlm.studies.shards_grid import Shards, ShardsStudy, planned, run_on_shards
from esnlm.utils.messages import log


def _baseline(text: str) -> tuple[str, tuple[float, float | None]]:
    """``NAME=NLL`` or ``NAME=NLL:BLIMP``."""
    name, equals, values = text.rpartition("=")
    loss, colon, judged = values.partition(":")
    try:
        loss_and_blimp = float(loss), float(judged) if colon else None
    except ValueError:
        loss_and_blimp = math.nan, None
    if not (equals and name) or math.isnan(loss_and_blimp[0]):
        raise ValueError(
            f"expected NAME=NLL or NAME=NLL:BLIMP, such as 5-gram=4.37:53.7, got {text!r}"
        )
    return name, loss_and_blimp


@group()
class NaturalOptions(ShardsStudy):
    """Options of ``esnlm natural``."""

    name: Literal["size", "connectivity", "min_leak", "timescales"] = "size"
    """What the grid is about, and what the CSV and the plot are called."""
    keep_models: Folder | None = None
    """Keep the model of each run in this folder."""
    baseline: Annotated[
        tuple[Annotated[Any, read(_baseline, "NAME=NLL")], ...],
        Parameter(consume_multiple=False, metavar="NAME=NLL:BLIMP"),
    ] = ()
    """Another model to draw beside: nats a token, and percent of pairs."""


def natural(train: Shards, /, *, options: NaturalOptions) -> int:
    """Run what the CSV does not hold yet: 0 when all is done, 130 when interrupted."""
    check_needs(options, ("baseline", not options.no_plots, "--no-plots to be left out"))
    for size, degree in product(options.grid.sizes, options.grid.degrees):
        if degree > size:
            raise ValueError(f"--degrees {degree} is more than the {size} units of a reservoir")
    settings, runs = planned(train, options.held_out, options.blimp, options.grid)
    path = options.out / f"{options.name}.csv"
    plot = None if options.no_plots else path.with_suffix(".png")

    def places(setting: Row) -> Row:
        name = f"{setting['n_units']}-{setting['version']}"
        return {} if options.keep_models is None else {"model": str(options.keep_models / name)}

    with results_folder(options.out):
        rows = run_on_shards(settings, runs, path, options, places)
    folders = [Path(each["model"]) for each in map(places, settings) if each]
    if n_missing := sum(not folder.is_dir() for folder in folders):
        log.warning(
            f"{options.keep_models} has no model of {n_missing} of {len(folders)} runs, whose rows"
            f" were in {path} before: remove these rows, and the runs are repeated"
        )
    for row in rows:
        judged = "" if row["blimp"] is None else f", BLiMP {100 * row['blimp']:.2f} %"
        name = " ".join(f"{name}={row[name]}" for name in ("n_units", "degree", "leak", "seed"))
        print(f"{name}: {row['nll_per_token']:.4f} nats a token{judged}")
    if plot is not None:
        from esnlm.plots.figures import save
        from esnlm.studies.natural.plots import sweep_figure, why_not_published
        from esnlm.text.shards import Shards

        if why_not := why_not_published(Shards(train, verify=False).tokenizer):
            log.info(why_not)
        save(sweep_figure(options.name, read_rows(path), dict(options.baseline), why_not), plot)
    finish(path, plot)
    return 0
