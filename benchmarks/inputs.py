"""What drives the reservoir: vectors of words found in many ways, under the same readouts.

    python benchmarks/inputs.py SHARDS HELD_OUT --inputs spectral:128 network:128

Shards of text to learn from and to judge by (``esnlm prepare``), then inputs with their settings:
``one-hot``; ``random:F``; ``spectral:F,window=W``; ``next:F`` and ``previous:F``, spectral features
of the neighbours on one side; ``both:F``, half of them of each side; ``surprisal:F``, spectral ones
as long as a word is surprising; ``ahead:F,first=A,last=B``, from the words A to B places later
(``near=N``: N of them from the next word); ``direct:F``, principal directions of what a low-rank
readout of the last three tokens learns of them, without a reservoir (``whiten=true``: of variance
one); ``network:F``, the same of what the network ``esn+mlp`` that reads them alone learns in a pass
of its own. Readouts: ``lowrank``, that of
``esnlm train``; ``mlp``, the network ``esn+mlp`` without pairs, one pass, its word classes of
spectral features whatever drives the reservoir; ``traces``, the same without attention; ``state``,
without the last tokens too; ``last_tokens``, without a reservoir; ``esn+i``, which learns its
inputs itself by gradient through time (here they are ``truncate:K`` steps, or ``whole``).

A row for each, with its processor seconds, is added to ``reports/inputs/inputs.csv``, and all rows
are drawn beside it.
"""

import fcntl
import json
import resource
import shlex
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from _report import ROOT, commit, machine, options
from sklearn.utils.extmath import randomized_svd

from esnlm import LanguageModel, LowRankReadout, Reservoir, SpectralWordFeatures
from esnlm.features.spectral import pair_counts
from esnlm.plots.figures import BLUE, panels, save
from esnlm.storage.atomic import write_whole
from esnlm.text.corpus import TokenStream
from esnlm.text.shards import Shards
from esnlm.training.trainer import Trainer, TrainingPlan
from esnlm.utils.arrays import Array

PATH = ROOT / "reports" / "inputs" / "inputs.csv"
KEY = [
    "inputs", "readout", "units", "input_scaling", "share", "seed", "vocabulary",
    "n_held_out_tokens",
]  # fmt: skip
MADE = {
    "command": shlex.join(
        [
            "python",
            "benchmarks/inputs.py",
            *(Path(text).name for text in sys.argv[1:3]),
            *sys.argv[3:],
        ]
    ),
    "commit": commit(),
    "machine": machine(),
    "date": datetime.now(UTC).strftime("%Y-%m-%d"),
}
#: What ``esnlm train`` gives a large vocabulary.
DIRECT: dict[str, Any] = {"n_direct": 3, "n_ngrams": 1 << 18}
RESERVOIR: dict[str, Any] = {"topology": "offsets", "leak_rate": ("uniform", 0.0, 1.0)}
WITHOUT_PAIRS: dict[str, Any] = {"n_pairs": 0, "n_hidden": 512}
#: Networks that read states, the last tokens, or both.
SETTINGS: dict[str, dict[str, Any]] = {
    "mlp": {},
    "traces": {"attention": 0},
    "state": {"attention": 0, "n_direct": 0},
    "last_tokens": {"attention": 0, "state": False},
}
#: ESN+i as reports/babylm_torch found it best.
TRAINED: dict[str, Any] = {
    "activation": "tanh", "leak_rate": ("uniform", 0.0, 1.0), "input_scaling": 0.1,
}  # fmt: skip
#: Inputs that a panel of the plot must compare.
_FEWEST = 5
TRAINED_PLAN: dict[str, Any] = {"pool": 64, "schedule": "cosine", "learning_rate": 0.01}


def main() -> None:
    """Judge every kind of inputs that is asked for."""
    args = options(
        __doc__, "train", "held_out", inputs=["spectral:128"], readouts=["lowrank"],
        units=512, input_scaling=0.0, share=1.0, seed=0,
    )  # fmt: skip
    train, held = Shards(args.train), Shards(args.held_out).stream()
    stream, size = beginning(train.stream(), args.share), train.n_tokens_vocab
    for name in args.inputs:
        started, vectors = time.process_time(), None
        if args.readouts != ["esn+i"]:
            vectors = inputs_of(name, stream, size, args)
        spent = time.process_time() - started
        for readout in args.readouts:
            started = time.process_time()
            if readout == "esn+i":
                loss = esn_i(name, stream, held, size, args)
            elif readout == "lowrank":
                loss = low_rank(vectors, stream, held, size, args)
            else:
                loss = nats(mlp(SETTINGS[readout], vectors, stream, size, args), held)
            write(
                {
                    **{
                        key: getattr(args, key)
                        for key in ("units", "input_scaling", "share", "seed")
                    },
                    "inputs": name,
                    "readout": readout,
                    "vocabulary": size,
                    "n_held_out_tokens": held.n_predicted,
                    "n_train_tokens": stream.n_predicted,
                    "nats": round(loss, 4),
                    "input_seconds": round(spent),
                    "seconds": round(spent + time.process_time() - started),
                    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
                }
            )


def write(row: dict[str, Any]) -> None:
    """Add a row to the file, in the place of one of the same setting."""
    print(*(f"{key}={value}" for key, value in row.items()), flush=True)
    table = pd.DataFrame([{**{key: row[key] for key in KEY}, **row, **MADE}]).astype(str)
    with open(__file__) as here:
        fcntl.flock(here, fcntl.LOCK_EX)  # several of these may run
        add(table)


def add(table: pd.DataFrame) -> None:
    """Add rows to the file, and draw all of them."""
    if PATH.exists():
        known = pd.read_csv(PATH, dtype=str, keep_default_na=False)
        table = pd.concat([known, table]).drop_duplicates(KEY, keep="last")
    PATH.parent.mkdir(parents=True, exist_ok=True)
    write_whole(PATH, table.to_csv(index=False, lineterminator="\n"))
    draw(pd.read_csv(PATH, keep_default_na=False))


def draw(rows: pd.DataFrame) -> None:
    """Held-out loss of inputs, a panel for each readout and text that has five of them or more."""
    by = ["readout", "units", "n_train_tokens", "vocabulary", "n_held_out_tokens"]
    groups = [each for each in rows.groupby(by) if each[1]["inputs"].nunique() >= _FEWEST]
    if not groups:
        return
    n_lines = sum(group["inputs"].nunique() for _, group in groups)
    figure, axes = panels(len(groups), across=1, size=(6.4, 0.3 * n_lines + 1.3 * len(groups)))
    for axis, ((readout, units, n_tokens, *_), group) in zip(axes, groups, strict=True):
        names = group.groupby("inputs")["nats"].min().sort_values(ascending=False).index
        places = [list(names).index(name) for name in group["inputs"]]
        axis.plot(group["nats"], places, "o", color=BLUE)
        axis.set_yticks(range(len(names)), names)
        axis.set_title(f"{readout}, {units} units, {n_tokens:,} training tokens", loc="left")
        axis.set_xlabel("held-out loss, nats a token")
    save(figure, PATH.with_suffix(".png"))


def beginning(stream: TokenStream, share: float) -> TokenStream:
    """The first sentences, a share of all."""
    if share >= 1:
        return stream
    assert stream.starts is not None
    n = int(len(stream.starts) * share)
    end = int(stream.starts[n])
    return TokenStream(np.array(stream.tokens[:end]), stream.starts[:n], np.array([0, end]))


def inputs_of(name: str, stream: TokenStream, size: int, args: Any) -> Array | None:
    """The vectors (V, F) that are called so; None for one-hot words."""
    kind, _, text = name.partition(":")
    number, *settings = text.split(",")
    given = {key: json.loads(value) for key, value in (pair.split("=") for pair in settings)}
    if kind == "one-hot":
        return None
    n_features = int(number)
    where: dict[str, Any] = {"n_tokens": size, "starts": stream.starts}
    if kind == "random":
        return unit(np.random.default_rng(args.seed).standard_normal((size, n_features)))
    if kind == "direct":
        tables = of_direct_connections(stream, size, args)
        return principal(tables, n_features, stream, **given)
    if kind == "network":
        tables = of_last_tokens(stream, size, args)
        return principal(tables, n_features, stream, **given)
    if kind in ("next", "previous", "both"):
        counts = pair_counts(stream.tokens, size, stream.starts)
        sides = {"next": [counts], "previous": [counts.T.tocsr()], "both": [counts, counts.T]}[kind]
        parts = [one_sided(side.tocsr(), n_features // len(sides)) for side in sides]
        return np.hstack(parts) / np.float32(len(parts) ** 0.5)
    if kind == "ahead":
        return ahead(n_features, stream, size, **given)
    words = SpectralWordFeatures(n_features=n_features, random_state=args.seed, **given)
    rows = words.fit(stream.tokens, **where).embedding_
    if kind == "surprisal":
        counts = np.bincount(stream.tokens, minlength=size)
        lengths = -np.log((counts + 0.5) / counts.sum())
        lengths /= np.sqrt(counts @ lengths**2 / counts.sum())
        rows = (rows * lengths[:, None]).astype(np.float32)
    return rows


def ahead(
    n_features: int, stream: TokenStream, size: int, *, first: int, last: int, near: int = 0
) -> Array:
    """Features from words some places later, ``near`` of them from the next word."""
    apart = [
        pair_counts(stream.tokens, size, stream.starts, distance)
        for distance in range(first, last + 1)
    ]
    rows = one_sided(sum(apart[1:], apart[0]), n_features - near)
    if not near:
        return rows
    nearest = one_sided(pair_counts(stream.tokens, size, stream.starts), near)
    return unit(np.hstack([nearest, rows]))


def one_sided(counts: Any, n_features: int) -> Array:
    """Features (V, F) from how often the word of a column stands beside that of a row (V, V)."""
    row, column = (
        scipy.sparse.diags_array((np.asarray(counts.sum(axis=axis)).ravel() + 1.0) ** -0.25)
        for axis in (1, 0)
    )
    scaled = scipy.sparse.csr_matrix(row @ counts.sqrt() @ column)
    left, values, _ = randomized_svd(scaled, n_features, n_iter=3, random_state=0)
    return unit(left * np.sqrt(values))


def of_direct_connections(stream: TokenStream, size: int, args: Any) -> list[Array]:
    """What a low-rank readout of the last three tokens learns of each word: tables (V, P)."""
    silent = Reservoir(1, input_scaling=0.0, random_state=0)
    readout = LowRankReadout(n_components=512, n_direct=3, random_state=args.seed)
    model = LanguageModel(silent, readout, n_tokens=size, random_state=args.seed)
    return list(trained(model, stream, None, args).readout_.direct_coef_[:, :-1])


def of_last_tokens(stream: TokenStream, size: int, args: Any) -> list[Array]:
    """What a network of the last three tokens learns of each word: tables (V, width)."""
    made = mlp(SETTINGS["last_tokens"], None, stream, size, args)
    return [table.weight[:-1].detach().numpy() for table in made.tokens]


def principal(
    tables: list[Array], n_features: int, stream: TokenStream, *, whiten: bool = False
) -> Array:
    """Principal directions of tables of words, over the words of a text."""
    rows = np.concatenate(tables, axis=1)
    weights = np.bincount(stream.tokens, minlength=len(rows)) / len(stream.tokens)
    rows = rows - weights @ rows
    _, values, axes = np.linalg.svd(rows * np.sqrt(weights)[:, None], full_matrices=False)
    rows = rows @ axes[:n_features].T
    if whiten:
        return np.clip(rows / values[:n_features], -5, 5).astype(np.float32)
    return unit(rows)


def unit(rows: Array) -> Array:
    """Rows of length one, or zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(lengths > 1e-9, rows / np.maximum(lengths, 1e-30), 0).astype(np.float32)


def drawn(n_inputs: int, args: Any) -> Reservoir:
    """The reservoir of the core's model."""
    scaling = args.input_scaling or 1.0
    made = Reservoir(args.units, input_scaling=scaling, random_state=args.seed, **RESERVOIR)
    return made.fit(n_inputs=n_inputs)


def trained(model: LanguageModel, stream: TokenStream, held: Any, args: Any) -> LanguageModel:
    """The model, trained in passes as ``esnlm train`` does."""
    run = Trainer(
        model,
        model._read_corpus(stream),
        held_out=held,
        plan=TrainingPlan(random_state=args.seed, score_every=0),
    )
    fitted: LanguageModel = run.run()
    return fitted


def low_rank(
    vectors: Array | None, stream: TokenStream, held: TokenStream, size: int, args: Any
) -> float:
    """Held-out nats of the core's low-rank readout with direct connections."""
    words = None
    if vectors is not None:
        words = SpectralWordFeatures(n_features=vectors.shape[1])
        words.embedding_, words.singular_values_ = vectors, np.ones(vectors.shape[1])
    reservoir = drawn(size if vectors is None else vectors.shape[1], args)
    readout = LowRankReadout(random_state=args.seed, **DIRECT)
    model = LanguageModel(
        reservoir, readout, tokenizer=None, features=words, n_tokens=size, random_state=args.seed
    )
    return -float(trained(model, stream, held, args).score(held))


def mlp(
    settings: dict[str, Any], vectors: Array | None, stream: TokenStream, size: int, args: Any
) -> Any:
    """``esn+mlp`` without pairs, driven by the vectors, after a pass."""
    import torch

    from esnlm.torch.networks.esn_mlp import EchoStateNetworkWithMLP, _normalised

    class Given(EchoStateNetworkWithMLP):
        def survey(self, stream: TokenStream) -> None:
            super().survey(stream)
            if vectors is None:
                return
            counts = np.bincount(stream.tokens, minlength=size)
            self.inputs.vectors.copy_(torch.from_numpy(_normalised(vectors, counts)))
            self._measure(stream)

    reservoir: dict[str, Any] = {"n_units": args.units, "random_state": args.seed}
    if args.input_scaling:
        reservoir["input_scaling"] = args.input_scaling
    n_features = 0 if vectors is None else vectors.shape[1]
    settings = {"reservoir": reservoir, "n_features": n_features, **WITHOUT_PAIRS, **settings}
    plan = {**EchoStateNetworkWithMLP.RECIPE, "n_passes": 1}
    return trained_network(lambda: Given(size, **settings), plan, stream, args)


def esn_i(name: str, stream: TokenStream, held: TokenStream, size: int, args: Any) -> float:
    """Held-out nats of ESN+i, whose gradient goes through all or a few steps of time."""
    from esnlm.torch.networks.esn import EchoStateNetworkWithEmbedding

    kind, _, steps = name.partition(":")
    reservoir = {**TRAINED, "n_units": args.units, "random_state": args.seed}
    truncate = int(steps) if kind == "truncate" else None
    made = trained_network(
        lambda: EchoStateNetworkWithEmbedding(
            size, reservoir=reservoir, dropout=0.0, truncate=truncate
        ),
        {**EchoStateNetworkWithEmbedding.RECIPE, **TRAINED_PLAN},
        stream,
        args,
    )
    return nats(made, held)


def trained_network(
    make: Callable[[], Any], plan: dict[str, Any], stream: TokenStream, args: Any
) -> Any:
    """A network after training, one thread."""
    import torch

    from esnlm.torch.training.plan import Plan
    from esnlm.torch.training.trainer import NetworkTrainer

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    made = make()
    NetworkTrainer(made, stream, None, Plan(**plan, score_every=0, random_state=args.seed)).run()
    return made


def nats(made: Any, held: TokenStream) -> float:
    """A network's held-out loss a token."""
    from esnlm.torch.language_model import TorchLanguageModel

    return -float(TorchLanguageModel(made).score(held))


if __name__ == "__main__":
    main()
