"""Options that commands share, groups of options as dataclasses, folders of results."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, dataclass_transform

from cyclopts import Group, Parameter

from esnlm.options.values import Cluster, file_name, integer, named, read
from esnlm.storage.atomic import locked
from esnlm.utils.messages import is_terminal, log

if TYPE_CHECKING:
    from esnlm.text.shard_parts import PartedCorpus
    from esnlm.text.source import Source
    from esnlm.utils.sums import Reduce

T = TypeVar("T")


def _png(text: str) -> Path:
    if text and Path(text).suffix.lower() not in ("", ".png"):
        raise ValueError(f"expected a name that ends in .png, got {text!r}")
    return named(text)


File = Annotated[Path, file_name("FILE")]
Folder = Annotated[Path, file_name("DIR")]
Png = Annotated[Path, read(_png, "PNG")]
Model = Annotated[
    Path, file_name("MODEL"), Parameter("MODEL", help="A folder that train or ngram wrote.")
]
Models = Annotated[
    tuple[Path, ...], Parameter("MODEL", help="Folders that train or ngram wrote, or GPT-2.")
]
Texts = Annotated[
    tuple[str, ...], Parameter("TEXT", help="UTF-8 text files, plain or .gz, or folders.")
]
NewModel = Annotated[Path, file_name("MODEL"), Parameter(help="The folder to write.")]
Documents = Annotated[
    Literal["blank_line", "line", "file"] | None,
    Parameter(
        help="What a document is (default: file where line ends are tokens, else blank_line)."
    ),
]
Sizes = tuple[Annotated[int, integer("N", 1)], ...]
Device = Annotated[
    str | None,
    Parameter(
        metavar="NAME",
        help="Compute with torch on auto, cpu, cuda or cuda:N, also a reservoir with a softmax"
        " (default: networks on auto, all else without torch).",
    ),
]


@dataclass_transform(frozen_default=True, kw_only_default=True)
def group(title: str = "", text: str = "") -> Callable[[type[T]], type[T]]:
    """Return a frozen dataclass whose fields are options, under a title in the help.

    The string below a field is its help.
    """
    panel: dict[str, Any] = {"group": Group(title, help=text)} if title else {}

    def decorate(cls: type[T]) -> type[T]:
        return Parameter(name="*", **panel)(dataclass(frozen=True, kw_only=True)(cls))

    return decorate


@group()
class ResultOptions:
    """How a command treats existing results."""

    overwrite: bool = False
    """Replace existing results (default: add rows to a CSV, refuse all else)."""


@group("Training in passes")
class ChunkOptions:
    """Tokens of training text that are read at once, and of held-out text that are scored."""

    held_out_tokens: Annotated[int | None, integer("T")] = None
    """Held-out tokens that are scored, taken evenly (default: 32768)."""
    chunk_tokens: Annotated[int | None, integer("T")] = None
    """Tokens of a chunk (default: 65536)."""


@group(
    "Work in parts",
    "Shards are shared out in parts, and the model depends on --parts, not on who worked on them or"
    " how often. Counts of n-grams are those of one part; ridge readouts, alone or factored, but"
    " for rounding; softmax and lowrank ones learn a chunk of every part from the same weights, and"
    " the changes are averaged. Inputs are one-hot or spectral.",
)
class SharedOptions:
    """Parts of the corpus, and the workers that they are shared out to."""

    cluster: Cluster = None
    parts: Annotated[int | None, integer("P", 1)] = None
    """Parts of the corpus (default with --cluster: 64, or 8 of softmax and lowrank; one a chunk at
    most)."""


def set_options(options: Any) -> dict[str, Any]:
    """Fields of a group that have a value, by name."""
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    return {name: value for name, value in values.items() if value not in (None, ())}


def option_name(field: str) -> str:
    """``batch_size`` -> ``--batch-size``."""
    return f"--{field.replace('_', '-')}"


def names(choices: tuple[str, ...]) -> Parameter:
    """Return some of these names."""
    return Parameter(metavar="NAME", choices=choices)


def check_second(model: Path, second: Path | None) -> None:
    """Warn where --interpolate names the model itself."""
    if second is not None and second.resolve() == model.resolve():
        log.warning(f"--interpolate {second} is the MODEL itself, which changes nothing")


def finish(*files: Path | None, then: str = "") -> None:
    """Print which files were written; tell a person at a terminal which command may come next."""
    paths = [str(path) for path in files if path is not None and path.exists()]
    if paths:
        print(f"wrote {', '.join(paths)}")
    if then and is_terminal():
        log.info(f"next: {then}")


def summary(model: Any, n_read: int) -> str:
    """Return a line on a trained model, which read ``n_read`` tokens in a pass.

    >>> from types import SimpleNamespace
    >>> summary(SimpleNamespace(n_tokens_=8000, n_parameters_=2_100_000), 1_460_000)
    'vocabulary 8 000; trained on 1.46 M tokens; 2100000 trained parameters'
    """
    vocabulary = f"vocabulary {model.n_tokens_:,}".replace(",", " ")
    trained = f"trained on {_rounded(n_read)} tokens"
    return f"{vocabulary}; {trained}; {model.n_parameters_} trained parameters"


def _rounded(n: int) -> str:
    """Write a number with three digits and a unit: 1 460 000 -> 1.46 M."""
    for unit, size in (("M", 1_000_000), ("k", 1000)):
        if n >= size:
            return f"{n / size:.3g} {unit}" if n < 1000 * size else f"{n // size} {unit}"
    return str(n)


def n_unknown(model: Any, texts: Sequence[str]) -> tuple[int, int]:
    """Count the tokens of texts that training did not have, and all tokens."""
    from esnlm.models.surprisal import unknown_tokens

    if model.tokenizer_ is None:
        return 0, 0
    ids, unknown = list(model.tokenizer_.encode_batches(texts)), unknown_tokens(model)
    return sum(int(unknown[each].sum()) for each in ids), sum(map(len, ids))


def read_in_parts(source: "Source", shared: SharedOptions) -> "PartedCorpus":
    """Return the shards in parts; refuse text."""
    if not source.is_shards:
        flags = " and ".join(option_name(name) for name in set_options(shared))
        raise ValueError(
            f"{flags} need shards, which others can read in parts: esnlm prepare TEXT --out SHARDS"
        )
    return source.parts


@contextmanager
def sharing(cluster: str | None) -> "Iterator[Reduce]":
    """Yield what works on parts: the workers of a cluster, or this process."""
    from esnlm.utils.sums import reduce_here

    if cluster is None:
        yield reduce_here
        return
    from esnlm.runs.workers import workers

    with workers(cluster) as executor:
        yield executor


@contextmanager
def results_folder(folder: Path, again: str = "the same command") -> Iterator[None]:
    """Make and hold a folder, and see that files can be made in it, before hours are spent.

    After an error, what was made and is empty is removed; an interrupt says what is kept, and what
    continues ``again``.
    """
    probe = folder / ".writable"
    with locked(folder):
        try:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                probe.touch()
                probe.unlink()
            except OSError as error:
                reason = "it is a file" if folder.is_file() else error.strerror
                raise ValueError(
                    f"cannot write to --out {folder}: {reason}; name a folder that can be written"
                ) from None
            yield
        except BaseException as error:
            with suppress(OSError):  # it holds results
                folder.rmdir()
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(
                    f"interrupted: finished rows are kept in {folder}, {again} continues"
                ) from None
            raise
