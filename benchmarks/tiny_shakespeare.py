"""Test cross-entropy on tiny Shakespeare after at most fifteen minutes, beside n-grams.

    python benchmarks/tiny_shakespeare.py [FILE] [--units N] [--passes P] [--choose]

Lower-cased characters, the last tenth as test text, as Köster, Uchida et al. FILE is the text; it
is downloaded when left out. Ours: nats a character of the reservoir and its softmax readout. Peer:
those of Kneser-Ney n-grams on the same tokens. The first row is the time, training and scoring.

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

from esnlm import LanguageModel, Reservoir, SoftmaxReadout  # noqa: E402
from esnlm.models.ngram import NgramLanguageModel  # noqa: E402
from esnlm.text.datasets import tiny_shakespeare  # noqa: E402

ORDERS = (3, 4, 5, 7)
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
    )
    text = tiny_shakespeare(args.text)
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
        ngrams = NgramLanguageModel(order, n_tokens=model.n_tokens_).fit([train])
        peer = -float(ngrams.log_likelihood([test])[0].mean())
        beside = f"{setting}, beside a Kneser-Ney {order}-gram"
        met = {"target": "<= 1.75", "met": ours <= 1.75}
        rows.append(row("test cross-entropy", beside, ours, peer, "nats a character", **met))
    report("tiny_shakespeare", rows)


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
    readout = SoftmaxReadout(args.alpha, solver="incremental", n_passes=args.passes)
    return LanguageModel(reservoir, readout, "char", reset="never", random_state=0, verbose=True)


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
