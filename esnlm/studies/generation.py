"""Generated text in experiments: its overlap with other texts, as columns of a row."""

from collections.abc import Hashable, Mapping, Sequence

from esnlm.evaluation.metrics import ngram_overlap

#: n-grams whose overlap is measured (Köster & Uchida, figure 3).
ORDERS = (7, 8)


def overlaps(
    generated: Sequence[Hashable], texts: Mapping[str, Sequence[Hashable]]
) -> dict[str, float]:
    """Shares of the distinct 7- and 8-grams of a text that occur in each of the others.

    >>> overlaps("to be or not", {"train": "to be or nothing"})
    {'overlap_7_train': 1.0, 'overlap_8_train': 1.0}
    """
    return {
        f"overlap_{n}_{part}": ngram_overlap(generated, text, n)
        for n in ORDERS
        for part, text in texts.items()
    }
