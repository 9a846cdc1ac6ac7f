"""``esnlm natural``: reservoirs of many sizes, connectivities and leak rates on natural language.

The experiments of Ueda et al. (sizes; appendices A and B): each setting is trained on shards,
scored on held-out shards and on minimal pairs, a row of a CSV each.
"""

import math
import os
import shutil
from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from esnlm.commands.natural_grid import COLUMNS, KEY, NaturalGrid, planned
from esnlm.commands.options.common import Folder, group
from esnlm.commands.options.grid import results_folder
from esnlm.commands.options.values import Minutes, read

if TYPE_CHECKING:
    from esnlm.experiments.common.grid import Row

_RUNNING = "running"
#: What a run holds while it is under way, in its folder.
_LOCK = "lock"
_RUN = "esnlm.experiments.natural.run"


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
    grid: NaturalGrid = NaturalGrid()


Shards = Annotated[str, Parameter("SHARDS", help="Training text: a folder that prepare wrote.")]


def natural(train: Shards, /, *, options: NaturalOptions) -> int:
    """Run what the CSV does not hold yet: 0 when all is done, 130 when interrupted."""
    from esnlm.experiments.common.grid import read_rows, run_grid

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
    with results_folder(options.out):
        rows = run_grid(
            settings,
            partial(
                _run,
                runs=runs,
                shared=shared,
                path=path,
                keep=options.keep_models,
                env=dict(os.environ),
            ),
            path,
            key=KEY,
            columns=COLUMNS,
            jobs=1,
        )
    _forget(path)
    for row in rows:
        judged = "" if row["blimp"] is None else f", BLiMP {100 * row['blimp']:.2f} %"
        name = " ".join(f"{name}={row[name]}" for name in ("n_units", "degree", "leak", "seed"))
        print(f"{name}: {row['nll_per_token']:.4f} nats a token{judged}")
    if not options.no_plots:
        from esnlm.experiments.common.figures import save
        from esnlm.experiments.natural.plots import sweep_figure

        figure = sweep_figure(options.name, read_rows(path), dict(options.baseline))
        save(figure, path.with_suffix(".png"))
    return 0


def _run(
    setting: "Row",
    *,
    runs: Mapping[str, "Row"],
    shared: "Row",
    path: Path,
    keep: Path | None,
    env: dict[str, str],
) -> "Row":
    from esnlm.experiments.common import minimal_pairs
    from esnlm.experiments.common.provenance import code_version
    from esnlm.experiments.common.subprocess_run import run_apart

    _forget(path)
    folder = _folder(path, setting["version"])
    try:
        measured = run_apart(_RUN, runs[setting["version"]] | shared | {"folder": str(folder)}, env)
    except ValueError:
        _forget_unbegun(folder)
        raise
    if keep is not None:
        _keep(folder / "model", keep / f"{setting['n_units']}-{setting['version']}")
    return dict.fromkeys(minimal_pairs.COLUMNS) | measured | {"commit": code_version()}


def _keep(model: Path, place: Path) -> None:
    """Copy a run's model, which goes with its row, to where it stays; whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    aside = place.with_name(f"{place.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(model, aside)
    shutil.rmtree(place, ignore_errors=True)
    aside.replace(place)


def _forget(path: Path) -> None:
    """Remove the checkpoints of runs whose rows are written."""
    from esnlm.experiments.common.grid import read_rows

    for row in read_rows(path):
        shutil.rmtree(_folder(path, row["version"]), ignore_errors=True)
    _remove_empty(path.parent / _RUNNING)


def _forget_unbegun(folder: Path) -> None:
    """Remove the folder of a run that was refused before its first checkpoint."""
    if folder.is_dir() and {path.name for path in folder.iterdir()} <= {_LOCK}:
        shutil.rmtree(folder)
        _remove_empty(folder.parent)


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _folder(path: Path, version: str) -> Path:
    return path.parent / _RUNNING / f"{path.stem}-{version}"
