"""Shakespeare's works in both spellings, and parts of equal size that share no work.

The two files of `esnlm.datasets.load_shakespeare` hold works end to end without titles: a work
is found by the words it begins with. Both copies of a play are in the same part.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from esnlm.datasets import load_shakespeare
from esnlm.text.corpus import CorpusError
from esnlm.utils.validation import Count


class Opening(NamedTuple):
    """A title, and the words that begin the work in either file; None in a file without it."""

    title: str
    modern: str | None
    folio: str | None


def openings() -> list[Opening]:
    """Return the openings of all works, in the order of both files."""
    table = pd.read_csv(Path(__file__).with_name("openings.csv"), keep_default_na=False)
    rows = table.replace(r"\\n", "\n", regex=True).itertuples(index=False)
    return [Opening(title, modern or None, folio or None) for title, modern, folio in rows]


#: The Passionate Pilgrim has two of the sonnets and three poems of Love's Labour's Lost.
KIN = (frozenset({"The Passionate Pilgrim", "Sonnets", "Love's Labour's Lost"}),)


@dataclass(frozen=True)
class Work:
    """A play or poem: its text in modern spelling, and the First Folio's or "".

    >>> len(Work("Hamlet", "to be", "To be"))
    10
    """

    title: str
    modern: str
    folio: str = ""

    def __len__(self) -> int:
        return len(self.modern) + len(self.folio)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that are not empty."""
        return tuple(text for text in (self.modern, self.folio) if text)


def shakespeare_works(places: Sequence[str | Path]) -> list[Work]:
    """Every work of the published files, the Folio's copy beside the modern one.

    ``places``: the folder of both files, or the two; see `esnlm.datasets.load_shakespeare`.
    """
    # Either file may come first.
    paths = sorted(map(Path, places), key=lambda path: "folio" in path.name)
    if len(paths) > 2 or not paths:
        raise CorpusError(f"expected the folder of both files, or the two files, got {len(paths)}")
    modern, folio = paths[0], paths[-1]
    for path in paths:
        if not path.exists():
            raise CorpusError(f"no such file or folder: {path}")
    if len(paths) == 1 and not modern.is_dir():
        raise CorpusError(f"{modern} is one file: give both files, or the folder that holds them")
    texts = load_shakespeare(modern, "modern"), load_shakespeare(folio, "first_folio")
    return matched_works(*texts, openings())


def matched_works(modern: str, folio: str, table: Sequence[Opening]) -> list[Work]:
    """Return the works of the modern text and of the Folio, matched by title.

    >>> table = [Opening("A", "Ann", "Anne")]
    >>> matched_works("Ann: No?", "Anne: Noe?", table)
    [Work(title='A', modern='Ann: No?\\n', folio='Anne: Noe?\\n')]
    """
    ours = cut_works(modern, [(row.title, row.modern) for row in table if row.modern])
    theirs = cut_works(folio, [(row.title, row.folio) for row in table if row.folio])
    titles = [row.title for row in table]
    return [Work(title, ours.get(title, ""), theirs.get(title, "")) for title in titles]


def cut_works(text: str, openings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Title -> text of each work of a file, from its opening to the next; blank lines trimmed.

    Every opening must begin exactly one paragraph, the first the text.
    """
    starts: dict[int, str] = {}
    body = "\n\n" + text
    for title, opening in openings:
        n_starts = body.count("\n\n" + opening)
        if n_starts != 1:
            raise CorpusError(
                f"{title} must begin once in the text, found {n_starts} paragraphs that begin with"
                f" {opening!r}"
            )
        starts[body.index("\n\n" + opening)] = title
    bounds = sorted(starts)
    if text.strip() and (not bounds or body[: bounds[0]].strip()):
        raise CorpusError("the text begins with a work that is not in the table of openings")
    ends = [*bounds[1:], len(body)]
    return {
        starts[start]: body[start:end].strip("\n") + "\n"
        for start, end in zip(bounds, ends, strict=True)
    }


def equal_parts(
    works: Sequence[Work], n_parts: int = 6, kin: Iterable[frozenset[str]] = KIN
) -> list[list[Work]]:
    """Divide works into parts of about equal size: the largest first, each to the smallest part.

    ``kin``: sets of titles that share text and stay together. Works keep their order in a part.

    >>> parts = equal_parts([Work(t, t * n) for t, n in (("a", 5), ("b", 3), ("c", 3))], 2)
    >>> [[work.title for work in part] for part in parts]
    [['a'], ['b', 'c']]
    """
    Count().check("n_parts", n_parts)
    together = {title: min(titles) for titles in kin for title in titles}
    groups: dict[str, list[Work]] = {}
    for work in works:
        groups.setdefault(together.get(work.title, work.title), []).append(work)
    if len(groups) < n_parts:
        raise ValueError(
            f"n_parts must be at most {len(groups)}, the separate works, got {n_parts}"
        )
    parts: list[list[Work]] = [[] for _ in range(n_parts)]
    for group in sorted(groups.values(), key=lambda group: -sum(map(len, group))):
        min(parts, key=lambda part: sum(map(len, part))).extend(group)
    place = {work.title: number for number, work in enumerate(works)}
    return [sorted(part, key=lambda work: place[work.title]) for part in parts]


def joined_text(works: Iterable[Work]) -> str:
    """Return the texts of works, either spelling, end to end; lower-cased as Köster & Uchida do."""
    return "\n".join(text for work in works for text in work.texts).lower()
