"""Shakespeare's works, each in both spellings, and parts of equal size that share no work.

The two files of `esnlm.text.datasets.shakespeare` hold works end to end without titles: a work
is found by the words it begins with. The Folio's copy of a play goes where the play goes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from esnlm.text.corpus import CorpusError
from esnlm.text.datasets import shakespeare
from esnlm.utils.validation import check_count


class Opening(NamedTuple):
    """A title, and the words that begin the work in either file; None where it is not there."""

    title: str
    modern: str | None
    folio: str | None


#: In the order of both files.
OPENINGS: tuple[Opening, ...] = tuple(
    Opening(*row)
    for row in (
        (
            "All's Well That Ends Well",
            "Countess of Roussillon:\nIn delivering",
            "Mother:\nIn deliuering",
        ),
        ("Antony and Cleopatra", "Philo:\nNay, but this", "Philo:\nNay, but this"),
        ("As You Like It", "Orlando:\nAs I remember", "Orlando:\nAs I remember"),
        ("The Comedy of Errors", "Egeon:\nProceed, Solinus", "Marchant:\nProceed Solinus"),
        ("Coriolanus", "First Roman Citizen:\nBefore", "1. Citizen:\nBefore we"),
        ("Cymbeline", "First Gentleman:\nYou do", "1.Gent:\nYou do not meet"),
        ("Hamlet", "Barnardo:\nWho's there?\n\nFrancisco", "Barnardo:\nWho's there?\n\nFran"),
        ("Henry IV, Part 1", "King Henry IV:\nSo shaken", "King:\nSo shaken as we"),
        (
            "Henry IV, Part 2",
            "Rumor, the Presenter:\nOpen",
            "Open your Eares: For which of you will stop\nThe",
        ),
        ("Henry V", "Chorus:\nO for a Muse", "O for a Muse of Fire, that would ascend\nThe"),
        ("Henry VI, Part 1", "Duke of Bedford:\nHung", "Bedford:\nHvng be y heauens"),
        ("Henry VI, Part 2", "Duke of Suffolk:\nAs by", "Suffolke:\nAs by your"),
        ("Henry VI, Part 3", "Earl of Warwick:\nI wonder", "Warwicke:\nI Wonder how"),
        (
            "Henry VIII",
            "Prologue:\nI come no more",
            "I Come no more to make you laugh, Things now,\nThat",
        ),
        ("Julius Caesar", "Flavius:\nHence! Home", "Flauius:\nHence: home"),
        ("King John", "King John:\nNow say, Chatillon", "King Iohn:\nNow say Chatillon"),
        ("King Lear", "Earl of Kent:\nI thought", "Kent:\nI Thought the King"),
        ("King Richard II", "King Richard the Second:\nOld", "King Richard:\nOld Iohn"),
        ("A Lover's Complaint", "From off a hill whose concave womb reworded\nA", None),
        ("Love's Labour's Lost", "Ferdinand, King of Navarre:\nLet", "Ferdinand:\nLet Fame, that"),
        ("Macbeth", "First Witch:\nWhen shall", "1:\nWhen shall we three"),
        (
            "Measure for Measure",
            "Vincentio, the Duke:\nEscalus.\n\nEscalus:",
            "Duke:\nEscalus.\n\nEsc:",
        ),
        ("The Merchant of Venice", "Antonio:\nIn sooth, I", "Anthonio:\nIn sooth I"),
        ("The Merry Wives of Windsor", "Robert Shallow:\nSir Hugh", "Shallow:\nSir Hugh, perswade"),
        (
            "A Midsummer Night's Dream",
            "Theseus, Duke of Athens:\nNow, fair",
            "Theseus:\nNow faire Hippolita",
        ),
        ("Much Ado About Nothing", "Leonato:\nI learn in this", "Leonato:\nI learne in"),
        ("Othello", "Roderigo:\nTush, never", "Rodorigo:\nNeuer tell"),
        (
            "The Passionate Pilgrim",
            "When my love swears that she is made of truth,\nI do believe her (though",
            None,
        ),
        ("Pericles", "Gower:\nTo sing a song", None),
        ("Phoenix & Turtle", "Let the bird of loudest lay,\nOn", None),
        (
            "The Rape of Lucrece",
            "To the Right Honorable, Henry Wriothesley, Earl of Southhampton,",
            None,
        ),
        (
            "Richard III",
            "Richard, Duke of Gloucester:\nNow is",
            "Now is the Winter of our Discontent,\nMade",
        ),
        ("Romeo and Juliet", "Chorus:\nTwo households", "Sampson:\nGregory: A my"),
        ("Sir Thomas More", "Doll Williamson:\nWhether", None),
        ("Sonnets", "From fairest creatures we desire increase,\nThat", None),
        ("The Taming of the Shrew", "Christopher Sly:\nI'll", "Begger:\nIle pheeze you"),
        ("The Tempest", "Master of a Ship:\nBoatswain", "Master:\nBOte-swaine.\n\nBotes"),
        ("Timon of Athens", "Poet:\nGood day, sir.\n\nPainter", "Poet:\nGood day Sir.\n\nPain"),
        ("Titus Andronicus", "Saturninus:\nNoble patricians", "Saturninus:\nNoble Patricians"),
        ("To the Queen", "As the dial hand tells o'er\nThe", None),
        (
            "Troilus and Cressida",
            "Prologue:\nIn Troy, there",
            "In Troy there lyes the Scene: From Iles of Greece\nThe",
        ),
        ("Twelfth Night", "Orsino:\nIf music be the", "Duke:\nIf Musicke be the"),
        (
            "The Two Gentlemen of Verona",
            "Valentine:\nCease to persuade",
            "Valentine:\nCease to perswade",
        ),
        ("The Two Noble Kinsmen", "Prologue:\nNew plays and", None),
        ("Venus and Adonis", "Vilia miretur vulgus: mihi flauus Apollo\nPocula", None),
        ("The Winter's Tale", "Archidamus:\nIf you shall", "Arch:\nIf you shall chance"),
    )
)
#: The Passionate Pilgrim has two of the sonnets and three poems of Love's Labour's Lost.
KIN: tuple[frozenset[str], ...] = (
    frozenset({"The Passionate Pilgrim", "Sonnets", "Love's Labour's Lost"}),
)


@dataclass(frozen=True)
class Work:
    """A play or poem: its text in modern spelling, and in the First Folio's; "" where it has none.

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
        """The spellings that there are."""
        return tuple(text for text in (self.modern, self.folio) if text)


def shakespeare_works(
    places: Sequence[str | Path], openings: Sequence[Opening] = OPENINGS
) -> list[Work]:
    """Every work of the published files, the Folio's copy beside the modern one.

    Parameters
    ----------
    places : paths
        A folder that holds both files, or the two files; see `esnlm.text.datasets.shakespeare`.

    Raises
    ------
    CorpusError
        A file is missing or not the published text.
    """
    paths = [Path(place) for place in places]
    if len(paths) > 2 or not paths:
        raise CorpusError(f"expected the folder of both files, or the two files, got {len(paths)}")
    # Either file may come first: they are told apart by their names.
    modern, folio = sorted(paths, key=lambda p: "folio" in p.name) if len(paths) == 2 else paths * 2
    for path in paths:
        if not path.exists():
            raise CorpusError(f"no such file or folder: {path}")
    if len(paths) == 1 and not modern.is_dir():
        raise CorpusError(f"{modern} is one file: give both files, or the folder that holds them")
    texts = shakespeare(modern, "modern"), shakespeare(folio, "first_folio")
    return matched_works(*texts, openings)


def matched_works(modern: str, folio: str, openings: Sequence[Opening] = OPENINGS) -> list[Work]:
    """The works of two texts, matched by title.

    >>> table = [Opening("A", "Ann", "Anne")]
    >>> matched_works("Ann: No?", "Anne: Noe?", table)
    [Work(title='A', modern='Ann: No?\\n', folio='Anne: Noe?\\n')]
    """
    ours = cut_works(modern, [(row.title, row.modern) for row in openings if row.modern])
    theirs = cut_works(folio, [(row.title, row.folio) for row in openings if row.folio])
    titles = [row.title for row in openings]
    return [Work(title, ours.get(title, ""), theirs.get(title, "")) for title in titles]


def cut_works(text: str, openings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Title -> text of each work of a file, from its opening to the next; blank lines trimmed.

    Raises
    ------
    CorpusError
        An opening does not begin exactly one paragraph, or text comes before the first.
    """
    starts: dict[int, str] = {}
    joined = "\n\n" + text
    for title, opening in openings:
        found = joined.count("\n\n" + opening)
        if found != 1:
            raise CorpusError(
                f"{title} must begin once in the text, found {found} paragraphs that begin with"
                f" {opening!r}"
            )
        starts[joined.index("\n\n" + opening)] = title
    bounds = sorted(starts)
    if text.strip() and (not bounds or joined[: bounds[0]].strip()):
        raise CorpusError("the text begins with a work that is not in the table of openings")
    ends = [*bounds[1:], len(joined)]
    return {
        starts[start]: joined[start:end].strip("\n") + "\n"
        for start, end in zip(bounds, ends, strict=True)
    }


def equal_parts(
    works: Sequence[Work], n_parts: int = 6, kin: Iterable[frozenset[str]] = KIN
) -> list[list[Work]]:
    """Parts of about equal size by whole works: the largest first, each to the smallest part.

    ``kin``: sets of titles that share text and stay together. Within a part works keep their order.

    >>> parts = equal_parts([Work(t, t * n) for t, n in (("a", 5), ("b", 3), ("c", 3))], 2)
    >>> [[work.title for work in part] for part in parts]
    [['a'], ['b', 'c']]
    """
    check_count("n_parts", n_parts)
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


def joined_text(works: Iterable[Work], *, lower: bool = True) -> str:
    """The texts of works, either spelling, end to end; lower-cased as Köster & Uchida do."""
    text = "\n".join(text for work in works for text in work.texts)
    return text.lower() if lower else text
