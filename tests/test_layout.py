"""How text files are laid out: encodings, wrapped lines, Project Gutenberg's licence."""

import codecs
import gzip
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esnlm.text.corpus import CorpusError, TextCorpus
from esnlm.text.layout import (
    TextLayout,
    first_wrong_byte,
    is_gutenberg,
    is_wrapped,
    unwrapped,
    without_licence,
)
from esnlm.text.prepare import prepare
from esnlm.text.sentences import SentenceRules, SentenceStream
from esnlm.text.shards import ShardsError
from esnlm.text.source import inspected

PROSE = (
    "It was a dark night, and the boys who had seen the dog were afraid. They went home at once,"
    " for nobody wished to be the one who stayed, and the road was long. "
)


def wrap(text: str, column: int) -> list[str]:
    """Greedy lines, as every editor breaks them."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + 1 + len(word) > column and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def numbered(text: str) -> list[tuple[int, str]]:
    return list(enumerate(text.splitlines(keepends=True), start=1))


# Paragraphs

_LINE = st.text("ab-. \t\x0c\u2028", max_size=8)


@given(st.lists(_LINE, max_size=12))
def test_joining_keeps_every_word_in_order_and_every_paragraph(lines: list[str]):
    found = list(unwrapped(enumerate((f"{line}\n" for line in lines), start=1)))
    assert " ".join(line for _, line in found).split() == " ".join(lines).split()
    expected = [[]]
    for line in lines:
        expected[-1] += line.split()
        if not line.split():
            expected.append([])
    joined = [" ".join(words) for words in expected if words]
    assert [line.strip() for _, line in found if line.strip()] == joined
    numbers = [number for number, _ in found]
    assert numbers == sorted(set(numbers))


def test_a_paragraph_without_end_is_cut_between_lines(monkeypatch):
    monkeypatch.setattr("esnlm.text.layout._LONGEST_PARAGRAPH", 20)
    lines = [f"word{i:03}\n" for i in range(100)] + ["x" * 50]
    found = [line for _, line in unwrapped(enumerate(lines, start=1))]
    assert max(len(line) for line in found[:-1]) <= 22
    assert "".join(found).split() == "".join(lines).split()


_FILES = st.lists(st.lists(st.text("ab \u2028", max_size=6), max_size=9), min_size=1, max_size=3)


@given(_FILES, st.integers(1, 20), st.integers(1, 20), st.booleans())
def test_a_stream_of_paragraphs_goes_on_from_any_batch(files, first_size, second_size, licence):
    with tempfile.TemporaryDirectory() as folder:
        for i, lines in enumerate(files):
            head = ["Project Gutenberg", "*** START OF THE PROJECT GUTENBERG EBOOK A", "B ***"]
            Path(folder, str(i)).write_text("\n".join([*head, *lines] if licence else lines))
        corpus = TextCorpus(folder, layout=TextLayout(unwrap=True, strip_gutenberg=licence))
        whole = [x for b in SentenceStream(corpus, n_characters=10**9).batches() for x in b.texts]
        done = list(SentenceStream(corpus, n_characters=first_size).batches())
        for i, batch in enumerate(done):
            rest = SentenceStream(corpus, n_characters=second_size).batches(batch.position)
            before = [x for b in done[: i + 1] for x in b.texts]
            assert before + [x for b in rest for x in b.texts] == whole
        if any("".join(lines).split() for lines in files):
            assert " ".join(TextCorpus(folder, "file", corpus.layout)).split() == [
                word for text in whole for word in text.split()
            ]


@pytest.mark.parametrize("column", [50, 64, 72, 100])
def test_wrapped_prose_is_seen(column: int):
    lines = wrap(PROSE * 20, column)
    assert is_wrapped(lines)
    assert is_wrapped([*lines, "", *lines, "https://" + "x" * 200])


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["one sentence that nobody has broken anywhere, whatever its length may be ."] * 9,
        [f"{PROSE[: 20 + 7 * (i % 17)]}." for i in range(200)],  # a sentence a line
        [f"{i}, word, {i * i:012}, {'x' * 30}" for i in range(200)],  # a table
        ["Thou art more lovely and more temperate:", "Rough winds do shake the buds of May,"] * 40,
        [PROSE.strip()] * 50,
    ],
)
def test_other_lines_are_not_taken_for_wrapped(lines: list[str]):
    assert not is_wrapped(lines)


# Project Gutenberg

NEW = """\ufeffThe Project Gutenberg eBook of A Book

This eBook is for the use of anyone anywhere.

*** START OF THE PROJECT GUTENBERG EBOOK A BOOK ***

{}
*** END OF THE PROJECT GUTENBERG EBOOK A BOOK ***

Updated editions will replace the previous one.
"""
OF_2008 = """Project Gutenberg's A Very Long Title, by Somebody

***START OF THIS PROJECT GUTENBERG EBOOK A VERY
LONG TITLE***

{}
End of the Project Gutenberg EBook of A Very Long Title, by Somebody

*** END OF THIS PROJECT GUTENBERG EBOOK A VERY LONG TITLE ***
"""
OF_1994 = """**The Project Gutenberg Etext of A Book, by Somebody**

***START**THE SMALL PRINT!**FOR PUBLIC DOMAIN ETEXTS**START***
Why is this "Small Print!" statement here?
*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*

{}
End of Project Gutenberg's A Book, by Somebody
"""
OF_2003 = OF_1994.replace("*END*THE SMALL PRINT! FOR", "*END THE SMALL PRINT! FOR").replace(
    "End of Project Gutenberg's A Book", "End of The Project Gutenberg Etext of A Book"
)
BODY = "Chapter 1\n\nIt was a dark night.\nThe end of project work came.\n\nThe end.\n"


@pytest.mark.parametrize("form", [NEW, OF_2008, OF_1994, OF_2003])
@pytest.mark.parametrize("copies", [1, 3])
def test_what_stands_around_a_book_is_left_out(form: str, copies: int):
    text = form.format(BODY) * copies
    assert is_gutenberg(text.splitlines())
    found = "".join(line for _, line in without_licence(numbered(text)))
    assert [line for line in found.splitlines() if line] == copies * [
        line for line in BODY.splitlines() if line
    ]


@given(st.lists(st.sampled_from(["a b", "", "The press of Gutenberg", "*** END OF IT ***"])))
def test_other_text_is_left_as_it_is(lines: list[str]):
    given_lines = list(enumerate((f"{line}\n" for line in lines), start=1))
    assert list(without_licence(given_lines)) == given_lines
    text = "".join(line for _, line in given_lines)
    inside = list(without_licence(numbered(NEW.format(text))))
    assert "".join(line for _, line in inside) == f"\n{text}\n"


def test_a_licence_far_down_is_text_and_a_header_alone_stays(monkeypatch):
    lines = [f"line {i}\n" for i in range(1200)] + NEW.format("x").splitlines(keepends=True)
    given_lines = list(enumerate(lines, start=1))
    assert list(without_licence(given_lines)) == given_lines
    head = numbered("Project Gutenberg's A Book\n\ntext\n")
    assert list(without_licence(head)) == head


# Encodings


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252", "latin-1", "shift_jis"]
)
@pytest.mark.parametrize("split", ["blank_line", "line", "file"])
def test_text_in_other_encodings(tmp_path: Path, encoding: str, split: str):
    word = "猫" if encoding == "shift_jis" else "café"
    (tmp_path / "a.gz").write_bytes(gzip.compress(f"{word}\n".encode(encoding)))
    layout = TextLayout(encoding="utf-8" if encoding == "utf-8-sig" else encoding)
    assert [text.strip() for text in TextCorpus(tmp_path / "a.gz", split, layout)] == [word]


@pytest.mark.parametrize("name", ["strip_gutenberg", "unwrap"])
def test_flags_are_true_or_false(name: str):
    with pytest.raises(ValueError, match=f"{name} must be true or false, got 'no'"):
        TextLayout(**{name: "no"})


@pytest.mark.parametrize("name", ["klingon", "", "hex", "a\0b"])
def test_encodings_that_are_none(name: str):
    with pytest.raises(ValueError, match="encoding must be one that Python knows"):
        TextLayout(encoding=name)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"x" * 70000 + b" \n caf\xe9 \x93", r"0xe9\) at byte 70006: encoding='cp1252' reads"),
        (b"caf\xe9 \x81", r"0xe9\) at byte 3: encoding='latin-1' reads it if"),
        ("café".encode("utf-16"), r"0xff\) at byte 0: encoding='utf-16' reads"),
        (codecs.BOM_UTF32_LE + "a".encode("utf-32-le"), r"at byte 0: encoding='utf-32' reads"),
        ("é plain".encode("utf-16-le"), r"0xe9\) at byte 0: encoding='utf-16-le' reads"),
        ("plain text".encode("utf-16-be"), "NUL bytes.*or encoding='utf-16-be' reads it"),
        (b"ab\xff\0\x01\x02\x03", r"0xff\) at byte 2: convert it, or leave it out"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_wrong_byte_is_named_with_its_place(tmp_path: Path, data: bytes, message, packed: bool):
    path = tmp_path / ("a.gz" if packed else "a")
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(CorpusError, match=message) as caught:
        list(TextCorpus(path))
    assert str(path) in str(caught.value)


def test_a_wrong_byte_of_another_encoding(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"ab\x81")
    with pytest.raises(CorpusError, match=r"not cp1252 text \(byte 0x81\) at byte 2: convert"):
        list(TextCorpus(tmp_path / "a", layout=TextLayout(encoding="cp1252")))


@given(st.binary(max_size=40), st.sampled_from(["utf-8", "utf-16-le", "shift_jis", "cp1252"]))
def test_the_place_of_a_wrong_byte_is_that_of_decoding_at_once(data: bytes, encoding: str):
    try:
        data.decode(encoding)
        expected = None
    except UnicodeDecodeError as error:
        expected = error.start
    assert first_wrong_byte(io.BytesIO(data), encoding) == expected


# Files given twice, and what is noticed


def test_a_file_given_twice_is_refused(tmp_path: Path):
    (tmp_path / "a").write_text("one")
    (tmp_path / "link").symlink_to("a")
    for names in ((tmp_path / "a",) * 2, (tmp_path, tmp_path / "a"), (tmp_path,)):
        with pytest.raises(CorpusError, match="given twice, so its text would count twice"):
            inspected(TextCorpus(names))


def test_copies_are_warned_of_once(tmp_path: Path):
    for name in "abc":
        (tmp_path / name).write_text("the same text")
    for name in "de":
        (tmp_path / name).write_text("")
    (tmp_path / "f").write_text("another texts")
    (warning,) = inspected(TextCorpus(tmp_path))
    assert warning.endswith(
        "b hold the same text, and 1 more are copies: it counts as often as it is given"
    )
    (warning,) = inspected(TextCorpus(tmp_path / "a"), TextCorpus([tmp_path / "f", tmp_path / "b"]))
    assert "the held-out text" in warning
    (warning,) = inspected(TextCorpus(tmp_path / "a"), TextCorpus(tmp_path / "a"))
    assert "of text that was learnt" in warning
    assert not inspected(TextCorpus(tmp_path / "a"), TextCorpus(tmp_path / "f"))


def test_what_an_option_would_undo_is_noticed_once(tmp_path: Path):
    prose = "\n".join(wrap(PROSE * 20, 60))
    (tmp_path / "a").write_text(NEW.format(prose))
    (tmp_path / "b").write_text(f"b {prose}")
    (tmp_path / "c").write_text("a line")
    first, second = inspected(TextCorpus(tmp_path))
    assert first.endswith(
        "a has Project Gutenberg's licence, which strip_gutenberg=True leaves out"
    )
    assert second.endswith("a and 1 more have lines that look broken at a column: unwrap=True"
                           " joins them")  # fmt: skip
    (only,) = inspected(TextCorpus(tmp_path, layout=TextLayout(strip_gutenberg=True)))
    assert "unwrap=True" in only
    assert not inspected(TextCorpus(tmp_path, layout=TextLayout(strip_gutenberg=True, unwrap=True)))


# Shards


def test_shards_say_how_their_text_was_read(tmp_path: Path):
    text = NEW.format("\n".join(wrap(PROSE, 40)) + "\n\nThe\nend.\n")
    (tmp_path / "a").write_text(text)
    layout = TextLayout(strip_gutenberg=True, unwrap=True)
    shards = prepare(tmp_path / "a", tmp_path / "out", "word", layout=layout)
    stream = shards.stream()
    ends = [*stream.starts[1:], len(stream.tokens)]
    found = [
        shards.tokenizer.decode(stream.tokens[a:b])
        for a, b in zip(stream.starts, ends, strict=True)
    ]
    assert found == [PROSE.strip(), "The end."]
    assert shards.n_documents == 2
    made_from = shards.manifest["made_from"]
    assert (made_from["strip_gutenberg"], made_from["unwrap"]) == (True, True)
    assert "encoding" not in made_from  # as in shards of before there were layouts
    with pytest.raises(FileExistsError, match="with other settings"):
        prepare(tmp_path / "a", tmp_path / "out", "word", rules=SentenceRules())


def test_an_interrupted_run_of_another_layout_is_refused(tmp_path: Path, monkeypatch):
    (tmp_path / "a").write_text("one two\nthree\n\n" * 9)

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path / "a", tmp_path / "out", "word", progress=stop)
    with pytest.raises(ShardsError, match="interrupted run left"):
        prepare(tmp_path / "a", tmp_path / "out", "word", layout=TextLayout(unwrap=True))
