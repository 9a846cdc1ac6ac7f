"""Test cross-entropy on tiny Shakespeare after at most fifteen minutes, beside n-grams.

    python benchmarks/tiny_shakespeare.py [FILE] [--units N] [--passes P]

Lower-cased characters, the last tenth as test text, as Köster, Uchida et al. FILE is the text; it
is downloaded when left out. Ours: nats a character of the reservoir and its softmax readout. Peer:
those of Kneser-Ney n-grams on the same tokens. The second row is the time, training and scoring.
"""

import argparse
import time

from esnlm.blas import use_widest_kernels

use_widest_kernels()

from _report import report  # noqa: E402

from esnlm import LanguageModel, Reservoir, SoftmaxReadout  # noqa: E402
from esnlm.datasets import tiny_shakespeare  # noqa: E402
from esnlm.ngrams import KneserNey  # noqa: E402

ORDERS = (3, 4, 5, 7)


def main() -> None:
    """Fit, score, report."""
    args = _arguments()
    text = tiny_shakespeare(args.text)
    reservoir = Reservoir(
        args.units,
        spectral_radius=args.spectral_radius,
        input_scaling=args.input_scaling,
        degree=args.degree,
        topology="offsets",
        random_state=0,
    )
    readout = SoftmaxReadout(args.alpha, solver="incremental", n_passes=args.passes)
    model = LanguageModel(reservoir, readout, "char", reset="never", random_state=0, verbose=True)
    start = time.perf_counter()
    model.fit([text["train"]])
    ours = -model.score([text["test"]])
    minutes = (time.perf_counter() - start) / 60
    train, test = (model.tokenize([text[part]]).tokens for part in ("train", "test"))
    setting = f"N = {args.units}, degree {args.degree}, {args.passes} passes"
    rows = [
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
        ngrams = KneserNey(order, n_tokens=model.n_tokens_).fit([train])
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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("text", nargs="?", help="the text; downloaded when left out")
    parser.add_argument("--units", type=int, default=6000)
    parser.add_argument("--degree", type=int, default=16)
    parser.add_argument("--spectral-radius", type=float, default=0.8)
    parser.add_argument("--input-scaling", type=float, default=2.0)
    parser.add_argument("--alpha", type=float, default=30.0)
    parser.add_argument("--passes", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
