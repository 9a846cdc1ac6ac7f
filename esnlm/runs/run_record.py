"""The record of a run beside its model: command, commit, machine, seconds and memory by phase."""

import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from esnlm.runs.provenance import code_version
from esnlm.storage.atomic import write_whole
from esnlm.storage.json_files import read_bytes, sealed, unsealed
from esnlm.storage.model_folder import CONFIG, ModelFormatError
from esnlm.storage.tensor_file import file_digest
from esnlm.text.corpus import TextCorpus
from esnlm.text.shards import MANIFEST, TOKENS, Shards
from esnlm.utils.memory import peak_rss_mib
from esnlm.utils.messages import this_command
from esnlm.utils.threads import available_cores

#: What follows the name of a model in that of its record.
RECORD = ".run.json"
_FORMAT = "esnlm-run"


class RunRecord:
    """Phases of a run as they end, and facts about it.

    >>> record = RunRecord(seed=0)
    >>> with record.phase("fit"):
    ...     pass
    >>> [each["phase"] for each in record.content["phases"]]
    ['fit']
    """

    def __init__(self, **facts: Any) -> None:
        """Record command, commit, machine, Python version and ``facts``."""
        self.content: dict[str, Any] = {
            "format": _FORMAT,
            "command": this_command(),
            "commit": code_version(),
            "machine": machine(),
            "python": platform.python_version(),
            **facts,
            "phases": [],
        }

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the block: seconds, processor seconds, and the peak of memory until its end."""
        began, cpu_began = time.perf_counter(), time.process_time()
        yield
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
        times = {"seconds": round(seconds, 3), "cpu_seconds": round(cpu_seconds, 3)}
        phases = self.content["phases"]
        phases.append({"phase": name, **times, "peak_rss_mib": peak_rss_mib()})

    def add(self, facts: Mapping[str, Any]) -> None:
        """Add facts that are known only later."""
        self.content |= facts

    def save(self, model: Path) -> None:
        """Write the record beside the folder of the model that the run made."""
        self.add({"model": file_digest(model / CONFIG)})
        write_whole(record_of(model), sealed(self.content))


def record_of(model: Path) -> Path:
    """Where the record of a model's run lies."""
    place = model if model.name else model.resolve()  # of "." its folder has the name
    return place.parent / (place.name + RECORD)


def check_record(model: Path) -> None:
    """Raise FileExistsError where another file has the name of a model's record."""
    path = record_of(model)
    if path.exists() and unsealed(path) is None:
        raise FileExistsError(f"{path} exists and is no record of a run: choose another folder")


def read_record(path: Path) -> dict[str, Any]:
    """Return what `RunRecord.save` wrote; ModelFormatError where it was cut or altered."""
    content = unsealed(path)
    if not _is_record(content):
        read_bytes(path)
        raise ModelFormatError(f"{path} is no whole record of a run: it was cut or altered")
    return content


def _is_record(content: Any) -> bool:
    """Return whether a JSON value has the parts of a record, each of its type."""
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        return False
    data, held_out = content.get("data", {}), content.get("held_out", {})
    if not isinstance(data, dict) or not isinstance(held_out, dict):
        return False
    tables = [content.get("phases", []), *data.values()]
    is_table = (isinstance(t, list) and all(isinstance(row, dict) for row in t) for t in tables)
    return all(is_table) and all(isinstance(x, int | float | None) for x in held_out.values())


def record_beside(model: Path) -> dict[str, Any] | None:
    """Return the record of the model that lies in a folder now, not of one before it, or None."""
    if not model.is_dir():  # n-grams in a file, which nobody has trained here
        return None
    path = record_of(model)
    record = read_record(path) if path.is_file() else {}
    return record if record.get("model") == file_digest(model / CONFIG) else None


def data_files(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Name, size and SHA-256 of each text file; of shards, of their tokens."""
    rows = []
    for path in paths:
        if (Path(path) / MANIFEST).is_file():
            about = Shards(path, verify=False).manifest["files"][TOKENS]
            rows.append({"file": f"{Path(path).name}/{TOKENS}", **about})
            continue
        for file, name in TextCorpus(path).files():
            size = file.stat().st_size
            rows.append({"file": name, "bytes": size, "sha256": file_digest(file)})
    return rows


def machine() -> str:
    """Processor model, cores that this process may use, and memory."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    cores = available_cores()
    try:
        gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):
        return f"{model}, {cores} cores"
    return f"{model}, {cores} cores, {gib:.0f} GiB"
