"""A training run with checkpoints beside its model: begun, gone on with, stopped, ended."""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from esnlm.commands.console.messages import note

if TYPE_CHECKING:
    from esnlm.models.training_log import TrainingLog
    from esnlm.storage.checkpoints import Checkpoints

_INTERRUPTED = 130
_MINUTES = 10.0


@dataclass(frozen=True)
class Running:
    """Where a run keeps its checkpoints and its log.

    ``speaks``: whether this process, of several, writes and tells.
    """

    out: Path
    checkpoints: "Checkpoints"
    log: "TrainingLog"
    save_every: float
    resume: bool
    speaks: bool = True

    @classmethod
    def prepared(
        cls, args: argparse.Namespace, further: Sequence[str] = (), *, speaks: bool = True
    ) -> Self:
        """What the options ask for, refused before the work is done.

        Raises
        ------
        FileExistsError
            A checkpoint is there that is neither to be gone on from nor to be replaced.
        """
        from esnlm.models.training_log import TrainingLog
        from esnlm.storage.checkpoints import Checkpoints

        every = _MINUTES if args.checkpoint_every is None else args.checkpoint_every
        if not (math.isfinite(every) and every >= 0):
            raise ValueError(f"--checkpoint-every must be at least 0, got {every}")
        log = TrainingLog(args.log, further)
        log.check()
        checkpoints = Checkpoints(Path(f"{args.out}.checkpoints"))
        if speaks and checkpoints.exists() and not args.resume:
            if not args.overwrite:
                raise FileExistsError(
                    f"{checkpoints.folder} holds a checkpoint of a run that did not end: pass"
                    " --resume to go on, or --overwrite to start again"
                )
            checkpoints.remove()
        return cls(args.out, checkpoints, log, 60 * every, args.resume, speaks)

    def run(self, trainer: Any, save: Callable[[], str]) -> int:
        """Train, then save the model; the exit status. ``save`` tells what it saved."""
        from esnlm.commands.console.signals import stopping
        from esnlm.models.resumable_run import StoppedError

        if self.resume and not self.checkpoints.exists() and self._is_done(trainer):
            if self.speaks:
                self.checkpoints.remove()  # what is left of them where their removal was killed
                print(f"{self.out} is whole: there is nothing to resume")
            return 0
        with stopping() as stop:
            try:
                trainer.run(
                    self.checkpoints,
                    resume=self.resume,
                    save_every=self.save_every,
                    log=self.log,
                    stop=stop,
                    verbose=True,
                )
            except StoppedError:
                if self.speaks:
                    note(
                        f"interrupted after step {trainer.step}: the same command with --resume"
                        " goes on from there"
                    )
                return _INTERRUPTED
            if self.speaks:
                told = save()
                self.checkpoints.remove()
        if self.speaks:
            score = trainer.last_score
            ended = "" if score is None else f", held-out loss {score:.4f} nats a token"
            print(f"{self.out}: {told}{ended}")
        return 0

    def _is_done(self, trainer: Any) -> bool:
        """Whether the run that is to be resumed has left its model already."""
        from esnlm.storage.model_folder import read_config

        if not (self.out / "config.json").is_file():
            return False
        if read_config(self.out).get("run") != trainer.digest():
            raise FileExistsError(
                f"{self.out} is a model of another run, and there is no checkpoint to resume from:"
                " choose another folder, or pass --overwrite"
            )
        return True
