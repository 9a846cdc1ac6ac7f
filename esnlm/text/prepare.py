"""Text to token shards, in bounded memory; what was interrupted goes on where it stopped.

Everything is written beside the folder to be, see `workplace`, where ``progress.json`` is
replaced whole at each checkpoint, once the disk has all that it speaks of; then the shards get
their name. Nothing depends on where a run was cut.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.storage.atomic import write_whole
from esnlm.storage.growing_file import GrowingFile, read_checked_json, write_checked_json
from esnlm.storage.tensor_file import file_digest
from esnlm.text import shards
from esnlm.text.corpus import CorpusError, TextCorpus
from esnlm.text.sentences import (
    AS_IT_IS,
    BEGINNING,
    Framing,
    Position,
    Rules,
    SentenceBatch,
    SentenceStream,
)
from esnlm.text.shards import PLACE, Shards, sealed
from esnlm.text.tokenizers import Tokenizer, TokenizerError
from esnlm.text.vocabularies import parsed, trained
from esnlm.text.workplace import (
    PROGRESS,
    SHARDS,
    TRAINED,
    clear,
    is_made,
    partial_folder,
    put_in_place,
    workplace,
)

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
    """Tokenize text files into a folder of shards; see `esnlm.text.shards`.

    Called again after an interruption, with the same arguments and the same text, it goes on from
    the last checkpoint; the result is the same, byte for byte. Where ``out`` is already made of
    the same, it is returned as it is.

    Parameters
    ----------
    texts : path or paths
        Text files, plain or ``.gz``, and folders; see `esnlm.text.corpus.TextCorpus`.
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
    if is_made(out, plan, overwrite):
        clear(partial_folder(out))
        return Shards(out, verify=False)
    with workplace(out, plan, overwrite) as folder:
        try:
            made = _tokenizer(folder, tokenizer, _watched(stream, progress), lower)
            _Run(folder, made, rules, checkpoint_characters).go(stream, progress)
        except (CorpusError, TokenizerError):
            clear(
                folder
            )  # other text or settings make other shards: there is nothing to go on from
            raise
        _finish(folder / SHARDS, made, plan)
        put_in_place(folder / SHARDS, out)
        clear(folder)
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
        found = read_checked_json(folder / PROGRESS)
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
                path = self.folder / SHARDS / name
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
        write_checked_json(self.folder / PROGRESS, asdict(self.state))


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


def _tokenizer(
    folder: Path, tokenizer: Tokenizer | str, sentences: Iterable[str], lower: bool
) -> Tokenizer:
    """The tokenizer given, or trained, or trained before the run was interrupted."""
    if isinstance(tokenizer, str):
        found = read_checked_json(folder / TRAINED)
        if found is not None:
            tokenizer = Tokenizer.from_json(**found)
        else:
            tokenizer = trained(tokenizer, sentences, lower=lower)
            made = {"text": tokenizer.to_json(), "bos": tokenizer.bos, "eos": tokenizer.eos}
            write_checked_json(folder / TRAINED, made)
    write_whole(folder / SHARDS / shards.TOKENIZER, tokenizer.to_json().encode())
    return tokenizer


def _watched(stream: SentenceStream, progress: Progress | None) -> Iterator[str]:
    """The sentences, as they are read to train a tokenizer: no tokens yet."""
    for batch in stream.batches():
        yield from batch.texts
        if progress:
            progress(batch.bytes_read, stream.n_bytes, 0)


def _finish(folder: Path, tokenizer: Tokenizer, plan: dict[str, Any]) -> None:
    """Write the manifest, the last file."""
    state = read_checked_json(folder.parent / PROGRESS)
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
