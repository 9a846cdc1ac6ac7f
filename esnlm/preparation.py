"""Text to token shards, in bounded memory; what was interrupted goes on where it stopped.

Everything is written to ``OUT.partial``: ``shards``, the folder to be, ``plan.json``, what it is
made from, and ``progress.json``, replaced whole at each checkpoint, once the disk has all that it
speaks of. Then ``shards`` is renamed to ``OUT``. Nothing depends on where a run was cut.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from esnlm import shards
from esnlm.appending import GrowingFile, read_checked_json, write_checked_json, write_whole
from esnlm.corpus import CorpusError, TextCorpus
from esnlm.persistence import sync_folder
from esnlm.sentences import (
    AS_IT_IS,
    BEGINNING,
    Framing,
    Position,
    Rules,
    SentenceBatch,
    SentenceStream,
)
from esnlm.shards import PLACE, Shards, ShardsError, read_manifest, sealed
from esnlm.tensors import file_digest
from esnlm.tokenizers import Tokenizer
from esnlm.vocabularies import parsed, trained

_PLAN, _TRAINED, _PROGRESS, _SHARDS = "plan.json", "trained.json", "progress.json", "shards"
_OLD = "old"
_OURS = {_PLAN, _TRAINED, _PROGRESS, _SHARDS, _OLD}

#: Called after each batch with the bytes of text read, those of all files, and the tokens so far,
#: which are 0 while a tokenizer is being trained.
Progress = Callable[[int, int, int], None]


@dataclass
class _State:
    """Where a run stands: all that it needs to go on, beside the files."""

    position: Position = BEGINNING
    bound: int = 0
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("tokens", "sentences", "documents", "words", "characters", "unknown",
             "sentences_left_out", "sentences_cut", "tokens_cut"), 0
        )
    )  # fmt: skip
    files: dict[str, Any] = field(default_factory=dict)


def prepare_shards(
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    tokenizer: Tokenizer | str,
    *,
    rules: Rules = AS_IT_IS,
    lower: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    checkpoint_characters: int = 1 << 22,
) -> Shards:
    """Tokenize text files into a folder of shards; see `esnlm.shards`.

    Called again after an interruption, with the same arguments and the same text, it goes on from
    the last checkpoint; the result is the same, byte for byte. Where ``out`` is already made of
    the same, it is returned as it is.

    Parameters
    ----------
    texts : path or paths
        Text files, plain or ``.gz``, and folders; see `esnlm.corpus.TextCorpus`.
    out : path
        Folder to make.
    tokenizer : Tokenizer or str
        Or what to train on the sentences: ``bpe:N``, ``word:N``, ``word`` or ``char``.
    rules : Rules
        What documents and sentences are, and how long.
    lower : bool
        Lower-case the text: the tokenizer, a copy of it if given, does so from then on.
    overwrite : bool
        Replace shards that are there, and what an interrupted run with other arguments left.
    checkpoint_characters : int
        Text between two checkpoints.

    Raises
    ------
    CorpusError
        The text cannot be read, or gives no sentence.
    FileExistsError
        ``out`` exists.
    ShardsError
        An interrupted run had other arguments or other text.
    OSError
        A file cannot be read or written, the disk is full: what was done so far is kept.
    """
    out = Path(out).resolve()
    corpus = TextCorpus(texts, rules.documents)
    for path in corpus.paths:
        if path.is_dir() and out.is_relative_to(path.resolve()):
            raise ValueError(f"{out} lies in {path}, the text: choose a folder outside it")
    stream = SentenceStream(corpus, rules.sentences, min(checkpoint_characters, 1 << 20))
    if lower and isinstance(tokenizer, Tokenizer):
        tokenizer = tokenizer.lowered()
    plan = _plan(stream, tokenizer, rules, lower)
    if _is_made(out, plan, overwrite):
        shutil.rmtree(_partial(out), ignore_errors=True)
        return Shards(out)
    with _workplace(out, plan, overwrite) as folder:
        made = _tokenizer(folder, tokenizer, _watched(stream, progress), lower)
        _Run(folder, made, rules, checkpoint_characters).go(stream, progress)
        _finish(folder / _SHARDS, made, plan)
        _put_in_place(folder / _SHARDS, out)
        shutil.rmtree(folder, ignore_errors=True)
    return Shards(out, verify=False)


class _Run:
    """Sentences to growing files, from the last checkpoint to the end of the text."""

    def __init__(
        self, folder: Path, tokenizer: Tokenizer, rules: Rules, checkpoint_characters: int
    ) -> None:
        self.folder = folder
        self.tokenizer = tokenizer
        self.rules = rules
        self.checkpoint_characters = checkpoint_characters
        found = read_checked_json(folder / _PROGRESS)
        self.state = _State() if found is None else _State(**found)
        self.state.position = Position(*self.state.position)
        self.types = {
            shards.TOKENS: token_type(len(tokenizer)),
            shards.STARTS: PLACE,
            shards.BOUNDS: PLACE,
        }
        self.files: dict[str, GrowingFile] = {}

    def go(self, stream: SentenceStream, progress: Progress | None) -> None:
        """Read on, checkpoint now and then and at the end."""
        with ExitStack() as stack:
            for name, dtype in self.types.items():
                path = self.folder / _SHARDS / name
                file = GrowingFile(path, dtype, self.state.files.get(name))
                self.files[name] = stack.enter_context(file)
            if not self.state.files:
                self.files[shards.BOUNDS].append(np.zeros(1))
            fresh = 0
            for batch in stream.batches(self.state.position):
                self._absorb(batch)
                if progress:
                    progress(batch.bytes_read, stream.n_bytes, self.state.counts["tokens"])
                fresh += sum(map(len, batch.texts))
                if fresh >= self.checkpoint_characters:
                    self._checkpoint()
                    fresh = 0
            self._checkpoint()
        if not self.state.counts["sentences"]:
            names = ", ".join(map(str, stream.corpus.paths))
            least = self.rules.min_length
            what = f"no sentence of {least} tokens or more" if least else "no text"
            raise CorpusError(f"the corpus is empty: {what} in {names}")

    def _absorb(self, batch: SentenceBatch) -> None:
        framing = Framing(self.tokenizer, self.rules)
        tokens, lengths = framing.framed(batch.texts)
        before = self.state.counts["tokens"]
        after = before + np.concatenate(([0], np.cumsum(lengths)))
        self.files[shards.TOKENS].append(tokens)
        self.files[shards.STARTS].append(after[:-1][lengths > 0])
        # Documents of which nothing was kept have no bounds.
        bounds = np.unique(after[batch.ends])
        bounds = bounds[bounds > self.state.bound]
        self.files[shards.BOUNDS].append(bounds)
        self.state.bound = int(bounds[-1]) if len(bounds) else self.state.bound
        self.state.position = batch.position
        for name, count in {**framing.counts, "documents": len(bounds)}.items():
            self.state.counts[name] += int(count)

    def _checkpoint(self) -> None:
        self.state.files = {name: file.state() for name, file in self.files.items()}
        write_checked_json(self.folder / _PROGRESS, asdict(self.state))


def token_type(n_tokens: int) -> np.dtype[Any]:
    """The type on disk of the tokens of a vocabulary of so many entries."""
    return np.dtype("<u2" if n_tokens <= 1 << 16 else "<u4")


def _plan(
    stream: SentenceStream, tokenizer: Tokenizer | str, rules: Rules, lower: bool
) -> dict[str, Any]:
    """All that decides the bytes of the shards."""
    if isinstance(tokenizer, str):
        parsed(tokenizer)
    return {
        "tokenizer": tokenizer if isinstance(tokenizer, str) else tokenizer.fingerprint(),
        "lower": lower,
        **asdict(rules),
        "sources": [
            {"name": name, "bytes": path.stat().st_size, "sha256": file_digest(path)}
            for path, name in stream.corpus.named_files()
        ],
    }


def _is_made(out: Path, plan: dict[str, Any], overwrite: bool) -> bool:
    """Whether the shards are there already; raises where something else is in their place."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    try:
        manifest = read_manifest(out)
    except ValueError as error:
        if (out / shards.MANIFEST).is_file() and overwrite:
            return False
        raise FileExistsError(f"{out} exists and is no whole set of shards: {error}") from error
    if manifest["made_from"] == plan:
        return True
    if not overwrite:
        raise FileExistsError(
            f"{out} exists, made from other text or with other settings: choose another folder, or"
            " pass --overwrite"
        )
    return False


@contextmanager
def _workplace(out: Path, plan: dict[str, Any], overwrite: bool) -> Iterator[Path]:
    """``OUT.partial``, new or as an interrupted run of the same plan left it; ours alone."""
    folder = _partial(out)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        for path in folder.iterdir():
            if path.name.removesuffix(".new") not in _OURS:
                raise FileExistsError(f"{path} is in the way: move it, or choose another folder")
        found = read_checked_json(folder / _PLAN)
        if found != plan:
            if found is not None and not overwrite:
                raise ShardsError(
                    f"{folder} is what an interrupted run left, from other text or with other"
                    " settings: pass --overwrite to begin anew, or choose another folder"
                )
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            (folder / _SHARDS).mkdir()
            write_checked_json(folder / _PLAN, plan)
        yield folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder; another process that wants it is told so."""
    if os.name != "posix":
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ShardsError(f"{folder} is being written by another process: wait for it") from error
    finally:
        os.close(handle)


def _tokenizer(
    folder: Path, tokenizer: Tokenizer | str, sentences: Iterable[str], lower: bool
) -> Tokenizer:
    """The tokenizer given, or trained, or trained before the run was interrupted."""
    if isinstance(tokenizer, str):
        found = read_checked_json(folder / _TRAINED)
        if found is not None:
            tokenizer = Tokenizer.from_json(**found)
        else:
            tokenizer = trained(tokenizer, sentences, lower=lower)
            made = {"text": tokenizer.to_json(), "bos": tokenizer.bos, "eos": tokenizer.eos}
            write_checked_json(folder / _TRAINED, made)
    write_whole(folder / _SHARDS / shards.TOKENIZER, tokenizer.to_json().encode())
    return tokenizer


def _watched(stream: SentenceStream, progress: Progress | None) -> Iterator[str]:
    """The sentences, as they are read to train a tokenizer: no tokens yet."""
    for batch in stream.batches():
        yield from batch.texts
        if progress:
            progress(batch.bytes_read, stream.n_bytes, 0)


def _finish(folder: Path, tokenizer: Tokenizer, plan: dict[str, Any]) -> None:
    """Write the manifest, the last file."""
    state = read_checked_json(folder.parent / _PROGRESS)
    size = (folder / shards.TOKENIZER).stat().st_size
    files = {shards.TOKENIZER: {"bytes": size, "sha256": file_digest(folder / shards.TOKENIZER)}}
    manifest = {
        "format": shards.FORMAT,
        "version": shards.VERSION,
        "dtype": token_type(len(tokenizer)).name,
        "n_tokens_vocab": len(tokenizer),
        "bos": tokenizer.bos,
        "eos": tokenizer.eos,
        "totals": state["counts"],
        "files": files | state["files"],
        "made_from": plan,
    }
    write_whole(folder / shards.MANIFEST, sealed(manifest)[1])


def _put_in_place(made: Path, out: Path) -> None:
    old = made.with_name(_OLD)
    if out.exists():
        os.replace(out, old)
    os.replace(made, out)
    sync_folder(out.parent)


def _partial(out: Path) -> Path:
    return out.with_name(out.name + ".partial")
