"""Sentences of text files: what they are, and that a stream starts anywhere."""

import re
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esnlm.text.corpus import CorpusError, TextCorpus, numbered_lines, opened_text
from esnlm.text.prepare import prepare
from esnlm.text.sentences import SentenceRules, SentenceStream, sentence_splitter

SPOKEN = 'Dr. Smith went to Washington. "Why?" he asked. It was 3.5 miles.'
SPLIT = ["Dr. Smith went to Washington.", '"Why?" he asked.', "It was 3.5 miles."]


def test_the_splitter_knows_abbreviations_quotations_and_numbers():
    pytest.importorskip("pysbd")
    assert sentence_splitter()(SPOKEN) == SPLIT


@given(st.text(st.sampled_from("ab A.?!()[]\"'*+\\ 1.Mr&é∯♬"), max_size=40))
def test_the_splitter_drops_nothing(text: str):
    pytest.importorskip("pysbd")
    text = text.strip()
    found = sentence_splitter()(text)
    assert re.sub(r"\s", "", "".join(found)) == re.sub(r"\s", "", text)


def test_shards_of_split_sentences(tmp_path: Path):
    pytest.importorskip("pysbd")
    (tmp_path / "a").write_text(f"{SPOKEN}\nOne line.\n\nAnother.\n")
    rules = SentenceRules(sentences="splitter")
    shards = prepare(tmp_path / "a", tmp_path / "out", "bpe:300", rules=rules)
    stream = shards.stream()
    ends = [*stream.starts[1:], len(stream.tokens)]
    found = [
        shards.tokenizer.decode(stream.tokens[a:b])
        for a, b in zip(stream.starts, ends, strict=True)
    ]
    assert found == [*SPLIT, "One line.", "Another."]
    assert shards.n_documents == 2


def test_without_the_library_the_error_says_what_to_install(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pysbd", None)
    (tmp_path / "a").write_text("a")
    with pytest.raises(ValueError, match=r"pip install 'esnlm\[sentences\]'"):
        SentenceStream(TextCorpus(tmp_path / "a"), "splitter")
    with pytest.raises(ValueError, match="sentences must be one of line, splitter"):
        SentenceStream(TextCorpus(tmp_path / "a"), "page")


_LINES = st.lists(st.text("ab \u2028\x0c", max_size=6), max_size=9)


@given(st.lists(_LINES, min_size=1, max_size=3), st.integers(1, 20), st.integers(1, 20))
def test_a_stream_goes_on_from_the_position_of_any_batch(files, first_size, second_size):
    with tempfile.TemporaryDirectory() as folder:
        for i, lines in enumerate(files):
            Path(folder, str(i)).write_text("\n".join(lines))
        corpus = TextCorpus(folder)
        whole = [x for b in SentenceStream(corpus, n_characters=10**9).batches() for x in b.texts]
        for batch in (done := list(SentenceStream(corpus, n_characters=first_size).batches())):
            rest = SentenceStream(corpus, n_characters=second_size).batches(batch.position)
            before = [x for b in done[: done.index(batch) + 1] for x in b.texts]
            assert before + [x for b in rest for x in b.texts] == whole


def test_lines_too_long_to_be_text_are_named(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("esnlm.text.corpus._LONGEST_LINE", 10)
    (tmp_path / "a").write_text("short\n" + "x" * 50)
    with (
        pytest.raises(CorpusError, match=r"line 2 of .*a has 10 characters or more"),
        opened_text(tmp_path / "a") as (text, _),
    ):
        list(numbered_lines(text, tmp_path / "a"))


def test_long_lines_are_cut_at_spaces(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("esnlm.text.corpus._LONGEST_LINE", 10)
    monkeypatch.setattr("esnlm.text.corpus._PART", re.compile(r"(?s).{1,8}(?: |\Z)|.+?(?: |\Z)"))
    whole = "one two three four five six\nseven\na bcdefghi\nten eleven"
    (tmp_path / "a").write_text(whole)
    parts = ["one two", "three", "four", "five", "six", "seven", "a", "bcdefghi", "ten", "eleven"]
    assert list(TextCorpus(tmp_path / "a", "line")) == parts
    assert list(TextCorpus(tmp_path / "a", "file")) == [whole]
    (tmp_path / "a").write_text(whole, "utf-8-sig")
    assert list(TextCorpus(tmp_path / "a", "line")) == parts
    batches = list(SentenceStream(TextCorpus(tmp_path), n_characters=1).batches())
    assert [text for batch in batches for text in batch.texts] == parts
    again = SentenceStream(TextCorpus(tmp_path)).batches(batches[3].position)
    assert [text for batch in again for text in batch.texts] == parts[4:]


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (0, None, "min_length"),
        ("6", None, "min_length must be an integer of at least 1, got '6'"),
        (None, 1, "max_length must be an integer of at least 2, got 1"),
        (5, 4, "must not exceed"),
    ],
)
def test_rules_that_cannot_be(low, high, message):
    with pytest.raises(ValueError, match=message):
        SentenceRules(min_length=low, max_length=high)


def test_rules_that_are_none_are_named_at_once():
    with pytest.raises(ValueError, match="documents must be one of blank_line, line, file, got 'p"):
        SentenceRules(documents="paragraph")
    with pytest.raises(ValueError, match="sentences must be one of line, splitter, got 'pysbd'"):
        SentenceRules(sentences="pysbd")
