"""Public texts, read from a local file or downloaded once, and checked either way."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from esnlm.text.archives import unpacked
from esnlm.text.corpus import CorpusError
from esnlm.text.sources import SOURCES, cache, downloaded, load, retrieved

#: The repository of BLiMP at the commit whose pairs are the published ones, and what is checked:
#: the SHA-256 of the lines "name SHA-256" of its 67 files in the order of their names.
BLIMP_URL = (
    "https://github.com/alexwarstadt/blimp/archive/3e56b06fcabca9b30822fc66435fca6b1aa40bb1.zip"
)
BLIMP_DIGEST = "67c3bf75a635194d72a9061c1c6af5d7bdce175b418ade649b7d0468ed6dc0f9"
#: What an official BabyLM training set consists of, by year of the challenge.
BABYLM_FILES = {
    "2023": {
        "aochildes", "bnc_spoken", "cbt", "children_stories", "gutenberg", "open_subtitles", "qed",
        "simple_wikipedia", "switchboard", "wikipedia",
    },
    "2024": {
        "bnc_spoken", "childes", "gutenberg", "open_subtitles", "simple_wiki", "switchboard",
    },
}  # fmt: skip
_BABYLM_FOLDERS = {
    "10M": ("babylm_10M", "train_10M"),
    "100M": ("babylm_100M", "train_100M"),
    "dev": ("babylm_dev", "dev"),
    "test": ("babylm_test", "test"),
}


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


def shakespeare(folder: str | Path, edition: str = "modern") -> str:
    """The complete works in modern spelling, or 36 plays as the First Folio spells them.

    Parameters
    ----------
    folder : path
        Holds ``shakespeare.txt`` or ``shakespeare-first-folio.txt``, plain or ``.gz``; or is the
        file. There is no download: the texts are made from the XML of another repository.
    edition : {"modern", "first_folio"}
    """
    if edition not in ("modern", "first_folio"):
        raise ValueError(f"edition must be modern or first_folio, got {edition!r}")
    return load(f"shakespeare.{edition}", folder)


def wikitext2(
    folder: str | Path | None = None, parts: Sequence[str] = ("train", "valid", "test")
) -> dict[str, str]:
    """WikiText-2 in words: articles of Wikipedia, rare words ``<unk>``.

    Parameters
    ----------
    folder : path, optional
        Where ``wiki.train.tokens`` (or ``wiki.train.txt``) and so on lie, plain or ``.gz``. None:
        the archive is downloaded to the user's cache.
    parts : sequence of str
        Which of train, valid and test to read.
    """
    return {part: load(f"wikitext2.{part}", folder, also=(f"wiki.{part}.txt",)) for part in parts}


def babylm(folder: str | Path, part: str = "10M") -> list[Path]:
    """The files of a part of the official BabyLM corpus, to be given to `TextCorpus`.

    Parameters
    ----------
    folder : path
        The unzipped download, of the layout of 2023 (``babylm_10M/*.train``) or since 2024
        (``train_10M/*.train``); or the folder of the part itself. There is no download: its
        organisers publish no checksum.
    part : {"10M", "100M", "dev", "test"}

    Raises
    ------
    CorpusError
        The part is not there, or files of it are missing.
    """
    if part not in _BABYLM_FOLDERS:
        raise ValueError(f"part must be one of {', '.join(_BABYLM_FOLDERS)}, got {part!r}")
    suffix = part if part in ("dev", "test") else "train"
    place = Path(folder)
    homes = [place / name for name in _BABYLM_FOLDERS[part] if (place / name).is_dir()]
    home = homes[0] if homes else place
    files = sorted(home.glob(f"*.{suffix}")) + sorted(home.glob(f"*.{suffix}.gz"))
    if not files:
        names = " nor ".join(_BABYLM_FOLDERS[part])
        raise CorpusError(f"{place} holds neither {names}, nor files *.{suffix}")
    found = {path.name.split(".")[0] for path in files}
    nearest = max(BABYLM_FILES.values(), key=lambda names: len(names & found) - len(names - found))
    if missing := sorted(nearest - found):
        raise CorpusError(f"{home} is not a whole part of BabyLM: {missing[0]}.{suffix} is missing")
    return files


def blimp(place: str | Path | None = None, *, url: str = BLIMP_URL) -> Path:
    """A folder with the 67 files of BLiMP, for `esnlm.evaluation.minimal_pairs.read_pairs`.

    Parameters
    ----------
    place : path, optional
        A folder of ``.jsonl`` files, or with a folder ``data`` of them, or a tar or zip archive
        of either, which is unpacked to the user's cache. None: the archive is downloaded.

    Raises
    ------
    CorpusError
        The files are not the published ones; an archive is damaged.
    """
    path = Path(place) if place is not None else retrieved(url, None, "blimp.zip")
    if path.is_dir():
        home = path / "data" if (path / "data").is_dir() else path
        _check_blimp({file.name: file.read_bytes() for file in home.glob("*.jsonl")}, path)
        return home
    try:
        files = dict(_members_of(path))
        _check_blimp(files, path)
    except CorpusError:
        if place is None:  # or it would be taken from the cache again
            path.unlink()
        raise
    return _kept(files, cache() / "blimp")


def gpt2_files() -> Path:
    """The folder of GPT-2's ``encoder.json`` and ``vocab.bpe``, downloaded and checked."""
    for name in ("gpt2.vocabulary", "gpt2.merges"):
        path = downloaded(SOURCES[name])
    return path.parent


def _members_of(archive: Path) -> Iterator[tuple[str, bytes]]:
    """The ``.jsonl`` files of an archive: those in a folder ``data``, if there is one."""
    found = {n: data for n, data in unpacked(archive) if n.endswith(".jsonl")}
    inside = {n: data for n, data in found.items() if PurePosixPath(n).parent.name == "data"}
    for name, data in (inside or found).items():
        yield PurePosixPath(name).name, data


def _check_blimp(files: Mapping[str, bytes], place: Path) -> None:
    lines = [f"{name} {hashlib.sha256(data).hexdigest()}\n" for name, data in files.items()]
    if hashlib.sha256("".join(sorted(lines)).encode()).hexdigest() != BLIMP_DIGEST:
        raise CorpusError(
            f"{place} does not hold the 67 published files of BLiMP, but {len(files)} of which"
            " some differ; read_pairs reads any"
        )


def _kept(files: Mapping[str, bytes], folder: Path) -> Path:
    """The files as a folder of the cache, which appears whole or not at all."""
    if folder.is_dir():
        return blimp(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        for name, data in files.items():
            (aside / name).write_bytes(data)
        os.replace(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder
