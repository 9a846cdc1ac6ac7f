"""Compare networks trained on one corpus: a CSV with a row for each run, and a table."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from esnlm.evaluation.power_laws import power_law
from esnlm.evaluation.token_groups import FREQUENCY_BINS, bin_name
from esnlm.runs.grid import Row
from esnlm.storage.results import markdown_table
from esnlm.studies import minimal_pairs
from esnlm.studies.generation import ORDERS
from esnlm.text.corpus import TokenStream
from esnlm.utils.messages import log

KEY = ("model", "settings", "plan", "seed")
COLUMNS = (
    *KEY, "size", "corpus", "vocabulary", "pairs", "n_parameters", "n_parameters_total",
    "n_parameters_nonzero", "n_train_tokens", "n_held_out_tokens", "n_steps", "training_loss",
    "held_out_nll", "held_out_perplexity", *minimal_pairs.COLUMNS, "train_seconds",
    "tokens_per_second", "score_seconds", "peak_memory_mib", "peak_rss_mib",
    "machine", "command", "commit",
)  # fmt: skip
#: Columns of networks that generate text, too. Seconds of the reservoir are among those of training
#: and of generation: Köster & Uchida leave them out, as hardware would compute its states.
GENERATED = (
    "generated_tokens", *(f"overlap_{n}_{text}" for n in ORDERS for text in ("train", "held_out")),
    "generation_seconds", "train_reservoir_seconds", "generation_reservoir_seconds",
)  # fmt: skip
#: Columns of a power law: ``quantity = scale * n_parameters ** exponent``.
LAW_COLUMNS = (
    "model", "training", "quantity", "exponent", "lower", "upper", "scale", "n_rows",
)  # fmt: skip
_LEAST_SIZES = 3
#: Columns of runs with ``--bins``: perplexities of tokens by frequency in training.
BINS = tuple(f"perplexity {bin_name(*bounds)}" for bounds in FREQUENCY_BINS)
_MEANS = {"held-out nats a token": "held_out_nll", "perplexity": "held_out_perplexity"}


def grid(
    entries: Iterable[tuple[str, Mapping[str, Any]]],
    sizes: Sequence[int],
    plan: Mapping[str, Any],
    seeds: int,
    n_tokens: int,
    *,
    one_text: bool = False,
) -> list[Row]:
    """Return the runs: each entry in settings of about these numbers of trained parameters.

    An entry is the name of a network and those of its settings that are given. It is taken as
    given without sizes, or where its settings leave no size to choose. Training is each
    network's recipe with ``plan`` over it; ``one_text`` says that the corpus has no sentence
    boundaries. Settings and plans are checked.

    >>> (row,) = grid([("aerc", {})], [15_000], {"n_passes": 1}, seeds=1, n_tokens=60)
    >>> row["settings"], row["size"]
    ('{"n_hidden": 13, "n_units": 75}', 15000)
    """
    from esnlm.torch.networks.registry import check_settings, is_sized, settings_of_size
    from esnlm.torch.training.plan import plan_settings

    rows = []
    for model, own in entries:
        check_settings(model, own)
        variants: list[tuple[int | None, Mapping[str, Any]]] = [(None, own)]
        if sizes and not is_sized(model, own):
            variants = [(size, settings_of_size(model, size, n_tokens, own)) for size in sizes]
        for size, settings in variants:
            training = plan_settings(model, settings, plan, one_text=one_text)
            texts = [json.dumps(dict(each), sort_keys=True) for each in (settings, training)]
            row = {"model": model, "settings": texts[0], "plan": texts[1], "size": size}
            rows += [row | {"seed": seed} for seed in range(seeds)]
    return rows


def digest_of(*streams: TokenStream) -> str:
    """Twelve digits of the SHA-256 of texts' tokens, which the runs of one CSV share."""
    digest = hashlib.sha256()
    for stream in streams:
        for array in (stream.tokens, stream.starts):
            digest.update(b"|" if array is None else np.ascontiguousarray(array).data)
    return digest.hexdigest()[:12]


def table(rows: Sequence[Row]) -> str:
    """Return the rows in Markdown, by model and trained parameters."""
    pairs = zip(rows, differing_trainings(rows), strict=True)
    order = "model", "n_parameters", "seed"
    lines = [
        {
            "model": row["model"],
            "settings": ", ".join(_options(json.loads(row["settings"]))) or "default",
            "training": training,
            "seed": row["seed"],
            "trained parameters": f"{row['n_parameters']:,}",
            "all parameters": f"{row['n_parameters_total']:,}",
            "steps": f"{row['n_steps']:,}",
            "training nats a token": f"{row['training_loss']:.4f}",
            "held-out nats a token": f"{row['held_out_nll']:.4f}",
            "perplexity": f"{row['held_out_perplexity']:.3f}",
            "BLiMP, %": "" if row["blimp"] is None else f"{100 * row['blimp']:.1f}",
            "training s": f"{row['train_seconds']:.0f}",
            "tokens/s": f"{row['tokens_per_second']:,.0f}",
            "machine": row["machine"],
        }
        for row, training in sorted(pairs, key=lambda pair: [pair[0][name] for name in order])
    ]
    text = markdown_table(lines[0], (line.values() for line in lines))
    if means := list(_means(rows)):
        text += ["", "Means over seeds, and their standard errors:", ""]
        text += markdown_table(means[0], (line.values() for line in means))
    return "\n".join([*text, ""])


def _means(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield a line for each setting that several seeds were run of, in the order of the rows."""
    parts: dict[tuple[str, str, str], list[Row]] = {}
    for row, training in zip(rows, differing_trainings(rows), strict=True):
        parts.setdefault((row["model"], row["settings"], training), []).append(row)
    for (model, settings, training), runs in parts.items():
        if len(runs) == 1:
            continue
        named = ", ".join(_options(json.loads(settings))) or "default"
        line = {"model": model, "settings": named, "training": training, "seeds": len(runs)}
        for name, column in _MEANS.items():
            values = np.array([run[column] for run in runs])
            error = values.std(ddof=1) / np.sqrt(len(runs))
            line |= {name: f"{values.mean():.4f}", f"± {name}": f"{error:.4f}"}
        yield line


def differing_trainings(rows: Sequence[Row]) -> list[str]:
    """Return the options of each row's training that are not the same in all rows of its model."""
    plans = [(row["model"], json.loads(row["plan"])) for row in rows]
    alike: dict[str, set[str]] = {}
    for model, plan in plans:
        options = {*map(repr, plan.items())}
        alike[model] = alike.get(model, options) & options
    return [
        ", ".join(_options({k: v for k, v in plan.items() if repr((k, v)) not in alike[model]}))
        for model, plan in plans
    ]


def _options(settings: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield settings as ``name.setting=value``."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _options(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}={value if isinstance(value, str) else json.dumps(value)}"


def run_name(row: Row) -> str:
    """Return the name of a run's checkpoints, log and sample."""
    key = json.dumps([row[name] for name in KEY])
    return f"{row['model']}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def training_losses(rows: Sequence[Row], logs: Path) -> pd.DataFrame:
    """Return the losses along each run that has a log, beside what tells the runs apart.

    Warn of runs without one.
    """
    parts = []
    for row, training in zip(rows, differing_trainings(rows), strict=True):
        path = logs / f"{run_name(row)}.csv"
        if path.is_file():
            own = {name: row[name] for name in ("model", "n_parameters", "seed")}
            losses = pd.read_csv(path)[["tokens", "training_nll", "held_out_nll"]]
            parts.append(losses.assign(**own, training=training, settings=row["settings"]))
    if n_missing := len(rows) - len(parts):
        log.warning(
            f"{n_missing} of {len(rows)} runs have no log in {logs}: plots and power laws of"
            " training losses are without them"
        )
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def quantities(rows: Sequence[Row], losses: pd.DataFrame) -> pd.DataFrame:
    """Return what may be a power of the parameters: a line for each run and quantity.

    These are the held-out loss, the least `training_losses` as in Köster & Uchida's figure 7, and
    seconds, with the reservoir's and, as in their figure 4, without them.
    """
    table = pd.DataFrame(rows).assign(training=differing_trainings(rows))
    names = ["held_out_nll", "train_seconds"]
    if "generation_seconds" in table:
        names.append("generation_seconds")
        for part in ("train", "generation"):
            names.append(name := f"{part}_seconds_without_reservoir")
            table[name] = table[f"{part}_seconds"] - table[f"{part}_reservoir_seconds"]
    own = ["model", "training", "n_parameters", "settings"]
    lines = table.melt(own, names, "quantity")
    if len(losses):
        minima = losses.groupby([*own, "seed"], sort=False)["training_nll"].min()
        least = minima.reset_index(name="value").assign(quantity="least_training_nll")
        lines = pd.concat([lines, least[lines.columns]], ignore_index=True)
    return lines.dropna(subset="value")


def power_laws(lines: pd.DataFrame) -> list[Row]:
    """Fit a law to each of the `quantities` of a model that has three sizes or more.

    Models that have several settings at one size have none, which a message says.
    """
    laws: list[Row] = []
    without: dict[Any, None] = {}  # in order
    for group, points in lines.groupby(["model", "training", "quantity"], sort=False):
        if (n_sizes := points["n_parameters"].nunique()) < _LEAST_SIZES:
            continue
        if n_sizes == points["settings"].nunique():
            law = power_law(points["n_parameters"], points["value"])
            names = dict(zip(LAW_COLUMNS, group, strict=False))
            laws.append(names | law._asdict() | {"n_rows": len(points)})
        else:
            without[group[0]] = None
    for model in without:
        log.info(f"no power law of {model}: it has several settings of one size")
    return laws
