"""``OUT.partial``: where a run writes, and what an interrupted one leaves for the next.

It holds ``plan.json``, what the shards are made from, ``trained.json``, a tokenizer trained for
them, ``progress.json``, where the run stood at its last checkpoint, and ``shards``, the folder to
be.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from esnlm.storage.atomic import ASIDE, sync_folder
from esnlm.storage.growing_file import read_checked_json, write_checked_json
from esnlm.text.shards import FILES, MANIFEST, Shards, ShardsError, read_manifest

PLAN, TRAINED, PROGRESS, SHARDS = "plan.json", "trained.json", "progress.json", "shards"
_OLD = "old"
_OURS = {PLAN, TRAINED, PROGRESS, SHARDS, _OLD}


def is_made(out: Path, plan: dict[str, Any], overwrite: bool) -> bool:
    """Whether the shards are there already, whole; raises where they may not be put.

    With ``overwrite`` other shards may be replaced, and damaged ones, but no other files.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    names = {path.name for path in out.iterdir()} if out.is_dir() else {out.name}
    if MANIFEST not in names or names - FILES:
        raise FileExistsError(
            f"{out} exists and holds other files than shards: choose another folder"
        )
    try:
        same = read_manifest(out)["made_from"] == plan
        if same:
            Shards(out)
    except ShardsError as error:
        if overwrite:
            return False
        raise FileExistsError(f"{error}, or pass --overwrite") from error
    if not same and not overwrite:
        raise FileExistsError(
            f"{out} exists, made from other text or with other settings: choose another folder, or"
            " pass --overwrite"
        )
    return same


def clear(folder: Path) -> None:
    """Remove what is left of a workplace, unless it holds anything else."""
    if folder.is_dir() and not _others_in(folder):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def workplace(out: Path, plan: dict[str, Any], overwrite: bool) -> Iterator[Path]:
    """``OUT.partial``, new or as an interrupted run of the same plan left it; ours alone."""
    folder = partial_folder(out)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        for path in _others_in(folder):
            raise FileExistsError(f"{path} is in the way: move it, or choose another folder")
        found = read_checked_json(folder / PLAN)
        if found != plan:
            if found is not None and not overwrite:
                raise ShardsError(
                    f"{folder} is what an interrupted run left, from other text or with other"
                    " settings: pass --overwrite to begin anew, or choose another folder"
                )
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            (folder / SHARDS).mkdir()
            write_checked_json(folder / PLAN, plan)
        yield folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder; another process that wants it is told so."""
    if os.name != "posix":
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ShardsError(f"{folder} is being written by another process: wait for it") from error
    finally:
        os.close(handle)


def _others_in(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.removesuffix(ASIDE) not in _OURS]


def put_in_place(made: Path, out: Path) -> None:
    """Give finished shards their name; what had it is moved beside them."""
    old = made.with_name(_OLD)
    if out.exists():
        os.replace(out, old)
    os.replace(made, out)
    sync_folder(out.parent)


def partial_folder(out: Path) -> Path:
    """Where the shards of a folder are made."""
    return out.with_name(out.name + ".partial")
