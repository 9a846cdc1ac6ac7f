"""Seconds to judge all of BLiMP, beside scoring sentence by sentence.

    python benchmarks/blimp.py PAIRS TOKENIZER [--model FOLDER] [--units N] [--topology NAME]

PAIRS is what ``esnlm blimp --data`` takes, TOKENIZER GPT-2's tokenizer.json. Without --model the
model is an untrained one of the size of a trained one: a reservoir of N units and class-factored
softmax weights drawn at random for the whole vocabulary; the pace depends on shapes alone. The peer
is the model's ``log_likelihood`` of a sample of the sentences as documents; both its pace and ours
on that sample are shown.
"""

from esnlm.utils.blas import use_widest_kernels

use_widest_kernels()

import resource  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from _report import options, report, row  # noqa: E402

from esnlm import ClassFactoredReadout, LanguageModel, Reservoir  # noqa: E402
from esnlm.evaluation.minimal_pairs.pairs import Pair, read_pairs  # noqa: E402
from esnlm.evaluation.minimal_pairs.scores import score_pairs, sentence_log_likelihoods  # noqa: E402
from esnlm.loading import load_model  # noqa: E402
from esnlm.text.tokenizers import Tokenizer  # noqa: E402

SAMPLE = 4000
TARGET = 120.0


def main() -> None:
    args = options(__doc__, "pairs", "tokenizer", model=Path, units=4096, topology="offsets")
    pairs = read_pairs(args.pairs)
    model: Any
    if args.model is None:
        model = untrained(Tokenizer.from_file(args.tokenizer), args.units, args.topology)
        name = f"{args.units} units, {args.topology}, {model.n_tokens_} tokens, factored"
    else:
        model = load_model(args.model)
        name = args.model.name
    sample = np.random.default_rng(0).choice(len(pairs), min(SAMPLE, len(pairs)), replace=False)
    some = [pairs[k] for k in sorted(sample)]
    sentence_log_likelihoods(model, [some[0].good])  # compiled code is loaded
    small, peer, worst = beside_one_by_one(model, some)
    start, burnt = time.perf_counter(), time.process_time()
    score_pairs(model, pairs)
    took, burnt = time.perf_counter() - start, time.process_time() - burnt
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    whole = (
        f"all {len(pairs)} pairs in {burnt:.0f} s of processor time, {name},"
        f" peak RSS {peak:.1f} GiB"
    )
    whole += "; peer: its seconds on the sample, scaled"
    part = (
        f"{len(some)} pairs, sentences as documents by the peer; scores differ by at most"
        f" {worst:.1g} nats"
    )
    on_part = peer * len(some) / len(pairs)
    limit = {"target": f"<= {TARGET:.0f} s", "met": took <= TARGET}
    report(
        "blimp",
        [
            row("blimp", whole, took, peer, "s", ratio=peer / took, **limit),
            row("blimp", part, small, on_part, "s", ratio=on_part / small),
        ],
    )


def beside_one_by_one(model: Any, pairs: list[Pair]) -> tuple[float, float, float]:
    """Seconds of ours, of the peer scaled to 67 000 pairs, and the largest difference."""
    sentences = [sentence for pair in pairs for sentence in (pair.good, pair.bad)]
    start = time.perf_counter()
    ours = sentence_log_likelihoods(model, sentences, eos=True)
    middle = time.perf_counter()
    theirs = np.array([scores.sum() for scores in model.log_likelihood(sentences)])
    end = time.perf_counter()
    scaled = (end - middle) * 67_000 / len(pairs)
    return middle - start, scaled, float(np.abs(ours - theirs).max())


def untrained(tokenizer: Tokenizer, n_units: int, topology: str) -> LanguageModel:
    """A model of random weights, shaped as one that was trained."""
    n_tokens = len(tokenizer)
    reservoir = Reservoir(n_units, topology=topology, random_state=0).fit(n_inputs=n_tokens)
    rng = np.random.default_rng(0)
    n_classes = round(n_tokens**0.5)
    n_components = min(512, n_units)
    size = np.float32(n_units**-0.5)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, dtype=np.float32) * size

    arrays = {
        "n_features_in_": np.asarray(n_units),
        "classes_": np.arange(n_tokens),
        "word_class_": rng.permutation(np.arange(n_tokens) % n_classes),
        "directions_": normal(n_units, n_components),
        "shift_": np.zeros(n_components, dtype=np.float32),
        "class_weights_": normal(n_components + 1, n_classes),
        "coef_": normal(n_tokens, n_components),
        "intercept_": np.zeros(n_tokens, dtype=np.float32),
    }
    model = LanguageModel(reservoir, ClassFactoredReadout(), tokenizer=tokenizer)
    model.reservoir_, model.features_ = reservoir, None
    model.tokenizer_, model.n_tokens_ = tokenizer, n_tokens
    model.readout_ = ClassFactoredReadout().load_state_dict(arrays)
    return model


if __name__ == "__main__":
    main()
