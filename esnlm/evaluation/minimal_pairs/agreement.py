"""Number agreement (Linzen et al. 2016), in the files of Gulordava et al. 2018.

Each pair is the beginning of a sentence with the right form of its verb, and with the wrong one.
The difference of the two scores is that of the forms after the same words.
"""

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from esnlm.evaluation.minimal_pairs.records import Pair, PairsError
from esnlm.text.corpus import opened_text

_FORMS = re.compile(r"(\d+)\t(\S+)\t(\S+)\t(\d+)\n?")


def is_agreement(file: Path) -> bool:
    """Whether a file (``.gold``, ``.gold.gz``) holds forms, whose sentences lie beside."""
    return file.name.removesuffix(".gz").endswith(".gold")


def agreement_pairs(gold: Path) -> Iterator[tuple[int, Pair]]:
    """Yield line and pair of a file of forms and one of sentences, whose names differ in ``.text``.

    A line of forms has, with tabs between: the place of the verb, the right form, the wrong one,
    and the number of attractors (nouns of the other number before it). Raises PairsError where the
    files do not belong together.
    """
    base, _, ending = gold.name.rpartition(".gold")
    texts = gold.with_name(f"{base}.text{ending}")
    if not texts.is_file():
        raise PairsError(f"no such file: {texts}, the sentences of {gold}")
    with opened_text(gold) as (forms, _), opened_text(texts) as (sentences, _):
        for number, (line, sentence) in enumerate(zip_longest(forms, sentences), start=1):
            if line is None or sentence is None:
                raise PairsError(f"{gold} and {texts} have not the same number of lines")
            yield number, _pair(f"{gold}:{number}", base, line, sentence.split())


def _pair(place: str, name: str, line: str, words: list[str]) -> Pair:
    """Return the pair of a line; forms are written as in the sentence, which may be lower-cased."""
    match = _FORMS.fullmatch(line)
    if match is None:
        raise PairsError(
            f"{place}: expected the verb's place, the right form, the wrong one and the number of"
            f" attractors, with tabs between, got {line!r}"
        )
    index, right, wrong, n_attractors = match.groups()
    verb = (words[int(index) :] or [""])[0]
    if verb == right.lower():
        right, wrong = verb, wrong.lower()
    if verb != right:
        raise PairsError(f"{place}: expected {right!r} as word {index} of the text, got {verb!r}")
    good, bad = (" ".join([*words[: int(index)], form]) for form in (right, wrong))
    return Pair(f"{n_attractors} attractors", "agreement", name, "", good, bad)
