"""What Windows refuses or lacks, taken away from this Python: imported as ``sitecustomize``.

The modules and calls of POSIX are missing, text files are cp1252 with CRLF unless an encoding and
a line end are named, an open file can neither be removed nor replaced, a folder is not replaced,
and names that Windows refuses are refused. The standard library itself still has all of it.
"""

import builtins
import errno
import io
import os
import re
import signal
import sys

STDLIB = os.path.dirname(os.__file__) + os.sep
MODULES = {"fcntl", "grp", "pwd", "resource", "syslog", "termios"}
CALLS = """
    fork getloadavg getpgid killpg mkfifo nice pread pwrite sched_getaffinity sched_setaffinity
    setsid statvfs
"""
SIGNALS = "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGUSR1 SIGUSR2 pthread_sigmask"
REFUSED = re.compile(
    r'[<>:"|?*\\\x00-\x1f]|[ .]$|^(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?$', re.IGNORECASE
)
SYSTEM = ("/proc", "/sys", "/dev")

import_, open_, listdir = builtins.__import__, io.open, os.listdir
readlink, fspath = os.readlink, os.fspath


def is_ours():
    """Whether code outside the standard library and of no other package calls."""
    frame = sys._getframe(2)
    while frame and frame.f_code.co_filename.startswith((__file__, STDLIB, "<frozen")):
        if "-packages" in frame.f_code.co_filename:
            break
        frame = frame.f_back
    name = frame.f_code.co_filename if frame else ""
    return "-packages" not in name or "/esnlm/" in name


def without_posix(name, globals=None, locals=None, fromlist=(), level=0):
    caller = (globals or {}).get("__file__") or ""
    if name in MODULES and (not caller.startswith(STDLIB) or "-packages" in caller):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return import_(name, globals, locals, fromlist, level)


def checked(path, *, is_new=True):
    """Refuse a path that Windows has not, or of which a new part has a name that it refuses."""
    text = os.fsdecode(path)
    if text.startswith(SYSTEM) and text != os.devnull:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), text)
    name = os.path.basename(os.path.abspath(text))
    if is_new and text != os.devnull and REFUSED.search(name):
        raise OSError(errno.EINVAL, "Windows refuses this name", text)


def open_files():
    return {readlink(f"/proc/self/fd/{n}") for n in listdir("/proc/self/fd") if is_link(n)}


def is_link(number):
    return os.path.lexists(f"/proc/self/fd/{number}")


def check_closed(path):
    """Refuse a file that this process has open, and a folder with one in it."""
    place = os.path.realpath(path)
    if any(file == place or file.startswith(place + os.sep) for file in open_files()):
        raise PermissionError(errno.EACCES, "it is open", os.fsdecode(path))


def windows_open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, **rest):
    ours = is_ours()
    if ours and not isinstance(file, int):
        checked(file, is_new="r" not in mode)
    if ours and "b" not in mode:
        encoding = encoding if encoding not in (None, "locale") else "cp1252"
        newline = "\r\n" if newline is None and "r" not in mode else newline
    return open_(file, mode, buffering, encoding, errors, newline, **rest)


def guarded(name, replaces):
    call = getattr(os, name)

    def guard(path, *more, **options):
        if ours := is_ours():
            checked(path, is_new=name in ("mkdir", "open"))
            if name == "open" and os.path.isdir(path):
                raise PermissionError(errno.EACCES, "it is a folder", os.fsdecode(path))
            if name in ("replace", "rename", "unlink", "remove", "rmdir"):
                check_closed(path)
        if ours and replaces:
            target = more[0]
            checked(target)
            if os.path.isdir(target) or (name == "rename" and os.path.exists(target)):
                raise PermissionError(errno.EACCES, "Access is denied", fspath(path), 5, target)
            if os.path.exists(target):
                check_closed(target)
        return call(path, *more, **options)

    setattr(os, name, guard)


def imitate():
    for module, names in ((os, CALLS), (signal, SIGNALS)):
        for name in names.split():
            delattr(module, name)
    builtins.__import__ = without_posix
    builtins.open = io.open = windows_open
    for name in ("replace", "rename"):
        guarded(name, replaces=True)
    for name in ("mkdir", "open", "remove", "rmdir", "unlink"):
        guarded(name, replaces=False)
    os.supports_dir_fd.clear()
    for stream in (sys.stdout, sys.stderr):
        if not stream.isatty():
            stream.reconfigure(encoding="cp1252")


if __name__ == "sitecustomize":
    imitate()
