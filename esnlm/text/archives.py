"""Files in tar and zip archives, of which a damaged one is told."""

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from esnlm.text.corpus import CorpusError


def unpacked(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the files in a tar or a zip."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                for name in opened.namelist():
                    if not name.endswith("/"):
                        yield name, opened.read(name)
            return
        with tarfile.open(archive) as tar:
            for member in tar:
                if (file := tar.extractfile(member)) is not None:
                    yield member.name, file.read()
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorpusError(f"{archive} is not a whole archive: {error}") from error


def member(archive: Path, name: str) -> bytes:
    """The file of a name, wherever in the archive it lies."""
    for path, data in unpacked(archive):
        if PurePosixPath(path).name == name:
            return data
    raise CorpusError(f"{archive} holds no {name}")
