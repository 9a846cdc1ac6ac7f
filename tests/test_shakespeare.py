"""Shakespeare's works, cut and matched; parts that share none; the study on a small text."""

import random

import pytest

from esnlm.corpus import CorpusError
from esnlm.metrics import ngram_overlap
from esnlm.shakespeare import (
    KIN,
    OPENINGS,
    Opening,
    Work,
    cut_works,
    equal_parts,
    joined_text,
    matched_works,
    shakespeare_works,
)

SPEAKERS = ("Ann", "Bob", "Cid")


def spoken(rng: random.Random, opening: str, n_speeches: int) -> str:
    """A play of random speeches that begins with ``opening``."""

    def words() -> str:
        return " ".join("".join(rng.choices("abdelnorst", k=5)) for _ in range(8))

    speeches = [f"{rng.choice(SPEAKERS)}:\n{words()}." for _ in range(n_speeches)]
    return "\n\n".join([f"{opening} {words()}.", *speeches]) + "\n"


def archaic(text: str) -> str:
    """The same in another spelling."""
    return text.replace("s", "sse").replace("n ", "nne ")


@pytest.fixture
def plays() -> tuple[str, str, list[Opening], dict[str, str]]:
    rng = random.Random(0)
    sizes = {"First": 30, "Second": 20, "Third": 25, "Poem": 6, "Last": 12, "Kin": 9}
    modern = {
        t: spoken(rng, f"{SPEAKERS[i % 3]}:\nOpening {t}", n)
        for i, (t, n) in enumerate(sizes.items())
    }
    folio = {t: archaic(text) for t, text in modern.items() if t not in ("Poem", "Kin")}
    table = [
        Opening(t, text[:16], archaic(text[:16]) if t in folio else None)
        for t, text in modern.items()
    ]
    return "\n".join(modern.values()), "\n".join(folio.values()), table, modern


def test_works_are_cut_and_matched_by_title(plays):
    modern, folio, table, texts = plays
    works = matched_works(modern, folio, table)
    assert [work.title for work in works] == list(texts)
    for work in works:
        assert work.modern == texts[work.title]
        assert work.folio == ("" if work.title in ("Poem", "Kin") else archaic(work.modern))
        assert len(work.texts) == 1 + bool(work.folio)
    assert "".join("\n".join(work.modern for work in works)) == modern


def test_parts_share_no_work_in_either_spelling(plays):
    modern, folio, table, texts = plays
    works = matched_works(modern, folio, table)
    kin = (frozenset({"Kin", "Poem"}),)
    parts = equal_parts(works, 3, kin)
    titles = [[work.title for work in part] for part in parts]
    assert sorted(title for part in titles for title in part) == sorted(texts)
    assert [len({"Kin", "Poem"} & set(part)) for part in titles].count(2) == 1
    sizes = [sum(map(len, part)) for part in parts]
    assert max(sizes) < 1.5 * min(sizes)
    for part in parts:
        rest = joined_text(work for other in parts if other is not part for work in other)
        for work in part:
            for text in work.texts:
                assert text.lower() not in rest
        words = joined_text(part).split()
        assert ngram_overlap(words, rest.split(), 7) < 0.01
    assert equal_parts(works, 3, kin) == parts


def test_parts_of_many_works_are_of_about_equal_size():
    rng = random.Random(1)
    works = [Work(str(k), "x" * rng.randrange(80, 170)) for k in range(60)]
    sizes = [sum(map(len, part)) for part in equal_parts(works, 6, ())]
    assert max(sizes) < 1.1 * min(sizes)


def test_too_many_parts_are_refused():
    with pytest.raises(ValueError, match="n_parts must be at most 2, the separate works, got 3"):
        equal_parts([Work("a", "a"), Work("b", "b")], 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Ann:\nGo.\n\nBob:\nNo.\n\nAnn:\nGo.\n", r"A must begin once .* found 2 paragraphs"),
        ("Ann:\nStay.\n\nBob:\nNo.\n", r"A must begin once .* found 0 paragraphs"),
        ("Cid:\nHa.\n\nAnn:\nGo.\n\nBob:\nNo.\n", "begins with a work that is not in the table"),
    ],
)
def test_texts_that_the_table_does_not_fit(text, message):
    with pytest.raises(CorpusError, match=message):
        cut_works(text, [("A", "Ann:\nGo"), ("B", "Bob:\nNo")])


def test_the_table_has_every_work():
    assert len(OPENINGS) == 46 == len({row.title for row in OPENINGS})
    assert sum(row.folio is not None for row in OPENINGS) == 36
    assert all(row.modern for row in OPENINGS)
    assert frozenset().union(*KIN) <= {row.title for row in OPENINGS}


def test_places_of_the_files(tmp_path):
    with pytest.raises(CorpusError, match="is one file: give both files, or the folder"):
        shakespeare_works([tmp_path / "shakespeare.txt"])
    with pytest.raises(CorpusError, match="or the two files, got 3"):
        shakespeare_works([tmp_path] * 3)
    with pytest.raises(CorpusError, match=r"holds none of shakespeare\.txt"):
        shakespeare_works([tmp_path])
