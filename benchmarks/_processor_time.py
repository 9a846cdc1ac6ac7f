"""Run a command and write what it took as JSON: processor and wall seconds, peak memory, status.

    python benchmarks/_processor_time.py SECONDS OUTPUT COMMAND...

Prints ``{"status", "seconds", "wall", "peak_mib"}`` on standard output; the command's own output
goes to the file OUTPUT. Its processor time is limited to SECONDS (0: not): past them the system
ends it by SIGXCPU. Interrupts are for the command to heed, whose end ends this process too. This
process imports next to nothing, because the peak memory that the system counts for a new process
begins with that of the one that starts it.
"""

import json
import os
import resource
import signal
import sys
import time

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


def main() -> None:
    limit, output, *command = sys.argv[1:]
    for each in _INTERRUPTS:
        signal.signal(each, signal.SIG_IGN)
    start = time.perf_counter()
    process = os.fork()
    if process == 0:
        _become(command, output, int(limit))
    _, status, used = os.wait4(process, 0)
    per_mib = 1 << 20 if sys.platform == "darwin" else 1 << 10
    found = {
        "status": os.waitstatus_to_exitcode(status),
        "seconds": used.ru_utime + used.ru_stime,
        "wall": time.perf_counter() - start,
        "peak_mib": used.ru_maxrss // per_mib,
    }
    print(json.dumps(found))


def _become(command: list[str], output: str, limit: int) -> None:
    """Replace this process by the command."""
    try:
        for each in _INTERRUPTS:
            signal.signal(each, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limit:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


if __name__ == "__main__":
    main()
