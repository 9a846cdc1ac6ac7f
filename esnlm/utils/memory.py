"""Check that a computation fits in memory before it begins."""

import os
import re
from pathlib import Path

_GIB = 1 << 30


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
    """Return bytes that this process can allocate: the least of machine, cgroup, ``ulimit -v``.

    Where the system reports none of them, 2**62.
    """
    machine = _kilobytes("/proc/meminfo", "MemAvailable") + _kilobytes("/proc/meminfo", "SwapFree")
    limits = [machine] if machine else []
    try:
        limit, usage = (
            int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current")
        )
        limits.append(limit - usage)
    except (OSError, ValueError):  # no group, or "max"
        pass
    if os.name == "posix":
        import resource

        address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
        if address_space != resource.RLIM_INFINITY:
            limits.append(address_space - _kilobytes("/proc/self/status", "VmSize"))
    return max(0, min(limits, default=1 << 62))


def _kilobytes(path: str, name: str) -> int:
    """Return the bytes of a line ``name: N kB`` of a system file, 0 where there is none."""
    try:
        line = re.search(rf"^{name}:\s+(\d+) kB", Path(path).read_text(), re.MULTILINE)
    except OSError:
        return 0
    return 1024 * int(line[1]) if line else 0
