"""``esnlm controls``: what a reservoir's coupling, memory and direct connections each add.

The same model is trained without each of them, and scored on the same held-out tokens and minimal
pairs; differences are paired.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from cyclopts import Parameter

from esnlm.options.common import finish, group, names, results_folder
from esnlm.options.needs import check_needs
from esnlm.options.values import integer
from esnlm.runs.grid import Row
from esnlm.studies.controls.settings import CONTROLS
from esnlm.studies.shards_grid import Shards, ShardsStudy, planned, run_on_shards


@group()
class ControlsOptions(ShardsStudy):
    """Options of ``esnlm controls``."""

    controls: Annotated[tuple[str, ...], names(tuple(CONTROLS))] = ()
    """Which of them (default: all that the readout knows)."""
    # Not NAME, as then Python makes it one with an option of syntaxgym, which takes one value.
    topologies: Annotated[tuple[str, ...], Parameter(metavar="TOPOLOGY")] = ()
    """Topologies of models with coupling (default: --topology); other models have the first."""
    resamples: Annotated[int, integer("R", 1)] = 10_000
    """Resamples of sentences and of pairs, for the intervals."""


def controls(train: Shards, /, *, options: ControlsOptions) -> int:
    """Run what the CSV does not hold yet, and compare: 0 when all is done, 130 if interrupted."""
    for name in ("sizes", "degrees", "connectivities", "leaks", "features"):
        if len(set(getattr(options.grid, name))) > 1:
            raise ValueError(f"controls are of one reservoir: give --{name} one value")
    are_coupled = any(CONTROLS[name].coupled for name in options.controls or CONTROLS)
    are_read = are_coupled or len(options.topologies) < 2
    check_needs(options, ("topologies", are_read, "full or no_direct among --controls"))
    check_needs(
        options.grid.weights, ("topology", not options.topologies, "--topologies to be left out")
    )
    settings, runs = _planned(train, options)
    path, scores = options.out / "controls.csv", options.out / "scores"
    with results_folder(options.out):
        scores.mkdir(exist_ok=True)
        rows = run_on_shards(
            settings, runs, path, options,
            lambda setting: {"scores": str(scores / setting["version"])}, "control",
        )  # fmt: skip
        _compare(train, options, rows)
    names = ["values.csv", "differences.csv", "controls.md"]
    names += [] if options.no_plots else ["controls.png"]
    finish(path, *(options.out / name for name in names))
    return 0


def _planned(train: str, options: ControlsOptions) -> tuple[list[Row], dict[str, Row]]:
    """Return settings of every control, and what its run is given by the setting's version."""
    grid = options.grid
    topologies = options.topologies or (grid.weights.topology or "offsets",)
    shards = train, options.held_out, options.blimp
    full, parts = planned(*shards, grid)
    direct = parts[full[0]["version"]]["readout"]["params"].get("n_direct", 0)
    valid = [name for name, control in CONTROLS.items() if direct or not control.direct]
    for name in options.controls:
        if name not in valid:
            raise ValueError(
                f"--controls {name} needs direct connections: --readout lowrank with --direct of 1"
                " at least"
            )
    settings: list[Row] = []
    runs: dict[str, Row] = {}
    for name in (name for name in valid if name in (options.controls or valid)):
        control = CONTROLS[name]
        for topology in topologies if control.coupled else topologies[:1]:
            changed = replace(
                grid,
                weights=replace(grid.weights, topology=topology, **control.weights),
                leaks=grid.leaks if control.leak is None else (control.leak,),
                readout=replace(grid.readout, **control.readout),
            )
            of_control, of_runs = planned(*shards, changed)
            settings += [{"control": name, **setting} for setting in of_control]
            runs |= of_runs
    if len(runs) < len(settings):
        raise ValueError("the reservoir as given is already one of the controls: leave that out")
    return settings, runs


def _compare(train: str, options: ControlsOptions, runs: Sequence[Row]) -> None:
    """Write values, differences, tables and plot of the runs."""
    import numpy as np

    from esnlm.evaluation.minimal_pairs.pairs import read_pairs
    from esnlm.evaluation.minimal_pairs.scores import PairScores
    from esnlm.plots.figures import save
    from esnlm.storage.atomic import write_whole
    from esnlm.storage.results import write_rows
    from esnlm.studies.controls import comparison
    from esnlm.studies.controls.plots import figure, tables
    from esnlm.studies.shards_run import log_probabilities
    from esnlm.text.shards import Shards

    logs = [log_probabilities(options.out / "scores" / run["version"]) for run in runs]
    how: dict[str, Any] = {"n_resamples": options.resamples, "random_state": 0}
    tokens = [each["tokens"] for each in logs]
    judged = [comparison.judged_tokens(Shards(train), Shards(options.held_out), tokens, **how)]
    if options.blimp is not None:
        scores = (PairScores(each["good"], each["bad"], True, "sum") for each in logs)
        credit = np.stack([each.credit for each in scores])
        judged.append(comparison.judged_pairs(read_pairs(options.blimp), credit, **how))
    values = [row for each in judged for row in comparison.value_rows(runs, each)]
    less = [row for each in judged for row in comparison.difference_rows(runs, each)]
    write_rows(options.out / "values.csv", comparison.VALUE_COLUMNS, values)
    write_rows(options.out / "differences.csv", comparison.DIFFERENCE_COLUMNS, less)
    text = tables(values, less)
    write_whole(options.out / "controls.md", text)
    print(text.split("\n## By ")[0].rstrip())
    if less and not options.no_plots:
        save(figure(less), options.out / "controls.png")
