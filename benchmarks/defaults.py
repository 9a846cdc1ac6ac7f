"""Readouts on texts of several sizes: the evidence for the defaults of ``esnlm train``.

    python benchmarks/defaults.py train.txt dev.txt

The first lines of a text, its most frequent words; perplexity of other text (unknown words among
them), beside that of the 5-gram on the same text. 1 000 units, cyclic offsets, one seed.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _report import options, report, row

from esnlm import (
    LanguageModel,
    LowRankReadout,
    NgramLanguageModel,
    Reservoir,
    RidgeReadout,
    SoftmaxReadout,
    SpectralWordFeatures,
)
from esnlm.text.tokenizers import Tokenizer

# Lines of the text, and words kept.
CUTS: tuple[tuple[int, int | None], ...] = (
    (3000, 200), (11000, 200), (3000, 1000), (11000, 1000), (3000, None), (11000, None),
)  # fmt: skip


def main() -> None:
    """Fit every readout on every cut."""
    args = options(__doc__, "train", "dev")
    warnings.filterwarnings("ignore", ".* of the tokens are not in the vocabulary")
    report("defaults", measured(lines_of(args.train), lines_of(args.dev)))


def lines_of(path: Path) -> list[str]:
    """Lines that are not empty."""
    return [line for line in path.read_text().splitlines() if line]


def measured(train: list[str], dev: list[str]) -> Iterator[dict[str, Any]]:
    """Perplexities on ``dev`` of readouts that learned cuts of ``train``."""
    for n_lines, n_words in CUTS:
        text = train[:n_lines]
        tokenizer = Tokenizer.train_words(text, vocab_size=n_words)
        peer = NgramLanguageModel(order=5, tokenizer=tokenizer).fit(text).perplexity(dev)
        for name, model in models(tokenizer).items():
            ours = model.fit(text).perplexity(dev)
            setting = f"{n_lines} lines, {len(tokenizer)} words, {name}"
            yield row("perplexity", setting, ours, peer, "perplexity")


def models(tokenizer: Tokenizer) -> dict[str, LanguageModel]:
    """Ridge and softmax on states of one-hot words; low-rank with features and leaky units."""
    plain: dict[str, Any] = {"ridge": RidgeReadout()}
    if len(tokenizer) <= 1000:
        plain["softmax, alpha 100"] = SoftmaxReadout(alpha=100.0)
    made = {name: model(tokenizer, readout) for name, readout in plain.items()}
    for n_direct in (0, 3):
        for alpha in (10.0, 100.0):
            ngrams = 1 << 17 if n_direct else 0
            readout = LowRankReadout(
                n_direct=n_direct, n_ngrams=ngrams, alpha=alpha, random_state=0
            )
            name = f"low-rank, direct {n_direct}, alpha {alpha:g}"
            features = SpectralWordFeatures(n_features=min(128, len(tokenizer)), random_state=0)
            made[name] = model(tokenizer, readout, features, leak_rate=("uniform", 0.0, 1.0))
    return made


def model(
    tokenizer: Tokenizer, readout: Any, features: Any = None, **settings: Any
) -> LanguageModel:
    """A model of 1 000 units that is not fitted yet."""
    reservoir = Reservoir(1000, topology="offsets", random_state=0, **settings)
    return LanguageModel(reservoir, readout, tokenizer=tokenizer, features=features, random_state=0)


if __name__ == "__main__":
    main()
