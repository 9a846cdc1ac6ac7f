"""Checkpoints of a training run; one is always whole, whenever the run is killed."""

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esnlm.storage.atomic import folder_aside, remove
from esnlm.storage.json_files import FolderFormat
from esnlm.storage.model_folder import CONFIG, ModelFormatError, read_files, restoring, write_files
from esnlm.storage.tensor_file import Arrays

_ARRAYS = "training.safetensors"
_NAME = re.compile(r"step-(\d{10})")
# What a killed process leaves: half written, its lock, or half removed.
_LEFT = re.compile(r"\.(new|old|step)[.-].*")
_CHECKPOINT = FolderFormat(
    "esnlm-checkpoint", CONFIG, ModelFormatError, "resume it with the esnlm that wrote it"
)


class CheckpointError(ModelFormatError):
    """A run that its checkpoint does not fit."""


@dataclass(frozen=True)
class Checkpoint:
    """A run's state after ``step`` steps: facts that JSON can hold, and the readout's arrays."""

    step: int
    facts: dict[str, Any]
    arrays: Arrays
    place: Path


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints in a folder, each a folder ``step-…`` that appears whole or not at all.

    A new one is written aside, brought to the disk and renamed; only then the one before is
    removed. A process that is killed at any moment leaves a whole one, once there was a first.
    """

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))

    def exists(self) -> bool:
        """Return whether there is a checkpoint."""
        return bool(self._steps())

    def latest(self) -> Checkpoint | None:
        """Return the newest checkpoint, None where there is none.

        Raise ModelFormatError where it is altered.
        """
        steps = self._steps()
        if not steps:
            return None
        place = self._place(steps[-1])
        try:
            config, files, _ = read_files(place, _CHECKPOINT)
            with restoring(place, "checkpoint"):
                step, facts = int(config["step"]), dict(config["facts"])
                return Checkpoint(step, facts, files[_ARRAYS], place)
        except ModelFormatError as error:
            raise ModelFormatError(
                f"{error}; train without it: remove {self.folder}, or train with overwrite=True"
            ) from error

    def save(self, step: int, facts: Mapping[str, Any], arrays: Arrays) -> None:
        """Write a checkpoint, unless that step has one, then remove the ones before it.

        Raises OSError where it could not be written, for example on a full disk; the one before
        is untouched.
        """
        earlier = self._steps()
        if step in earlier:
            return
        self._discard([])
        config = {"step": step, "facts": dict(facts)}
        try:
            with folder_aside(self._place(step)) as aside:
                write_files(aside, _CHECKPOINT, config, {_ARRAYS: arrays}, {})
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                reason += ": free some"
            advice = (
                f"the one of step {earlier[-1]} is whole: train again with resume=True"
                if earlier
                else "there is none before it"
            )
            raise OSError(
                f"cannot write a checkpoint in {self.folder}: {reason}; {advice}"
            ) from error
        self._discard(earlier)

    def remove(self) -> None:
        """Remove every checkpoint, and the folder if nothing else is in it."""
        self._discard(self._steps())
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _place(self, step: int) -> Path:
        return self.folder / f"step-{step:010d}"

    def _steps(self) -> list[int]:
        """Return steps of the whole checkpoints, ascending."""
        if not self.folder.is_dir():
            return []
        names = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(name[1]) for name in names if name)

    def _discard(self, steps: list[int]) -> None:
        """Remove leftovers and checkpoints, each out of sight before it is no longer whole."""
        for step in steps:
            self._place(step).rename(self.folder / f".old.{step}")
        for path in list(self.folder.iterdir()) if self.folder.is_dir() else []:
            if _LEFT.fullmatch(path.name):
                remove(path)
