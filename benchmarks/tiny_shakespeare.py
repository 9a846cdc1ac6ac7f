"""Test cross-entropy on tiny Shakespeare after at most fifteen minutes, beside n-grams.

    python benchmarks/tiny_shakespeare.py [FILE] [--units N] [--passes P] [--choose]

Lower-cased characters, the last tenth as test text, as Köster, Uchida et al. FILE is the text; it
is downloaded when left out. Ours: nats a character of the reservoir and its softmax readout. Peer:
those of Kneser-Ney n-grams on the same tokens. The first row is the time, training and scoring.

With ``--ngrams`` ours is a reservoir with a softmax for each last character and direct connections
from 8 of them, three seeds; with ``--controls`` in its place states of the last character alone
(radius 0, no leak), leaky traces of the characters (radius 0), and no n-grams. Time is processor
time, divided by two cores. With ``--network`` ours is the weighted mean of that model and of
``esn+mlp``, the network that reads a frozen reservoir by residual layers; controls are then of
both: the network of the last 8 characters alone beside the first of those above, and leaky traces
in both. With ``--cased`` the text is as nanoGPT takes it: case kept, 65 characters, the first nine
tenths to train on. New rows are added to the CSV.

With ``--choose``, input scalings and spectral radii are compared first, by small reservoirs on the
last tenth of the training text: a row each in `tiny_shakespeare_choice.csv`, and the best is used.
The test text is not looked at.
"""

import argparse
import time
from itertools import product
from typing import Any

from esnlm.utils.blas import use_widest_kernels

use_widest_kernels()

from _report import options, report, row  # noqa: E402

from esnlm import LanguageModel, Reservoir, SoftmaxReadout, TokenGatedReadout  # noqa: E402
from esnlm.datasets import load_tiny_shakespeare  # noqa: E402
from esnlm.models.interpolated import InterpolatedModel  # noqa: E402
from esnlm.models.ngram import NgramLanguageModel  # noqa: E402
from esnlm.training.trainer import Trainer  # noqa: E402

ORDERS = (3, 4, 5, 7)
NGRAM_ORDERS = (5, 6, 7, 8, 9)
# Chosen on the last ninth of the training text with its case.
NGRAMS: dict[str, Any] = {"units": 1000, "alpha": 100.0, "passes": 2, "direct": 8}
TRACES: dict[str, Any] = {"radius": 0.9, "scaling": 0.5, "leak": ("uniform", 0.0, 0.5)}
CONTROLS: dict[str, dict[str, Any]] = {
    "last character alone": {"radius": 0.0, "leak": 1.0, "units": 32},
    "leaky traces, radius 0": {"radius": 0.0},
    "no n-grams": {"direct": 1},
}
#: `esn+mlp` on the same characters, its training, and its share of the mean: chosen there too.
NETWORK: dict[str, Any] = {
    "n_features": 0, "n_pairs": 0, "two_level": False, "n_direct": 8, "attention": 0,
    "dropout": 0.2,
}  # fmt: skip
NETWORK_PLAN: dict[str, Any] = {
    "batching": "streams", "batch_size": 64, "length": 64, "n_passes": 6, "learning_rate": 4e-3,
    "bf16": True, "score_every": 0,
}  # fmt: skip
#: Of the network, beside those of the same names.
NETWORK_CONTROLS: dict[str, dict[str, Any]] = {
    "last character alone": {"state": False},
    "leaky traces, radius 0": {"radius": 0.0},
}
SHARE = 0.35
SCALINGS = (0.5, 1.0, 2.0, 4.0)
RADII = (0.7, 0.8, 0.9, 0.97)
FEW_UNITS = 1000


def main() -> None:
    """Choose if asked, fit, score, report."""
    args = options(
        __doc__,
        "text?",
        units=6000,
        degree=16,
        spectral_radius=0.8,
        input_scaling=2.0,
        alpha=30.0,
        passes=3,
        choose=False,
        ngrams=False,
        cased=False,
        controls=False,
        network=False,
    )
    if args.network:
        measure_network(args)
        return
    if args.ngrams or args.controls:
        measure_ngrams(args)
        return
    text = load_tiny_shakespeare(args.text)
    if args.choose:
        report("tiny_shakespeare_choice", choose(args, text["train"]))
    model = make_model(args, args.units)
    start = time.perf_counter()
    ours = -model.fit([text["train"]]).score([text["test"]])
    minutes = (time.perf_counter() - start) / 60
    train, test = (model.tokenize([text[part]]).tokens for part in ("train", "test"))
    setting = (
        f"N = {args.units}, degree {args.degree}, {args.passes} passes, "
        f"scaling {args.input_scaling:g}, radius {args.spectral_radius:g}"
    )
    met: Any = {"target": "<= 15", "met": minutes <= 15}
    rows = [row("training and scoring time", setting, minutes, unit="minutes", **met)]
    for order in ORDERS:
        ngrams = NgramLanguageModel(order=order, n_tokens=model.n_tokens_).fit([train])
        peer = -float(ngrams.log_likelihood([test])[0].mean())
        beside = f"{setting}, beside a Kneser-Ney {order}-gram"
        met = {"target": "<= 1.75", "met": ours <= 1.75}
        rows.append(row("test cross-entropy", beside, ours, peer, "nats a character", **met))
    report("tiny_shakespeare", rows)


def as_nanogpt(args: argparse.Namespace) -> tuple[str, str, str, Any]:
    """Training and test text, what they are called, and the loss that is aimed at."""
    text = "".join(load_tiny_shakespeare(args.text, lower=not args.cased).values())
    cut = int(0.9 * len(text))
    kind = "case kept, as nanoGPT" if args.cased else "lower case"
    return text[:cut], text[cut:], kind, 1.47 if args.cased else ""


def measure_network(args: argparse.Namespace) -> None:
    """The joint model and the network, each and their mean: rows as they come."""
    train, test, kind, goal = as_nanogpt(args)
    runs: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("reservoirs", {"seed": seed}, {"seed": seed}) for seed in range(3)
    ]
    if args.controls:
        runs = [(name, CONTROLS[name], changes) for name, changes in NETWORK_CONTROLS.items()]
    for name, of_joint, of_network in runs:
        start = time.process_time()
        settings = NGRAMS | TRACES | {"seed": 0} | of_joint
        joint = joint_model(**settings)
        Trainer(joint, joint._read_corpus([train])).run()
        settings_of_network = {"seed": 0, "radius": TRACES["radius"], "state": True} | of_network
        network = network_model(joint, train, **settings_of_network)
        both = InterpolatedModel([network, joint], weights=[SHARE, 1 - SHARE])
        losses = [-model.score([test]) for model in (network, both)]
        minutes = (time.process_time() - start) / 60
        of = f"{kind}: {name}, esn+mlp, seed {settings['seed']}"
        made = [
            row("test cross-entropy", f"{of}: alone", losses[0], unit="nats a character"),
            row("test cross-entropy", f"{of}: {SHARE} of it, the rest joint", losses[1],
                unit="nats a character"),
            row("processor minutes", of, minutes, unit="minutes"),
        ]  # fmt: skip
        if goal and not args.controls:
            made[1] |= {"target": f"<= {goal}", "met": losses[1] <= goal}
            made[2] |= {"target": "<= 10", "met": minutes <= 10}
        report("tiny_shakespeare", made, merge=True)


def network_model(joint: LanguageModel, text: str, seed: int, radius: float, state: bool) -> Any:
    """``esn+mlp``, trained on one thread to predict the characters that the joint model knows."""
    import torch

    from esnlm.torch.language_model import TorchLanguageModel
    from esnlm.torch.networks.esn_mlp import EchoStateNetworkWithMLP
    from esnlm.torch.training.plan import Plan
    from esnlm.torch.training.trainer import NetworkTrainer

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    reservoir = {
        "n_units": 500, "degree": 16, "topology": "offsets", "spectral_radius": radius,
        "input_scaling": TRACES["scaling"], "leak_rate": TRACES["leak"], "random_state": seed,
    }  # fmt: skip
    network = EchoStateNetworkWithMLP(joint.n_tokens_, reservoir=reservoir, state=state, **NETWORK)
    plan = Plan(**EchoStateNetworkWithMLP.RECIPE | NETWORK_PLAN, random_state=seed)
    NetworkTrainer(network, joint.tokenize([text]), None, plan).run()
    return TorchLanguageModel(network, joint.tokenizer_, reset="never")


def measure_ngrams(args: argparse.Namespace) -> None:
    """The joint model, its controls and Kneser-Ney on one text: rows as they come."""
    train, test, kind, goal = as_nanogpt(args)
    runs = [("joint", {"seed": seed}) for seed in range(3)]
    if args.controls:
        runs = list(CONTROLS.items())
    losses = []
    for name, changes in runs:
        start = time.process_time()
        settings = NGRAMS | TRACES | {"seed": 0} | changes
        model = joint_model(**settings)
        Trainer(model, model._read_corpus([train])).run()
        loss = -model.score([test])
        minutes = (time.process_time() - start) / 60
        setting = f"{kind}: {name}, N = {settings['units']}, seed {settings['seed']}"
        made = [row("test cross-entropy", setting, loss, unit="nats a character")]
        if name == "joint":
            losses.append(loss)
            met: Any = {"target": f"<= {goal}", "met": loss <= goal} if goal else {}
            made[0] |= met
        limit: Any = {"target": "<= 10", "met": minutes <= 10} if goal else {}
        made.append(row("processor minutes", setting, minutes, unit="minutes", **limit))
        report("tiny_shakespeare", made, merge=True)
    if args.controls:
        return
    ours = sum(losses) / len(losses)
    tokens = [model.tokenize([part]).tokens for part in (train, test)]
    for order in NGRAM_ORDERS:
        peer = NgramLanguageModel(order=order, n_tokens=model.n_tokens_).fit(tokens[:1])
        loss = -float(peer.log_likelihood(tokens[1:])[0].mean())
        setting = f"{kind}: joint, mean of three seeds, beside a Kneser-Ney {order}-gram"
        made = [row("test cross-entropy", setting, ours, loss, "nats a character")]
        report("tiny_shakespeare", made, merge=True)


def joint_model(
    units: int, alpha: float, passes: int, direct: int, radius: float, scaling: float, leak: Any,
    seed: int,
) -> LanguageModel:  # fmt: skip
    """The unfitted reservoir with a readout for each last character and its n-grams."""
    reservoir = Reservoir(
        units,
        spectral_radius=radius,
        input_scaling=scaling,
        leak_rate=leak,
        degree=16,
        topology="offsets",
        random_state=seed,
    )
    readout = TokenGatedReadout(alpha=alpha, n_passes=passes, n_direct=direct)
    return LanguageModel(reservoir, readout, tokenizer="char", reset="never", random_state=seed)


def make_model(args: argparse.Namespace, units: int) -> LanguageModel:
    """The unfitted model of the options."""
    reservoir = Reservoir(
        units,
        spectral_radius=args.spectral_radius,
        input_scaling=args.input_scaling,
        degree=args.degree,
        topology="offsets",
        random_state=0,
    )
    readout = SoftmaxReadout(alpha=args.alpha, solver="incremental", n_passes=args.passes)
    return LanguageModel(
        reservoir, readout, tokenizer="char", reset="never", random_state=0, verbose=True
    )


def choose(args: argparse.Namespace, text: str) -> list[dict[str, Any]]:
    """Set scaling and radius to those best on the last tenth of the training text; the rows."""
    cut = len(text) * 9 // 10
    rows: list[dict[str, Any]] = []
    for args.input_scaling, args.spectral_radius in product(SCALINGS, RADII):
        model = make_model(args, FEW_UNITS).fit([text[:cut]])
        setting = (
            f"N = {FEW_UNITS}, degree {args.degree}, {args.passes} passes, "
            f"scaling {args.input_scaling:g}, radius {args.spectral_radius:g}"
        )
        loss = -model.score([text[cut:]])
        benchmark = "cross-entropy on the last tenth of the training text"
        rows.append(row(benchmark, setting, loss, unit="nats a character"))
        print(rows[-1]["setting"], rows[-1]["ours"], flush=True)
    best = min(range(len(rows)), key=lambda i: rows[i]["ours"])
    args.input_scaling, args.spectral_radius = list(product(SCALINGS, RADII))[best]
    return rows


if __name__ == "__main__":
    main()
