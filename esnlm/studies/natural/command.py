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
from esnlm.options.values import Cluster, Minutes, read
from esnlm.runs.grid import Row, read_rows, run_grid_apart
from esnlm.studies.shards_grid import (
    COLUMNS,
    KEY,
    Shards,
    ShardsGrid,
    forget,
    planned,
    run_folder,
)
from esnlm.utils.messages import log


def _baseline(text: str) -> tuple[str, tuple[float, float | None]]:
    """``NAME=NLL`` or ``NAME=NLL:BLIMP``."""
    name, equals, values = text.rpartition("=")
    loss, colon, judged = values.partition(":")
    try:
        found = float(loss), float(judged) if colon else None
    except ValueError:
        found = math.nan, None
    if not (equals and name) or math.isnan(found[0]):
        raise ValueError(
            f"expected NAME=NLL or NAME=NLL:BLIMP, such as 5-gram=4.37:53.7, got {text!r}"
        )
    return name, found


@group()
class NaturalOptions:
    """Options of ``esnlm natural``."""

    held_out: Annotated[str, Parameter(metavar="SHARDS")]
    """Text that models are scored on."""
    blimp: Annotated[Path | None, Parameter(metavar="FOLDER")] = None
    """Minimal pairs that models judge."""
    out: Folder
    """Folder of the CSV and the plot."""
    name: Literal["size", "connectivity", "min_leak", "timescales"] = "size"
    """What the grid is about, and what the CSV and the plot are called."""
    no_plots: bool = False
    """Write the CSV alone."""
    keep_models: Folder | None = None
    """Keep the model of each run in this folder."""
    baseline: Annotated[
        tuple[Annotated[Any, read(_baseline, "NAME=NLL")], ...],
        Parameter(consume_multiple=False, metavar="NAME=NLL:BLIMP"),
    ] = ()
    """Another model to draw beside: nats a token, and percent of pairs."""
    checkpoint_every: Minutes = 10.0
    """Time between checkpoints; 0: after every chunk."""
    cluster: Cluster = None
    grid: ShardsGrid = ShardsGrid()


def natural(train: Shards, /, *, options: NaturalOptions) -> int:
    """Run what the CSV does not hold yet: 0 when all is done, 130 when interrupted."""
    for size, degree in product(options.grid.sizes, options.grid.degrees):
        if degree > size:
            raise ValueError(f"--degrees {degree} is more than the {size} units of a reservoir")
    settings, runs = planned(train, options.held_out, options.blimp, options.grid)
    path = options.out / f"{options.name}.csv"
    shared = {
        "train": train,
        "held_out": options.held_out,
        "blimp": None if options.blimp is None else str(options.blimp),
        "save_every": 60 * options.checkpoint_every,
    }

    def run_given(setting: Row) -> Row:
        version, keep = setting["version"], options.keep_models
        forget(path)
        kept = None if keep is None else str(keep / f"{setting['n_units']}-{version}")
        return runs[version] | shared | {"folder": str(run_folder(path, version)), "keep": kept}

    with results_folder(options.out):
        module = "esnlm.studies.natural.run"
        shown: Any = {"key": KEY, "columns": COLUMNS, "given": run_given}
        rows = run_grid_apart(settings, module, path, **shown, cluster=options.cluster)
    forget(path)
    for row in rows:
        judged = "" if row["blimp"] is None else f", BLiMP {100 * row['blimp']:.2f} %"
        name = " ".join(f"{name}={row[name]}" for name in ("n_units", "degree", "leak", "seed"))
        print(f"{name}: {row['nll_per_token']:.4f} nats a token{judged}")
    if not options.no_plots:
        from esnlm.plots.figures import save
        from esnlm.studies.natural.plots import sweep_figure, why_not_published
        from esnlm.text.shards import Shards

        if why_not := why_not_published(Shards(train, verify=False).tokenizer):
            log.info(why_not)
        figure = sweep_figure(options.name, read_rows(path), dict(options.baseline), why_not)
        save(figure, path.with_suffix(".png"))
    finish(path, None if options.no_plots else path.with_suffix(".png"))
    return 0
