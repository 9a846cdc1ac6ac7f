"""Text to token shards in bounded memory; an interrupted run continues where it stopped.

``OUT.partial`` holds ``plan.json``, all that decides the bytes of the shards; ``trained.json``, a
tokenizer trained for them; ``progress.json``, replaced whole at each checkpoint once the disk has
all that it describes; and ``shards``, which takes the name ``OUT`` in the end. The bytes do not
depend on where a run was stopped.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.storage.atomic import is_free, locked, owner_of, put_in_place, remove, write_whole
from esnlm.storage.json_files import sealed, unsealed
from esnlm.storage.tensor_file import GrowingFile, file_digest
from esnlm.text import shards
from esnlm.text.backends import TokenizerError
from esnlm.text.corpus import CorpusError, TextCorpus
from esnlm.text.layout import AS_WRITTEN, TextLayout
from esnlm.text.named_tokenizers import parsed, trained
from esnlm.text.sentences import AS_IT_IS, SentenceRules, SentenceStream, tokenize_sentences
from esnlm.text.shard_parts import Place, read_digests
from esnlm.text.shards import Shards, ShardsError
from esnlm.text.tokenizers import Tokenizer

#: Called after each batch with the bytes of text read, those of all files, and the tokens so far,
#: which are 0 while a tokenizer is being trained.
Progress = Callable[[int, int, int], None]

_PLAN, _TRAINED, _PROGRESS, _SHARDS = "plan.json", "trained.json", "progress.json", "shards"
_OURS = {_PLAN, _TRAINED, _PROGRESS, _SHARDS}
_COUNTED = (
    "tokens", "sentences", "documents", "words", "characters", "unknown", "sentences_left_out",
    "sentences_cut", "tokens_cut",
)  # fmt: skip


def prepare(
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    tokenizer: Tokenizer | str,
    *,
    rules: SentenceRules = AS_IT_IS,
    layout: TextLayout = AS_WRITTEN,
    lower: bool = False,
    overwrite: bool = False,
    progress: Progress = lambda position, total, tokens: None,
    checkpoint_characters: int = 1 << 22,
) -> Shards:
    """Tokenize text files into a folder of shards; see `esnlm.text.shards`.

    Called again after an interruption, with the same arguments and the same text, it continues
    from the last checkpoint; the result is the same, byte for byte. Where ``out`` is already made
    of the same, it is returned as it is.

    ``texts`` are text files, plain or ``.gz``, and folders, and ``layout`` is what is undone as
    they are read; see `esnlm.text.corpus.TextCorpus`. A ``tokenizer`` that is a str says what to
    train on the sentences: ``bpe:N``, or ``word``, ``wordpunct``, ``auto`` or ``char``, with ``:N``
    or not. With ``lower`` the text is lower-cased: the tokenizer, a copy of it if given, does so
    from then on. ``overwrite`` replaces existing shards, and what an interrupted run with other
    arguments left. ``checkpoint_characters`` are read between two checkpoints.

    Raises CorpusError where the text cannot be read or gives no sentence, FileExistsError where
    ``out`` exists, BusyError where another process is writing it, and ShardsError where an
    interrupted run had other arguments or other text. After an OSError, as where the disk is full,
    what was done so far is kept.
    """
    for name, value, kind, what in (
        ("tokenizer", tokenizer, str | Tokenizer, "Tokenizer, such as Tokenizer.from_file reads"),
        ("rules", rules, SentenceRules, "SentenceRules"),
        ("layout", layout, TextLayout, "TextLayout"),
    ):
        if not isinstance(value, kind):
            raise ValueError(f"{name} must be a {what}, got {value!r:.80}")
    out = Path(out).resolve()
    corpus = TextCorpus(texts, rules.documents, layout)
    for path in corpus.paths:
        if path.is_dir() and out.is_relative_to(path.resolve()):
            raise ValueError(f"{out} lies in {path}, the text: choose a folder outside it")
    stream = SentenceStream(corpus, rules.sentences, min(checkpoint_characters, 1 << 20))
    if isinstance(tokenizer, str):
        parsed(tokenizer)
    elif lower:
        tokenizer = tokenizer.lowered()
    with locked(out):
        plan = {
            "tokenizer": tokenizer if isinstance(tokenizer, str) else tokenizer.fingerprint(),
            "lower": lower,
            **asdict(rules),
            **layout.changed(),  # shards of before there were layouts are still those asked for
            "sources": [
                {"name": name, "bytes": path.stat().st_size, "sha256": file_digest(path)}
                for path, name in corpus.files()
            ],
        }
        folder = out.with_name(out.name + ".partial")
        if _is_made(out, plan, overwrite):
            _clear(folder)
            return Shards(out, verify=False)
        _make_workplace(folder, plan, overwrite)
        try:
            vocabulary = _tokenizer(folder, tokenizer, stream, lower, progress)
            state = _write_shards(
                folder, vocabulary, stream, rules, checkpoint_characters, progress
            )
        except (CorpusError, TokenizerError):
            _clear(folder)  # only another text or other settings can be prepared
            raise
        saved = folder / _SHARDS / shards.TOKENIZER
        files = {shards.TOKENIZER: {"bytes": saved.stat().st_size, "sha256": file_digest(saved)}}
        manifest = {
            "dtype": _token_type(len(vocabulary)).name,
            "n_tokens_vocab": len(vocabulary),
            "bos": vocabulary.bos,
            "eos": vocabulary.eos,
            "totals": state["counts"],
            "files": files | state["files"],
            "blocks": {
                name: read_digests(Place(str(saved.parent)), name, state["files"][name])
                for name in (shards.TOKENS, shards.STARTS)
            },
            "made_from": plan,
        }
        write_whole(folder / _SHARDS / shards.MANIFEST, shards.FORMAT.sealed(manifest))
        put_in_place(folder / _SHARDS, out)
        _clear(folder)
        return Shards(out, verify=False)


def _is_made(out: Path, plan: dict[str, Any], overwrite: bool) -> bool:
    """Whether the shards are there already, whole; FileExistsError where they may not be put.

    With ``overwrite`` other shards may be replaced, and damaged ones, but no other files.
    """
    if is_free(out):
        return False
    names = {path.name for path in out.iterdir()} if out.is_dir() else {out.name}
    if shards.MANIFEST not in names or names - shards.FILES:
        raise FileExistsError(
            f"{out} exists and holds other files than shards: choose another folder"
        )
    try:
        same = bool(shards.FORMAT.read(out)["made_from"] == plan)
        if same:
            Shards(out)
    except ShardsError as error:
        if overwrite:
            return False
        raise FileExistsError(f"{error}, or pass overwrite=True") from error
    if not same and not overwrite:
        raise FileExistsError(
            f"{out} exists, made from other text or with other settings: choose another folder, or"
            " pass overwrite=True"
        )
    return same


def _make_workplace(folder: Path, plan: dict[str, Any], overwrite: bool) -> None:
    """Make ``OUT.partial``, unless an interrupted run of the same plan left it."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in _others_in(folder):
        raise FileExistsError(f"{path} is in the way: move it, or choose another folder")
    earlier = unsealed(folder / _PLAN)
    if earlier == plan:
        for path in [*folder.iterdir(), *(folder / _SHARDS).iterdir()]:
            if owner_of(path.name):
                remove(path)
        return
    if earlier is not None and not overwrite:
        raise ShardsError(
            f"{folder} is what an interrupted run left, from other text or with other"
            " settings: pass overwrite=True to begin anew, or choose another folder"
        )
    for path in folder.iterdir():
        remove(path)
    (folder / _SHARDS).mkdir()
    write_whole(folder / _PLAN, sealed(plan))


def _clear(folder: Path) -> None:
    """Remove what is left in ``OUT.partial``, unless it holds anything else."""
    if folder.is_dir() and not _others_in(folder):
        shutil.rmtree(folder, ignore_errors=True)


def _others_in(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if (owner_of(path.name) or path.name) not in _OURS]


def _tokenizer(
    folder: Path, choice: Tokenizer | str, stream: SentenceStream, lower: bool, progress: Progress
) -> Tokenizer:
    """Yield the tokenizer given, or trained, or trained before the run was interrupted."""

    def sentences() -> Iterator[str]:
        for batch in stream.batches():
            yield from batch.texts
            progress(batch.bytes_read, stream.n_bytes, 0)

    if not isinstance(choice, str):
        tokenizer = choice
    elif (record := unsealed(folder / _TRAINED)) is not None:
        tokenizer = Tokenizer.from_json(**record)
    else:
        tokenizer = trained(choice, sentences(), lower=lower)
        description = {"text": tokenizer.to_json(), "bos": tokenizer.bos, "eos": tokenizer.eos}
        write_whole(folder / _TRAINED, sealed(description))
    write_whole(folder / _SHARDS / shards.TOKENIZER, tokenizer.to_json().encode())
    return tokenizer


def _write_shards(
    folder: Path,
    tokenizer: Tokenizer,
    stream: SentenceStream,
    rules: SentenceRules,
    checkpoint_characters: int,
    progress: Progress,
) -> dict[str, Any]:
    """Sentences to growing files, from the last checkpoint to the end of the text; the state."""
    state: dict[str, Any] = unsealed(folder / _PROGRESS) or {
        "position": [0, 0],
        "bound": 0,
        "counts": dict.fromkeys(_COUNTED, 0),
        "files": {},
    }
    counts = state["counts"]
    types = dict.fromkeys((shards.TOKENS, shards.STARTS, shards.BOUNDS), shards.PLACE)
    types[shards.TOKENS] = _token_type(len(tokenizer))
    with ExitStack() as stack:
        files: dict[str, GrowingFile] = {}
        for name, dtype in types.items():
            file = GrowingFile(folder / _SHARDS / name, dtype, state["files"].get(name))
            files[name] = stack.enter_context(file)

        def checkpoint() -> None:
            state["files"] = {name: file.state() for name, file in files.items()}
            write_whole(folder / _PROGRESS, sealed(state))

        if not state["files"]:
            files[shards.BOUNDS].append(np.zeros(1))
        fresh = 0
        n_files, n_lines = state["position"]
        for batch in stream.batches((n_files, n_lines)):
            tokens, lengths, numbers = tokenize_sentences(batch.texts, tokenizer, rules)
            after = counts["tokens"] + np.concatenate(([0], np.cumsum(lengths)))
            files[shards.TOKENS].append(tokens)
            files[shards.STARTS].append(after[:-1][lengths > 0])
            # Documents without any sentence have no bounds.
            bounds = np.unique(after[batch.ends])
            bounds = bounds[bounds > state["bound"]]
            files[shards.BOUNDS].append(bounds)
            if len(bounds):
                state["bound"] = int(bounds[-1])
            state["position"] = list(batch.position)
            numbers["documents"] = len(bounds)
            for name, count in numbers.items():
                counts[name] += count
            progress(batch.bytes_read, stream.n_bytes, counts["tokens"])
            fresh += sum(map(len, batch.texts))
            if fresh >= checkpoint_characters:
                checkpoint()
                fresh = 0
        checkpoint()
    if not counts["sentences"]:
        names = ", ".join(map(str, stream.corpus.paths))
        least = rules.min_length
        what = f"no sentence of {least} tokens or more" if least else "no text"
        raise CorpusError(f"the corpus is empty: {what} in {names}")
    return state


def _token_type(n_tokens: int) -> np.dtype[Any]:
    """Type of the tokens on disk, for the size of the vocabulary."""
    return np.dtype("<u2" if n_tokens <= 1 << 16 else "<u4")
