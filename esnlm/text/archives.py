"""Archives: the names and bytes of the files in a tar or zip."""

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from esnlm.text.corpus import CorpusError

#: Bytes that the files of an archive may have together.
LARGEST_ARCHIVE = 1 << 28
#: How the names of archives end that `unpacked` reads.
ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")


def unpacked(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the names and bytes of the files in a tar or zip.

    CorpusError where it is damaged or encrypted, or where its files have more than
    `LARGEST_ARCHIVE` bytes together, by its own account or once unpacked.
    """
    if not archive.is_file():
        raise CorpusError(f"{archive} is no file, expected an archive")
    total = 0
    try:
        for name, size, opened in _members(archive):
            total += size
            if total > LARGEST_ARCHIVE:
                raise CorpusError(
                    f"the files in {archive} have {total} bytes or more, expected at most"
                    f" {LARGEST_ARCHIVE}: unpack it"
                )
            with opened() as file:
                yield name, file.read(size)
    except CorpusError:
        raise
    # A zip that is encrypted, of an unknown method or with members that lie about themselves fails
    # in the ways of its compressors.
    except (
        tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, OSError,
        RuntimeError, ValueError,
    ) as error:  # fmt: skip
        reason = str(error).partition("\n")[0].rstrip(":")  # tarfile's lists all it tried
        raise CorpusError(f"{archive} is not a whole archive: {reason}") from error


def _members(archive: Path) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """Yield the name, the size and a function that opens it, of each file in a tar or zip."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                if not info.is_dir():
                    yield info.filename, info.file_size, partial(opened.open, info)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile():
                yield member.name, member.size, partial(tar.extractfile, member)
