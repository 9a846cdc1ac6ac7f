"""A grid of reservoirs that are trained on shards: its options, its columns, its settings."""

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from esnlm.models.recipes import default_settings, make_features, make_readout, make_reservoir
from esnlm.options.common import ChunkOptions, Folder, Sizes, group, set_options
from esnlm.options.train import ReadoutOptions, ReservoirOptions, WeightOptions, model_settings
from esnlm.options.values import (
    Cluster,
    Features,
    Minutes,
    file_name,
    integer,
    leak_rate,
    read,
    real,
)
from esnlm.runs.grid import Row, read_rows, run_grid_apart
from esnlm.storage.atomic import locked
from esnlm.studies import minimal_pairs
from esnlm.utils import __version__
from esnlm.utils.messages import log

KEY = ("n_units", "degree", "leak", "features", "readout", "options", "words", "seed", "version")
_WEIGHTS = (
    "topology", "spectral_radius", "input_scaling", "input_degree", "bias_scaling", "activation",
)  # fmt: skip
_OPTIONS = "factors", "direct", "alpha", "passes", "experts", "classes"
COLUMNS = (
    "n_units", "degree", "connectivity", "leak", "min_leak", "features", "readout", "options",
    "seed", "words", "training_loss", "nll_per_token", "perplexity", *minimal_pairs.COLUMNS,
    "n_train_tokens", "n_held_out_tokens", "n_parameters", "n_parameters_total",
    "n_parameters_nonzero", "fit_seconds", "tokens_per_second", "score_seconds", "peak_rss_mib",
    *_WEIGHTS, "version", "commit",
)  # fmt: skip
_FEW = 4

Shards = Annotated[str, Parameter("SHARDS", help="Training text, a folder that prepare wrote.")]


def _connectivity(text: str) -> float:
    """``0.01`` or ``2^-7``."""
    base, power, exponent = text.partition("^")
    try:
        value = float(base) ** float(exponent) if power else float(base)
    except (ValueError, ArithmeticError):
        value = math.nan
    if not 0 < value <= 1:
        raise ValueError(f"expected a share in (0, 1], such as 0.01 or 2^-7, got {text!r}")
    return value


def leak_law(text: str) -> str:
    """Return a law of leak rates as one text, however its numbers are spelt."""
    law = leak_rate(text)
    if isinstance(law, float):
        return f"{law:g}"
    return ":".join([law[0], *map("{:g}".format, law[1:])])


def _input_degree(text: str) -> Any:
    if text in ("degree", "all"):
        return text
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"expected degree, all or a count, got {text!r}")
    return int(text)


@group("Grid")
class GridWeights(WeightOptions):
    """Weights of all reservoirs of the grid."""

    spectral_radius: Annotated[float, real("R")] = 0.99
    """Spectral radius of the recurrent weights."""


@group("Grid")
class ShardsGrid:
    """What the runs differ in."""

    sizes: Sizes = (1024,)
    """Units."""
    degrees: tuple[Annotated[int, integer("D", 1)], ...] = ()
    """Connections into a unit (default: 32)."""
    connectivities: tuple[Annotated[float, read(_connectivity, "G")], ...] = ()
    """The same as shares of the units, such as 0.01 or 2^-7."""
    leaks: tuple[Annotated[Any, read(leak_law, "A")], ...] = ("uniform:0:1",)
    """Leak rates: a number in (0, 1], uniform:LOW:HIGH or inverse_gamma:ALPHA."""
    features: Annotated[tuple[Features, ...], Parameter(metavar="F|spectral:F")] = ()
    """Dimensions of word features, 0 for one-hot tokens (default: as in train)."""
    seeds: Annotated[int, integer("K", 1)] = 1
    """Run seeds 0 .. K-1."""
    input_degree: Annotated[Any, read(_input_degree, "K|degree|all")] = None
    """Units that an input drives (default: degree, as many as connections into a unit, or all where
    word features are the inputs)."""
    weights: GridWeights = GridWeights()
    readout: ReadoutOptions = ReadoutOptions()
    training: ChunkOptions = ChunkOptions()


@group()
class ShardsStudy:
    """Options of a study of such a grid."""

    held_out: Annotated[str, Parameter(metavar="SHARDS")]
    """Text that models are scored on."""
    blimp: Annotated[Path | None, file_name("FOLDER")] = None
    """Minimal pairs that models judge."""
    out: Folder
    """Folder of the results."""
    no_plots: bool = False
    """Write no plots."""
    checkpoint_every: Minutes = 10.0
    """Time between checkpoints; 0: after every chunk."""
    cluster: Cluster = None
    grid: ShardsGrid = ShardsGrid()


def run_on_shards(
    settings: list[Row],
    runs: Mapping[str, Row],
    path: Path,
    options: ShardsStudy,
    places: Callable[[Row], Row],
    *leading: str,
) -> list[Row]:
    """Run what the CSV at ``path`` does not hold yet, and return the rows of the settings.

    ``settings`` and ``runs`` are as `planned` has them; ``places`` says for a setting where its run
    keeps what `measure` of `shards_run` keeps; ``leading`` are columns before those of the grid.
    """
    from esnlm.text.shards import Shards

    texts = {"held_out": options.held_out, "blimp": options.blimp and str(options.blimp)}
    shared = texts | {"save_every": 60 * options.checkpoint_every}

    def extras(setting: Row) -> Row:
        folder = _run_folder(path, setting["version"])
        _forget_finished(path)
        return runs[setting["version"]] | shared | {"folder": str(folder)} | places(setting)

    rows = run_grid_apart(
        settings,
        "esnlm.studies.shards_run",
        path,
        key=(*leading, *KEY),
        columns=(*leading, *COLUMNS),
        extras=extras,
        # Losses on another held-out text, which has another number of tokens, do not compare.
        fixed={"n_held_out_tokens": Shards(options.held_out, verify=False).stream().n_predicted},
        cluster=options.cluster,
    )
    _forget_finished(path)
    return rows


def _forget_finished(path: Path) -> None:
    """Remove the checkpoints of runs whose rows are written."""
    for row in read_rows(path):
        folder = _run_folder(path, row["version"])
        if folder.parent.is_dir():
            with locked(folder, wait=True):
                shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # a run has not ended
        (path.parent / "running").rmdir()


def _run_folder(path: Path, version: str) -> Path:
    return path.parent / "running" / f"{path.stem}-{version}"


def planned(
    train: str, held_out: str, blimp: Path | None, grid: ShardsGrid
) -> tuple[list[Row], dict[str, Row]]:
    """Return every setting of the grid, and the values of its run by the setting's version.

    That are the training text, descriptions of the parts that `rebuild` makes again, and the plan
    of training. Settings that cannot be made are refused.
    """
    from sklearn.base import clone

    from esnlm.models.saving import describe
    from esnlm.reservoir.weights import WITH_DEGREE
    from esnlm.text.shards import Shards
    from esnlm.text.source import shared_sources
    from esnlm.training.trainer import TrainingPlan

    both = [Shards(folder, verify=False) for folder in (train, held_out)]
    tokenizer = both[0].tokenizer
    if tokenizer.to_json() != both[1].tokenizer.to_json():
        raise ValueError(f"the tokenizer of {held_out} is not the one of the training text")
    for warning in shared_sources(*both):
        log.warning(warning)
    texts = [shards.manifest["files"] for shards in both]
    common = {"esnlm": __version__, "texts": texts, "pairs": minimal_pairs.digest(blimp)}
    words = both[0].manifest["totals"]["words"]
    settings, runs = [], {}
    if grid.degrees and grid.connectivities:
        raise ValueError("--connectivities is not allowed with --degrees")
    for size, degree, leak, kind, seed in product(
        dict.fromkeys(grid.sizes),
        dict.fromkeys(grid.connectivities or grid.degrees or [32]),
        dict.fromkeys(grid.leaks),
        dict.fromkeys(grid.features or [None]),
        range(grid.seeds),
    ):
        count = max(1, round(degree * size)) if grid.connectivities else min(degree, size)
        options = ReservoirOptions(
            n_units=size, leak_rate=leak_rate(leak), **set_options(grid.weights)
        )
        values = {"topology": "offsets", "input_scaling": 1.0} | model_settings(
            options, grid.readout, kind
        )
        values = default_settings(values, len(tokenizer), characters=tokenizer.has_characters)
        word_features: Any = values["features"]
        inputs = grid.input_degree
        if inputs in (None, "degree", "all"):
            dense = inputs == "all" or (inputs is None and word_features[1])
            inputs = None if dense else count
        reservoir = make_reservoir(values, seed).set_params(input_degree=inputs)
        if grid.degrees or grid.connectivities or reservoir.topology in WITH_DEGREE:
            reservoir.set_params(degree=count)  # others refuse one that was asked for
        clone(reservoir).set_params(n_units=_FEW).fit(n_inputs=1)
        name, number = word_features
        # Held-out text is scored after passes alone.
        plan = TrainingPlan(random_state=seed, score_every=0, **set_options(grid.training))
        parts = {
            "reservoir": describe(reservoir),
            "readout": describe(make_readout(values, seed)),
            "features": describe(make_features(word_features, seed)),
            "plan": asdict(plan),
        }
        digest = hashlib.sha256(json.dumps(common | parts, sort_keys=True).encode()).hexdigest()
        version = f"{__version__}-{digest[:12]}"
        runs[version] = parts | {"train": train}
        settings.append(
            _columns(reservoir.get_params(), values)
            | {"leak": leak, "features": f"{name}:{number}" if name else number}
            | {"seed": seed, "words": words, "version": version}
        )
    return settings, runs


def _columns(reservoir: Row, settings: Row) -> Row:
    """Return the columns of a row that describe its reservoir and its readout."""
    law = reservoir["leak_rate"]
    options = {name: settings[name] for name in _OPTIONS if name in settings} | settings["option"]
    return {
        "n_units": reservoir["n_units"],
        "degree": reservoir["degree"],
        # Of a topology that has no degree, the degree is the default.
        "connectivity": min(1.0, reservoir["degree"] / reservoir["n_units"]),
        "min_leak": law if isinstance(law, float) else law[1] if law[0] == "uniform" else None,
        "readout": settings["readout"],
        "options": " ".join(f"{name}={value}" for name, value in options.items()),
        **{name: reservoir[name] for name in _WEIGHTS},
    }
