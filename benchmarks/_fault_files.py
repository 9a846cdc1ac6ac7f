"""Mutated files: folders of every kind, one thing altered in them, their checksums right."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _fault_folders import KINDS, STOPPED, THEN, folders
from _fault_runner import Case, command_failure
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from esnlm import LanguageModel
from esnlm.storage.checkpoints import _CHECKPOINT
from esnlm.storage.model_folder import CONFIG, MODEL, TOKENIZER, TRAINING
from esnlm.storage.tensor_file import file_digest
from esnlm.text import shards

_TEXT = "boys see the dog\nthe dog that sees cats walks\n"
_NUMBERS = (
    0, -1, 1, 2, 3, 7, 63, 64, 65, 255, 256, 1000, 65535, 65536, 2**31 - 1, -(2**31), 2**31, 2**32,
    2**53, 2**63 - 1, -(2**63), 10**9, 10**30, 0.5, -0.5, 1e-30, 1e30, -1e30, 1e39, 1e300,
    float("nan"), float("inf"), -float("inf"),
)  # fmt: skip
_ODD: tuple[Any, ...] = (
    None, True, False, "", "x", [], {}, [[]], [None], {"x": 1}, "softmax", "never",
    {"class": "Reservoir", "params": {}}, {"array": [1, 2], "dtype": "int64"}, {"dict": [[[], 1]]},
    {"array": [[1, [2]]], "dtype": "object"}, {"tuple": [1, 2]}, {"class": "os", "params": {}},
    *_NUMBERS,
)  # fmt: skip


def mutated_files(rng: np.random.Generator, folder: Path) -> Case:
    """A folder of some kind, altered in one place, and a command that reads it."""
    name = str(rng.choice(sorted(KINDS)))
    kind, source = KINDS[name], folders() / name
    place = folder / "there"
    if kind == "shards":
        what = _altered_shards(rng, source, place)
    elif "checkpoint" in kind:
        (step,) = source.iterdir()
        what = _altered_model(rng, step, folder / "out.checkpoints" / step.name, _CHECKPOINT)
    else:
        what = _altered_model(rng, source, place, MODEL)
    return Case(f"{name}: {what}", lambda: _read(kind, name, folder, place))


def _read(kind: str, name: str, folder: Path, place: Path) -> str:
    """What is wrong with reading it."""
    text, rows = folder / "text.txt", folder / "rows.csv"
    text.write_text(_TEXT)
    out = str(folder / "out")
    if kind == "shards":
        options = ["--readout", "ridge", "--units", "8", "--input-degree", "2"]
        return command_failure("train", str(place), *options, "--out", out)
    if "checkpoint" in kind:
        options = [*STOPPED[name].split(), "--out", out, "--resume"]
        return command_failure("train", str(folders() / "shards"), *options)
    cpu = ["--device", "cpu"] if kind == "network" else []
    wrong = command_failure(
        "evaluate", str(place), str(text), "--surprisal-csv", str(rows), *cpu, results=(rows,)
    )
    if wrong:
        return wrong
    if (place / TRAINING).exists():
        wrong = _learned(place)
    return wrong or command_failure("generate", str(place), "--tokens", "5", "--seed", "1", *cpu)


def _learned(place: Path) -> str:
    """What is wrong with learning on, which the API does alone: a ValueError is its refusal."""
    try:
        model = LanguageModel.load(place).partial_fit(THEN)
        scores = np.concatenate(model.log_likelihood(THEN))
    except ValueError:
        return ""
    return "NaN after partial_fit" if np.isnan(scores).any() else ""


def _altered_model(rng: np.random.Generator, source: Path, place: Path, kind: Any) -> str:
    config = json.loads((source / CONFIG).read_text())
    names = config.pop("sha256")
    for key in ("format", "version", "config_sha256"):
        del config[key]
    arrays = {n: load_file(source / n) for n in names if n.endswith(".safetensors")}
    texts = {n: (source / n).read_text() for n in names if n == TOKENIZER}
    part = rng.random()
    headers = ""
    if part < 0.05:
        headers = str(rng.choice(sorted(arrays)))
        what = f"the header of {headers}"
    elif part < 0.6:
        file = str(rng.choice(sorted(arrays)))
        what = f"{file}: {_altered_arrays(rng, arrays[file])}"
    elif part < 0.85 or not texts:
        what = f"{CONFIG}: {altered_json(rng, config)}"
    else:
        tokenizer = json.loads(texts[TOKENIZER])
        what = f"{TOKENIZER}: {altered_json(rng, tokenizer)}"
        texts[TOKENIZER] = json.dumps(tokenizer)
    place.mkdir(parents=True)
    for file, content in arrays.items():
        save_file(content, place / file)  # the package's own writer refuses NaN
    for file, text in texts.items():
        (place / file).write_text(text)
    if headers:
        what += f": {_altered_header(rng, place / headers)}"
    digests = {name: file_digest(place / name) for name in sorted(names)}
    (place / CONFIG).write_bytes(kind.sealed({**config, "sha256": digests}))
    return what


def _altered_header(rng: np.random.Generator, path: Path) -> str:
    """Alter the header of a safetensors file, but not its arrays."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header: Any = json.loads(data[8 : 8 + length])
    if rng.random() < 0.2:
        header = _ODD[rng.integers(len(_ODD))]
        what = f"is {header!r}"
    else:
        what = altered_json(rng, header)
    text = b"[" * 100_000 if rng.random() < 0.05 else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    return what


def _altered_shards(rng: np.random.Generator, source: Path, place: Path) -> str:
    shutil.copytree(source, place)
    manifest = json.loads((place / shards.MANIFEST).read_text())
    for key in ("format", "version", "manifest_sha256"):
        del manifest[key]
    name = str(rng.choice(sorted(shards.FILES)))
    path = place / name
    if name == shards.MANIFEST:
        what = altered_json(rng, manifest)
    elif name == shards.TOKENIZER:
        content = json.loads(path.read_text())
        what = altered_json(rng, content)
        path.write_text(json.dumps(content))
    else:
        array = np.fromfile(path, manifest["dtype"] if name == shards.TOKENS else shards.PLACE)
        arrays = {name: array}
        what = _altered_arrays(rng, arrays)
        path.write_bytes(b"".join(value.tobytes() for value in arrays.values()))
    if name != shards.MANIFEST:
        manifest["files"][name] = {"bytes": path.stat().st_size, "sha256": file_digest(path)}
    (place / shards.MANIFEST).write_bytes(shards.FORMAT.sealed(manifest))
    return f"{name}: {what}"


def _altered_arrays(rng: np.random.Generator, arrays: dict[str, NDArray[Any]]) -> str:
    """Alter one array in place of the other; what was done."""
    name = str(rng.choice(sorted(arrays)))
    done, array = _ARRAY_CHANGES[rng.integers(len(_ARRAY_CHANGES))], arrays.pop(name)
    with np.errstate(all="ignore"):
        changed, what = done(rng, array.copy())
    if changed is not None:
        arrays[name] = changed
    return f"{name}{list(array.shape)} {array.dtype}: {what}"


def _one(rng: np.random.Generator, array: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """One entry, more often one at either end, is an odd number."""
    if not array.size:
        return array.reshape(-1), "flat"
    place = int(rng.choice([0, array.size - 1, int(rng.integers(array.size))]))
    number = _odd_number(rng, array)
    array.reshape(-1)[place] = number
    return array, f"entry {place} is {number}"


def _odd_number(rng: np.random.Generator, array: NDArray[Any]) -> Any:
    near = [array.size, array.size + 1, array.max() + 1] if array.dtype.kind in "iu" else []
    number = ([*near, *_NUMBERS])[rng.integers(len(near) + len(_NUMBERS))]
    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        number = 0 if number != number else int(max(min(number, limits.max), limits.min))
    return np.array(number, dtype=np.float64 if isinstance(number, float) else None).astype(
        array.dtype
    )


def _all(rng: np.random.Generator, array: NDArray[Any]) -> tuple[NDArray[Any], str]:
    number = _odd_number(rng, array) if array.size else 0
    return np.full_like(array, number), f"all are {number}"


def _shape(rng: np.random.Generator, array: NDArray[Any]) -> tuple[NDArray[Any], str]:
    changes: tuple[Callable[[], NDArray[Any]], ...] = (
        lambda: array.reshape(-1),
        lambda: array[None],
        lambda: array[..., None],
        lambda: array.T.copy(),
        lambda: array[:0] if array.ndim else array,
        lambda: array[:-1] if array.ndim else array,
        lambda: array[..., :-1] if array.ndim else array,
        lambda: np.concatenate([array, array]) if array.ndim else array[None],
        lambda: np.concatenate([array, array[..., :1]], axis=-1) if array.ndim else array,
        lambda: array.reshape(-1)[:1].reshape(()) if array.size else array,
    )
    changed = changes[rng.integers(len(changes))]()
    return np.ascontiguousarray(changed).reshape(changed.shape), f"has shape {list(changed.shape)}"


def _type(rng: np.random.Generator, array: NDArray[Any]) -> tuple[NDArray[Any], str]:
    dtype = str(rng.choice(["f8", "f4", "f2", "?", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1"]))
    return array.astype(dtype), f"is of type {dtype}"


def _order(rng: np.random.Generator, array: NDArray[Any]) -> tuple[NDArray[Any], str]:
    return rng.permutation(array.reshape(-1)).reshape(array.shape), "is shuffled"


def _bits(rng: np.random.Generator, array: NDArray[Any]) -> tuple[NDArray[Any], str]:
    return np.frombuffer(rng.bytes(array.nbytes), array.dtype).reshape(
        array.shape
    ), "is random bytes"


def _gone(rng: np.random.Generator, array: NDArray[Any]) -> tuple[None, str]:
    return None, "is missing"


_ARRAY_CHANGES: tuple[Any, ...] = (
    _one,
    _one,
    _one,
    _all,
    _shape,
    _shape,
    _type,
    _order,
    _bits,
    _gone,
)


def altered_json(rng: np.random.Generator, content: Any) -> str:
    """Alter one value of a JSON object in place; what was done."""
    where: list[tuple[Any, Any, str]] = []

    def walk(value: Any, path: str) -> None:
        for key in list(value if isinstance(value, dict) else range(len(value))):
            where.append((value, key, f"{path}.{key}"))
            if isinstance(value[key], dict | list):
                walk(value[key], f"{path}.{key}")

    walk(content, "")
    home, key, path = where[rng.integers(len(where))]
    if rng.random() < 0.15:
        del home[key]
        return f"{path} is missing"
    home[key] = _ODD[rng.integers(len(_ODD))]
    return f"{path} is {home[key]!r}"
