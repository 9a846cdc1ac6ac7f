"""The settings of ``esnlm natural``: a grid of options -> rows, and what each run is given."""

import argparse
import hashlib
import json
from dataclasses import asdict
from itertools import product
from typing import Any

from esnlm.commands.options.model import (
    make_features,
    make_readout,
    make_reservoir,
    settle_defaults,
)
from esnlm.commands.options.values import leak_rate
from esnlm.experiments.common import minimal_pairs
from esnlm.experiments.common.grid import Row

KEY = ("n_units", "degree", "leak", "features", "readout", "options", "words", "seed", "version")
COLUMNS = (
    "n_units",
    "degree",
    "connectivity",
    "leak",
    "min_leak",
    "features",
    "readout",
    "options",
    "seed",
    "words",
    "nll_per_token",
    "perplexity",
    *minimal_pairs.COLUMNS,
    "n_train_tokens",
    "n_held_out_tokens",
    "n_parameters",
    "n_parameters_total",
    "n_parameters_nonzero",
    "fit_seconds",
    "tokens_per_second",
    "score_seconds",
    "peak_rss_mib",
    "topology",
    "spectral_radius",
    "input_scaling",
    "input_degree",
    "bias_scaling",
    "activation",
    "version",
    "commit",
)

_FEW = 4


def planned(args: argparse.Namespace) -> tuple[list[Row], dict[str, Row]]:
    """Every setting of the grid, and what its run is given by the setting's version."""
    from esnlm.models.saving import describe
    from esnlm.text.shards import Shards
    from esnlm.utils.version import __version__

    train, held_out = Shards(args.train, verify=False), Shards(args.held_out, verify=False)
    if train.tokenizer.to_json() != held_out.tokenizer.to_json():
        raise ValueError(f"the tokenizer of {args.held_out} is not the one of the training text")
    texts = [shards.manifest["files"] for shards in (train, held_out)]
    common = {"esnlm": __version__, "texts": texts, "pairs": minimal_pairs.digest(args.blimp)}
    words = train.manifest["totals"]["words"]
    settings, runs = [], {}
    for one in _grid(args, len(train.tokenizer)):
        reservoir = make_reservoir(one)
        parts = {
            "reservoir": describe(reservoir),
            "readout": describe(make_readout(one)),
            "features": describe(make_features(one)),
            "plan": _plan(args, one.seed),
        }
        digest = hashlib.sha256(json.dumps(common | parts, sort_keys=True).encode()).hexdigest()
        version = f"{__version__}-{digest[:12]}"
        runs[version] = parts
        settings.append(_columns(one) | {"words": words, "version": version})
    return settings, runs


def _grid(args: argparse.Namespace, n_tokens: int) -> list[argparse.Namespace]:
    """The options of each run, as those of train are called."""
    made = []
    for size, degree, leak, drive, seed in product(
        dict.fromkeys(args.sizes),
        dict.fromkeys(args.connectivities or args.degrees or [32]),
        dict.fromkeys(args.leaks),
        dict.fromkeys(args.features or [None]),
        range(args.seeds),
    ):
        given = {"units": size, "leak_rate": leak_rate(leak), "seed": seed}
        one = argparse.Namespace(**vars(args) | given)
        one.leak, one.features = leak, drive
        one.degree = _share(degree, size) if args.connectivities else degree
        settle_defaults(one, n_tokens)
        if args.input_degree in (None, "degree", "all"):
            dense = args.input_degree == "all" or (args.input_degree is None and one.features[1])
            one.input_degree = None if dense else one.degree
        # What it refuses is seen now, not after the runs before it.
        make_reservoir(one).set_params(n_units=_FEW, degree=_FEW).fit(n_inputs=1)
        made.append(one)
    return made


def _columns(one: argparse.Namespace) -> Row:
    """The settings of a run as columns."""
    law = one.leak_rate
    least = law if isinstance(law, float) else law[1] if law[0] == "uniform" else None
    names = "factors", "direct", "alpha", "passes", "experts", "classes"
    given = {name: getattr(one, name) for name in names}
    options = {name: value for name, value in given.items() if value is not None}
    kind, number = one.features
    same = "topology", "spectral_radius", "input_scaling", "bias_scaling", "activation"
    return {
        "n_units": one.units,
        "degree": one.degree,
        "connectivity": one.degree / one.units,
        "leak": one.leak,
        "min_leak": least,
        "features": f"{kind}:{number}" if kind else number,
        "readout": one.readout,
        "options": " ".join(f"{k}={v}" for k, v in (options | dict(one.option)).items()),
        "seed": one.seed,
        "input_degree": one.input_degree,
        **{name: getattr(one, name) for name in same},
    }


def _plan(args: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Arguments of `TrainingPlan`: held-out text is scored after passes alone."""
    from esnlm.models.training import TrainingPlan

    names = "chunk_tokens", "held_out_tokens"
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return asdict(TrainingPlan(seed=seed, score_every=0, **given))


def _share(connectivity: float, size: int) -> int:
    return max(1, round(connectivity * size))
