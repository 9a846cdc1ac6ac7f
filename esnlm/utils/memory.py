"""Memory that is free, checked before a computation begins, and memory that was used.

Windows has no module ``resource``, and only Linux has ``/proc``.
"""

import ctypes
import re
import sys
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

resource: Any
try:
    import resource
except ImportError:
    resource = None

_GIB = 1 << 30
_UNLIMITED = 1 << 62
# Control groups of Linux, and the file that names those of this process.
_GROUPS, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


class TooLargeError(MemoryError, ValueError):
    """A computation needs more memory than is free."""


def check_memory(what: str, n_bytes: float, advice: str) -> None:
    """Raise TooLargeError where ``what`` would take more bytes than this process can have."""
    free = available_memory()
    if n_bytes > free:
        raise TooLargeError(
            f"{what} would take at least {n_bytes / _GIB:,.1f} GiB of memory, and"
            f" {free / _GIB:,.1f} GiB are free: {advice}"
        )


def available_memory() -> int:
    """Return bytes that this process can allocate: the least of machine, cgroups, ``ulimit -v``.

    Where the system reports none of them, 2**62.
    """
    machine = _kilobytes("/proc/meminfo", "MemAvailable") + _kilobytes("/proc/meminfo", "SwapFree")
    limits = [machine] if machine else []
    limits += map(_left_in, group_folders("memory"))
    if resource is not None:
        address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
        if address_space != resource.RLIM_INFINITY:
            limits.append(address_space - _kilobytes("/proc/self/status", "VmSize"))
    return max(0, min(limits, default=_UNLIMITED))


def group_folders(controller: str) -> list[Path]:
    """Return the folders of this process's control groups, and of those that they are in.

    Containers and clusters limit processes there. Version 1 has a tree for each controller.
    """
    try:
        lines = _OWN_GROUPS.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = _GROUPS / controller if controllers else _GROUPS
        group = PurePosixPath(place.lstrip("/"))
        folders += [root / each for each in (group, *group.parents)]
    return folders


def group_file(folder: Path, name: str) -> str:
    """Return the text of a file of a control group, empty where there is none."""
    try:
        return (folder / name).read_text("ascii")
    except OSError:
        return ""


def _left_in(folder: Path) -> int:
    """Return the bytes that a control group may still use: pages of files make room for others."""
    for limit, usage, pages in (
        ("memory.max", "memory.current", r"^(?:in)?active_file (\d+)"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", r"^total_(?:in)?active_file (\d+)"),
    ):
        bounds = group_file(folder, limit).strip(), group_file(folder, usage).strip()
        if bounds[0].isdigit() and bounds[1].isdigit():  # not "max"
            cached = re.findall(pages, group_file(folder, "memory.stat"), re.MULTILINE)
            return int(bounds[0]) - int(bounds[1]) + sum(map(int, cached))
    return _UNLIMITED


def peak_memory() -> int:
    """Return bytes: the largest resident set of this process, 0 where the system does not say."""
    # The maximum of getrusage would include the parent's, whose memory a new process shares.
    if peak := _kilobytes("/proc/self/status", "VmHWM"):
        return peak
    if resource is not None:
        unit = 1 if sys.platform == "darwin" else 1024
        return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit
    return _peak_working_set()


def peak_rss_mib() -> int:
    """Return `peak_memory` in MiB."""
    return peak_memory() >> 20


def reset_peak_memory() -> None:
    """Let `peak_memory` count from now on, where the system knows how to."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", "ascii")


class _ProcessMemoryCounters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS of the Windows API."""

    _fields_ = (
        ("cb", ctypes.c_uint32),
        ("page_faults", ctypes.c_uint32),
        ("peak_working_set", ctypes.c_size_t),
        ("others", ctypes.c_size_t * 7),
    )


def _peak_working_set() -> int:
    """Return the peak of `GetProcessMemoryInfo`, 0 on a system without it."""
    kernel: Any = getattr(getattr(ctypes, "windll", None), "kernel32", None)
    if kernel is None:
        return 0
    counters = _ProcessMemoryCounters(cb=ctypes.sizeof(_ProcessMemoryCounters))
    process = ctypes.c_void_p(-1)  # this one
    kernel.K32GetProcessMemoryInfo(process, ctypes.byref(counters), counters.cb)
    return int(counters.peak_working_set)


def _kilobytes(path: str, name: str) -> int:
    """Return the bytes of a line ``name: N kB`` of a system file, 0 where there is none."""
    try:
        line = re.search(rf"^{name}:\s+(\d+) kB", Path(path).read_text("utf-8"), re.MULTILINE)
    except OSError:
        return 0
    return 1024 * int(line[1]) if line else 0
