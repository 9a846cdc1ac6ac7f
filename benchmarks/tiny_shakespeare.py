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

from _report import report  # noqa: E402

from esnlm import LanguageModel, Reservoir, SoftmaxReadout  # noqa: E402
from esnlm.models.ngram import NgramLanguageModel  # noqa: E402
from esnlm.text.datasets import tiny_shakespeare  # noqa: E402

ORDERS = (3, 4, 5, 7)
SCALINGS = (0.5, 1.0, 2.0, 4.0)
RADII = (0.7, 0.8, 0.9, 0.97)
FEW_UNITS = 1000


def main() -> None:
    """Choose if asked, fit, score, report."""
    args = _arguments()
    text = tiny_shakespeare(args.text)
    if args.choose:
        report("tiny_shakespeare_choice", choose(args, text["train"]))
    model = make_model(args, args.units)
    start = time.perf_counter()
    model.fit([text["train"]])
    ours = -model.score([text["test"]])
    minutes = (time.perf_counter() - start) / 60
    train, test = (model.tokenize([text[part]]).tokens for part in ("train", "test"))
    setting = (
        f"N = {args.units}, degree {args.degree}, {args.passes} passes, "
        f"scaling {args.input_scaling:g}, radius {args.spectral_radius:g}"
    )
    rows: list[dict[str, Any]] = [
        {
            "benchmark": "training and scoring time",
            "setting": setting,
            "ours": minutes,
            "unit": "minutes",
            "target": "<= 15",
            "met": minutes <= 15,
        }
    ]
    for order in ORDERS:
        ngrams = NgramLanguageModel(order, n_tokens=model.n_tokens_).fit([train])
        peer = -float(ngrams.log_likelihood([test])[0].mean())
        rows.append(
            {
                "benchmark": "test cross-entropy",
                "setting": f"{setting}, beside a Kneser-Ney {order}-gram",
                "ours": ours,
                "peer": peer,
                "ratio": ours / peer,
                "unit": "nats a character",
                "target": "<= 1.75",
                "met": ours <= 1.75,
            }
        )
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
        rows.append(
            {
                "benchmark": "cross-entropy on the last tenth of the training text",
                "setting": f"N = {FEW_UNITS}, degree {args.degree}, {args.passes} passes, "
                f"scaling {args.input_scaling:g}, radius {args.spectral_radius:g}",
                "ours": -model.score([text[cut:]]),
                "unit": "nats a character",
            }
        )
        print(rows[-1]["setting"], rows[-1]["ours"], flush=True)
    best = min(range(len(rows)), key=lambda i: rows[i]["ours"])
    args.input_scaling, args.spectral_radius = list(product(SCALINGS, RADII))[best]
    return rows


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("text", nargs="?", help="the text; downloaded when left out")
    parser.add_argument("--units", type=int, default=6000)
    parser.add_argument("--degree", type=int, default=16)
    parser.add_argument("--spectral-radius", type=float, default=0.8)
    parser.add_argument("--input-scaling", type=float, default=2.0)
    parser.add_argument("--alpha", type=float, default=30.0)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument(
        "--choose", action="store_true", help="scaling and radius, without the test"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
