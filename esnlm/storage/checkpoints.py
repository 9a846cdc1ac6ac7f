"""Checkpoints of a training run: a folder of which one is always whole."""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esnlm.storage.atomic import sync_folder
from esnlm.storage.model_folder import Arrays, ModelFormatError, read_files, write_files

FORMAT = "esnlm-checkpoint"
VERSION = 1
_ARRAYS = "training.safetensors"
_NAME = re.compile(r"step-(\d{10})")


class CheckpointError(ValueError):
    """A run that cannot be resumed from what lies in the folder."""


@dataclass(frozen=True)
class Checkpoint:
    """What a run goes on from: the steps made, facts about them, and the readout's arrays."""

    step: int
    facts: dict[str, Any]
    arrays: Arrays


class Checkpoints:
    """The checkpoints in a folder, each a folder ``step-…`` that appears whole or not at all.

    A new one is written aside, brought to the disk and renamed; only then the one before goes. A
    process that is killed at any moment leaves a whole one, once there was a first.

    Examples
    --------
    >>> import numpy as np
    >>> folder = Checkpoints(Path(tempfile.mkdtemp()) / "run")
    >>> folder.save(1, {"seen": 5}, {"sum": np.ones(2)})
    >>> folder.save(2, {"seen": 9}, {"sum": np.zeros(2)})
    >>> found = folder.latest()
    >>> found.step, found.facts, found.arrays
    (2, {'seen': 9}, {'sum': array([0., 0.])})
    >>> folder.remove()
    >>> folder.latest() is None
    True
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def exists(self) -> bool:
        """Whether there is a checkpoint."""
        return bool(self._steps())

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint; None where there is none.

        Raises
        ------
        ModelFormatError
            It is truncated or altered.
        """
        steps = self._steps()
        if not steps:
            return None
        place = self.folder / _name(steps[-1])
        try:
            config, files, _ = read_files(place, FORMAT, VERSION, "checkpoint")
            return Checkpoint(int(config["step"]), config["facts"], files[_ARRAYS])
        except KeyError as error:
            raise ModelFormatError(f"{place} is not a whole checkpoint: {error}") from error
        except ModelFormatError as error:
            raise ModelFormatError(
                f"{error}; train without it: remove {self.folder}, or train with --overwrite"
            ) from error

    def save(self, step: int, facts: Mapping[str, Any], arrays: Arrays) -> None:
        """Write a checkpoint, unless that step has one, then remove the ones before it.

        Raises
        ------
        OSError
            It could not be written, for example on a full disk; the one before is untouched.
        """
        earlier = self._steps()
        if step in earlier:
            return
        config = {"format": FORMAT, "version": VERSION, "step": step, "facts": dict(facts)}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
            aside = Path(tempfile.mkdtemp(prefix=".new.", dir=self.folder))
            try:
                write_files(aside, config, {_ARRAYS: arrays}, {})
                os.replace(aside, self.folder / _name(step))
                sync_folder(self.folder)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        except OSError as error:
            raise _untouched(error, self.folder, earlier) from error
        for old in earlier:
            self._discard(old)

    def remove(self) -> None:
        """Remove every checkpoint, and the folder if nothing else is in it."""
        for step in self._steps():
            self._discard(step)
        self._sweep()
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _steps(self) -> list[int]:
        """Steps of the whole checkpoints, ascending."""
        if not self.folder.is_dir():
            return []
        names = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(name[1]) for name in names if name)

    def _sweep(self) -> None:
        """Remove what a killed process left half written."""
        if self.folder.is_dir():
            for pattern in (".new.*", ".old.*"):
                for path in self.folder.glob(pattern):
                    shutil.rmtree(path, ignore_errors=True)

    def _discard(self, step: int) -> None:
        """Remove a checkpoint, which is out of sight before it is no longer whole."""
        away = self.folder / f".old.{step}"
        os.replace(self.folder / _name(step), away)
        shutil.rmtree(away, ignore_errors=True)


def _name(step: int) -> str:
    return f"step-{step:010d}"


def _untouched(error: OSError, folder: Path, earlier: list[int]) -> OSError:
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason += ": free some"
    left = "there is none before it"
    if earlier:
        left = f"the one of step {earlier[-1]} is whole: run the command again with --resume"
    return OSError(f"cannot write a checkpoint in {folder}: {reason}; {left}")
