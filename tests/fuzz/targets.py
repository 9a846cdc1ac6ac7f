"""Fuzz targets: readers of files from strangers, each called on files of the fuzzer's bytes.

The bytes of a case are the files of a folder, each after a line ``=== NAME``. Folders that hold
their own checksums are a JSON object, which our own writers seal: no byte of them is otherwise
read past the checksum.
"""

import json
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from esnlm import (
    LanguageModel,
    LowRankReadout,
    Reservoir,
    RidgeReadout,
    SoftmaxReadout,
    Tokenizer,
    load_model,
)
from esnlm.evaluation.minimal_pairs.pairs import read_pairs
from esnlm.evaluation.minimal_pairs.table import read_published as published_pairs
from esnlm.evaluation.syntaxgym.formulas import Formula
from esnlm.evaluation.syntaxgym.scores import read_published as published_suites
from esnlm.evaluation.syntaxgym.suites import Suite, read_suites
from esnlm.models import recipes
from esnlm.options.recipes import setting_names
from esnlm.reporting.contents import find
from esnlm.reporting.report import render_report
from esnlm.runs.run_record import RECORD
from esnlm.storage.checkpoints import _CHECKPOINT, Checkpoints
from esnlm.storage.json_files import sealed
from esnlm.storage.model_folder import MODEL, write_files
from esnlm.storage.tensor_file import file_digest, read_tensors
from esnlm.text import shards
from esnlm.text.corpus import TokenStream
from esnlm.text.shard_parts import PartedCorpus
from esnlm.text.stimuli import read_texts, read_words
from esnlm.training.trainer import Trainer, TrainingPlan

#: Tokens of the run that checkpoints belong to.
TOKENS = np.array([0, 1, 2, 3, 1, 2, 4, 3, 1, 4] * 2)
READOUTS = {
    "ridge": RidgeReadout(),
    "softmax": SoftmaxReadout(solver="incremental", n_passes=2),
    "low-rank": LowRankReadout(random_state=0),
}
_HEAD = re.compile(rb"^=== ([\w-][\w.-]{0,60})\n", re.MULTILINE)
#: Events of Python's that no reader causes.
_FORBIDDEN = {
    "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect",
    "pickle.find_class",
}  # fmt: skip
_WRITING = {
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.symlink", "os.link",
    "os.chmod",
}  # fmt: skip
_HARMLESS = ("/dev/null", "/proc/self/clear_refs")


class WrongError(Exception):
    """A reader did what none may do."""


Use: TypeAlias = Callable[[], Any]


class Target(NamedTuple):
    """A reader, and the seconds for which it runs in CI.

    ``read`` is called on the folder of a case, and refuses it by a message that names a file of it.
    It may return a function that uses what was read, whose message need not.
    """

    read: Callable[[Path], Use | None]
    seconds: int = 30
    #: Writes the files of a case; None: they are its parts.
    write: Callable[[Path, Any], None] | None = None


def parts_of(data: bytes) -> dict[str, bytes]:
    """Return the files of a case by name."""
    pieces = _HEAD.split(data)
    return {name.decode(): part for name, part in zip(pieces[1::2], pieces[2::2], strict=True)}


def arrays_of(described: Any) -> dict[str, np.ndarray]:
    """Return the arrays that a JSON object describes; what cannot be one is left out."""
    arrays = {}
    for name, each in described.items() if isinstance(described, dict) else ():
        try:
            values = np.array(each["data"], dtype=each["dtype"])
            if values.dtype.kind in "biuf" and np.isfinite(values).all():
                arrays[name] = values.reshape(each["shape"])
        except (ValueError, TypeError, LookupError, OverflowError, AttributeError):
            continue
    return arrays


def described(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the inverse of `arrays_of`."""
    return {
        name: {
            "dtype": array.dtype.name,
            "shape": list(array.shape),
            "data": array.ravel().tolist(),
        }
        for name, array in arrays.items()
    }


def texts_of(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the tokenizer of a folder, as its file."""
    return {"tokenizer.json": json.dumps(content["tokenizer.json"], ensure_ascii=True)}


def _write_model(folder: Path, content: Any) -> None:
    files = {name: arrays_of(each) for name, each in content.items() if "safetensors" in name}
    write_files(folder / "model", MODEL, content["config"], files, texts_of(content))


def _read_model(folder: Path) -> Use:
    model = load_model(folder / "model")

    def use() -> None:
        model.perplexity([[0, 0, 0]] if model.tokenizer_ is None else ["the boy sees"])
        model.sample(3, random_state=0)
        repr(model.n_parameters_)

    return use


def _write_checkpoint(folder: Path, content: Any) -> None:
    arrays = {"training.safetensors": arrays_of(content["arrays"])}
    config = {name: content[name] for name in content.keys() - {"arrays", "readout"}}
    write_files(folder / "run" / "step-0000000001", _CHECKPOINT, config, arrays, {})
    (folder / "readout").write_text(str(content.get("readout")))


def trainer_of(readout: str) -> Trainer:
    """Return the run that a checkpoint belongs to."""
    parts = Reservoir(4, degree=2, random_state=0), READOUTS.get(readout, READOUTS["ridge"])
    model = LanguageModel(*parts, n_tokens=5, random_state=0)
    stream = TokenStream(TOKENS, np.array([0, 10]), np.array([0, 10, 20]))
    model._read_corpus(stream)
    return Trainer(model, stream, plan=TrainingPlan(chunk_tokens=8))


def _read_checkpoint(folder: Path) -> Use:
    trainer, checkpoints = trainer_of((folder / "readout").read_text()), Checkpoints(folder / "run")
    checkpoints.latest()
    return lambda: trainer.run(checkpoints, resume=True)


def _write_shards(folder: Path, content: Any) -> None:
    place = folder / "shards"
    for name, array in arrays_of(content["arrays"]).items():
        if name in shards.FILES:
            (place / name).write_bytes(array.tobytes())
    for name, text in texts_of(content).items():
        (place / name).write_text(text)
    manifest = content["manifest"]
    for name, about in manifest["files"].items():
        if isinstance(about, dict) and (place / name).is_file():
            about |= {"bytes": (place / name).stat().st_size, "sha256": file_digest(place / name)}
    (place / shards.MANIFEST).write_bytes(shards.FORMAT.sealed(manifest))


def _read_shards(folder: Path) -> None:
    read = shards.Shards(folder / "shards")
    stream = read.stream()
    repr(read), len(read), stream.predicted(), stream.n_predicted
    parted = PartedCorpus(folder / "shards")
    repr(parted.tokenizer), parted.described(), [part.stream() for part in parted.parts(2)]


def _read_arpa(folder: Path) -> Use:
    models = [load_model(path) for path in sorted(folder.glob("*.arpa"))]

    def use() -> None:
        for model in models:
            model.perplexity(["the boy"])
            model.sample(2, random_state=0)

    return use


def _read_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(folder / "tokenizer.json")
    tokens = tokenizer.encode("the boy\nsees </s> é")
    tokenizer.decode(tokens), tokenizer.lowered(), tokenizer.vocabulary, tokenizer.fingerprint()


def _read_safetensors(folder: Path) -> None:
    read_tensors(folder / "arrays.safetensors")


def _read_toml(folder: Path) -> Use:
    from esnlm.search.space import read_space, written

    read: list[Any] = []
    for path in sorted(folder.iterdir()):
        if path.name == "recipe.toml":
            read.append(recipes.read_recipe(str(path)))
        else:
            space = read_space(path, setting_names())
            space.size(), space.fixed(), [written(each) for each in space.examples()]

    def use() -> None:
        for options in read:
            settings = recipes.default_settings(recipes.to_settings(options, of_model=True), 50)
            recipes.make_reservoir(settings, 0), recipes.make_readout(settings, 0)
            recipes.make_features(settings["features"], 0)

    return use


def search_of(folder: Path, *, resume: bool) -> Any:
    """Return the search that journals belong to."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    from esnlm.search.space import Entry, Space
    from esnlm.search.study import Search, SearchPlan

    space = Space(
        (
            Entry("units", 9),
            Entry("leak-rate", CategoricalDistribution((1, 0.5))),
            Entry("alpha", FloatDistribution(0.01, 10.0, log=True)),
        )
    )
    return Search(folder, space, SearchPlan(at_once=2), {"corpus": "abc"}, resume=resume)


def _read_journal(folder: Path) -> None:
    if not (folder / "study.journal").is_file():
        return
    search = search_of(folder, resume=True)
    for _ in search.run(lambda settings, report: settings["alpha"], 4, None):
        pass
    search.columns(), search.rows(), search.best


def _write_results(folder: Path, content: Mapping[str, bytes]) -> None:
    for name, data in content.items():
        if name.endswith(RECORD):
            with suppress(ValueError, RecursionError):
                record = json.loads(data)
                data = sealed(record) if isinstance(record, dict) else data
        (folder / name).write_bytes(data)


def _read_results(folder: Path) -> None:
    render_report("Title", find([folder]), {}, split_of=lambda model: "line")


def _read_pairs(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        if ".text" not in path.name:
            read_pairs(path)


def _read_tables(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        if path.name.startswith("word"):
            read_words(path, "word", ["item"])
        elif path.name.startswith("published"):
            published_pairs(path)
        elif path.name.startswith("suites"):
            published_suites(path, [Suite("agreement", (), ())])
        else:
            read_texts(path, "text")


def _read_suites(folder: Path) -> None:
    for suite in read_suites(folder):
        for formula in suite.formulas:
            formula.holds({region: np.ones(len(suite.items)) for region in formula.regions})


def _read_formula(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        formula = Formula(path.read_text(errors="replace"))
        formula.holds({region: np.ones(2) for region in formula.regions})


TARGETS = {
    "model": Target(_read_model, write=_write_model),
    "shards": Target(_read_shards, write=_write_shards),
    "arpa": Target(_read_arpa),
    "tokenizer": Target(_read_tokenizer),
    "checkpoint": Target(_read_checkpoint, write=_write_checkpoint),
    "toml": Target(_read_toml),
    "pairs": Target(_read_pairs),
    "journal": Target(_read_journal, 15),
    "results": Target(_read_results, 15, _write_results),
    "tables": Target(_read_tables, 10),
    "suites": Target(_read_suites, 10),
    "formula": Target(_read_formula, 5),
    "safetensors": Target(_read_safetensors, 5),
}
#: Targets whose cases are one JSON object.
SEALED = ("model", "shards", "checkpoint")


def write_case(name: str, data: bytes, folder: Path) -> bool:
    """Write the files of a case; return False where its bytes are none."""
    write = TARGETS[name].write
    if name not in SEALED:
        parts = parts_of(data)
        for each, part in parts.items() if write is None else ():
            (folder / each).write_bytes(part)
        if write is not None:
            write(folder, parts)
        return bool(parts)
    try:
        for place in ("model", "run/step-0000000001", "shards"):
            (folder / place).mkdir(parents=True)
        write(folder, json.loads(data))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OSError):
        return False
    return True


@contextmanager
def case_folder() -> Iterator[Path]:
    """Yield an empty folder, in memory where there is such a place."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=memory if memory.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


_watched: list[Path] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise WrongError for what no reader may do, while one runs."""
    if not _watched:
        return
    wrong = event in _FORBIDDEN
    if event in _WRITING or (event == "open" and {*"wax+"}.intersection(str(arguments[1]))):
        wrong = not str(arguments[0]).startswith((str(_watched[0]), *_HARMLESS))
    if wrong and not _is_loading():
        _watched.clear()
        raise WrongError(f"a reader caused {event} {arguments}")


def _is_loading() -> bool:
    """Return whether a module is imported, or numba reads its cache, which is pickled."""
    names = (frame.f_code.co_filename for frame, _ in traceback.walk_stack(None))
    return any("numba" in name or "importlib" in name for name in names)


sys.addaudithook(_watch)


def check(name: str, data: bytes) -> str:
    """Read a case: return "" or the message of its refusal; raise WrongError for all else."""
    with case_folder() as folder:
        if not write_case(name, data, folder):
            return ""
        before, names_file = sorted(folder.rglob("*")), name != "formula"
        try:
            _watched.append(folder)
            use = TARGETS[name].read(folder)
            names_file = False
            if use is not None:
                use()
            return ""
        except (ValueError, OSError) as error:
            message = str(error)
            names = [str(folder), *(path.name for path in before)]
            if "\n" in message or not message.strip():
                raise WrongError(f"the message is not one line: {message!r}") from error
            if names_file and not any(each in message for each in names):
                raise WrongError(f"the message names no file: {message!r}") from error
            return message.replace(str(folder), "")
        except (KeyboardInterrupt, WrongError):
            raise
        except BaseException as error:
            raise WrongError(f"{type(error).__name__}: {error}") from error
        finally:
            _watched.clear()
            if (after := sorted(folder.rglob("*"))) != before:
                raise WrongError(f"a reader changed the folder: {after}")
