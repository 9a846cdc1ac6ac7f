"""How text files are laid out: encoding, lines wrapped at a column, Project Gutenberg's licence."""

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from io import BytesIO, TextIOWrapper
from itertools import chain, pairwise
from typing import Any, BinaryIO

from esnlm.utils.validation import Flag, check_parameters, limited

#: A line, with its end, and its number in the file, from 1.
Numbered = tuple[int, str]

_LONGEST_PARAGRAPH = 1 << 16
# UTF-32's begin with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
# How files begin that are often named for text, and what they are.
_FORMATS = (
    (b"\x1f\x8b", "is packed by gzip: let its name end in .gz"),
    (b"BZh", "is packed by bzip2: unpack it, or pack it with gzip"),
    (b"\xfd7zXZ", "is packed by xz: unpack it, or pack it with gzip"),
    (b"\x28\xb5\x2f\xfd", "is packed by zstd: unpack it, or pack it with gzip"),
    (b"PK\x03\x04", "is an archive or a document of several files: name a file of text in it"),
    (b"%PDF-", "is a PDF: extract its text"),
    (b"PAR1", "is a table of Parquet: write its texts to a file, one a line"),
    (b"mmap lm http", "is KenLM's binary of a model: name the ARPA file that it was made from"),
)  # fmt: skip
# A header of Project Gutenberg ends within so many lines or characters.
_HEAD_LINES, _HEAD_CHARACTERS = 1000, 1 << 17
_OF = r"(?:THE |THIS )?(?:COPYRIGHTED )?PROJECT GUTENBERG"
# Since about 2000, and before that.
_START = re.compile(rf"\*{{3}} ?START OF {_OF}|\*END ?\*? ?THE SMALL PRINT", re.IGNORECASE)
_END = re.compile(rf"\*{{3}} ?END OF {_OF}|END OF {_OF}", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class TextLayout:
    """How text files are laid out; what is named here is undone as they are read.

    ``encoding`` is one that Python knows; a byte order mark is no text. ``strip_gutenberg`` leaves
    out what Project Gutenberg puts before and after a book, see `without_licence`. ``unwrap``
    joins the lines of a paragraph, see `unwrapped`. Raises ValueError for an encoding unknown, and
    for a flag that is neither true nor false.

    >>> TextLayout(encoding="latin1", unwrap=True).changed()
    {'encoding': 'iso8859-1', 'unwrap': True}
    """

    encoding: str = "utf-8"
    strip_gutenberg: bool = limited(False, Flag())
    unwrap: bool = limited(False, Flag())

    def __post_init__(self) -> None:
        check_parameters(self)
        try:
            name = codecs.lookup(self.encoding).name
            TextIOWrapper(BytesIO(), name)  # there are encodings of bytes to bytes too
        except (LookupError, ValueError):
            raise ValueError(
                "encoding must be one that Python knows, such as utf-8, utf-16, cp1252 or latin-1,"
                f" got {self.encoding!r}"
            ) from None
        object.__setattr__(self, "encoding", name)

    def changed(self) -> dict[str, Any]:
        """Return the settings that are not the default, by name."""
        return {name: v for name, v in asdict(self).items() if v != getattr(AS_WRITTEN, name)}

    def lines(self, lines: Iterable[Numbered]) -> Iterator[Numbered]:
        """Return the lines of a file as they are read, each with the number of its last one."""
        stream = iter(lines)
        if self.strip_gutenberg:
            stream = without_licence(stream)
        return unwrapped(stream) if self.unwrap else stream


def unwrapped(lines: Iterable[Numbered]) -> Iterator[Numbered]:
    """Paragraphs, what stands between blank lines, as one line each; the blank lines as they are.

    Words are joined by one space, and none is lost. What has more than 2 ** 16 characters between
    blank lines is cut between two of its lines.

    >>> list(unwrapped([(1, "It was a\\n"), (2, "dark night.\\n"), (3, "\\n"), (4, "The end.")]))
    [(2, 'It was a dark night.\\n'), (3, '\\n'), (4, 'The end.\\n')]
    """
    paragraph: list[str] = []
    size = last = 0
    for number, line in lines:
        part = " ".join(line.split())
        if paragraph and (not part or size + len(part) > _LONGEST_PARAGRAPH):
            yield last, " ".join(paragraph) + "\n"
            paragraph, size = [], 0
        if part:
            paragraph.append(part)
            size += len(part) + 1
        else:
            yield number, "\n"
        last = number
    if paragraph:
        yield last, " ".join(paragraph) + "\n"


def without_licence(lines: Iterable[Numbered]) -> Iterator[Numbered]:
    """Yield the lines of a book without what Project Gutenberg puts before and after it.

    Its text stands between ``*** START OF THE PROJECT GUTENBERG EBOOK ... ***``, or in old files
    ``*END*THE SMALL PRINT! ...``, and ``*** END OF THE PROJECT GUTENBERG EBOOK ... ***``, or
    ``End of Project Gutenberg's ...``. Several books in a file are all kept. A file in whose first
    1 000 lines the name does not occur is left as it is.
    """
    source = iter(lines)
    head = _head(source)
    if not is_gutenberg(line for _, line in head):
        yield from chain(head, source)
        return
    start = _start(head)
    inside, title = start is None, False
    for number, line in chain(head[start or 0 :], source):
        text = line.strip()
        if inside and not title:
            if _END.match(text):
                inside = False
            else:
                yield number, line
        elif title or _START.match(text):  # a long title has several lines
            inside, title = True, bool(text) and not text.endswith("*")


def is_gutenberg(lines: Iterable[str]) -> bool:
    """Whether the first lines of a file name Project Gutenberg's licence, or begin its text.

    >>> is_gutenberg(["The Project Gutenberg eBook of Emma"]), is_gutenberg(["Gutenberg's press"])
    (True, False)
    """
    return any("project gutenberg" in line.lower() or _START.match(line.strip()) for line in lines)


def is_wrapped(lines: Iterable[str]) -> bool:
    """Whether lines look as if they were broken at a column, rather than at the end of sentences.

    So it is where the first word of a line would mostly not have fitted on the line before, and
    where it has no capital, as in verse.

    >>> is_wrapped(["It was a dark night. The boys, who had seen", "the dog, were afraid."] * 20)
    False
    """
    stripped = [line.strip() for line in lines]
    lengths = sorted(len(line) for line in stripped if line)
    if sum(line.count(" ") for line in stripped) < 4 * len(lengths) or not lengths:
        return False  # no prose
    column = lengths[int(0.98 * (len(lengths) - 1))]  # a few may stand out, such as addresses
    pairs = [(a, b) for a, b in pairwise(stripped) if a and b]
    full = sum(len(a) + 1 + len(b.split(maxsplit=1)[0]) > column for a, b in pairs)
    capitals = sum(b[0].isupper() for _, b in pairs)
    return (
        40 <= column <= 120
        and len(pairs) >= 20
        and full > 0.6 * len(pairs)
        and capitals <= 0.5 * len(pairs)
    )


def fitting_encoding(data: bytes) -> str | None:
    """Return the likely encoding of bytes that are not UTF-8; None where it is not clear.

    >>> fitting_encoding("naïve".encode("utf-16")), fitting_encoding("naïve".encode("latin-1"))
    ('utf-16', 'cp1252')
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    half = len(data) // 2
    for name, zeros in (("utf-16-le", data[1::2]), ("utf-16-be", data[::2])):
        if half and zeros.count(0) > 0.5 * half:
            return name
    if 0 in data:
        return None
    try:
        data.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def other_format(data: bytes) -> str | None:
    """Return what a file is that begins with these bytes, and what to do; None where it is unknown.

    >>> other_format(b"%PDF-1.7"), other_format(b"text")
    ('is a PDF: extract its text', None)
    """
    if data[257:262] == b"ustar":
        return "is a tar archive: unpack it"
    return next((what for mark, what in _FORMATS if data.startswith(mark)), None)


def first_wrong_byte(file: BinaryIO, encoding: str) -> int | None:
    """Return the place, from 0, of the first byte that does not belong to text in an encoding.

    None where there is no such byte, as in UTF-16 without a mark.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    before = 0
    while True:
        data = file.read(1 << 20)
        n_pending = len(decoder.getstate()[0])  # bytes of a character that is not whole yet
        try:
            decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            return before - n_pending + error.start
        except UnicodeError:
            return None
        before += len(data)
        if not data:
            return None


def _head(source: Iterator[Numbered]) -> list[Numbered]:
    head, size = [], 0
    for number, line in source:
        head.append((number, line))
        size += len(line)
        if len(head) >= _HEAD_LINES or size >= _HEAD_CHARACTERS:
            break
    return head


def _start(head: list[Numbered]) -> int | None:
    """Return the place of the line after which the text begins.

    None where there is no such line.
    """
    position = None
    for i, (_, line) in enumerate(head):
        if _START.match(line.strip()):
            position = i
        elif position is not None and _END.match(line.strip()):
            break
    return position


#: UTF-8, nothing undone.
AS_WRITTEN = TextLayout()
