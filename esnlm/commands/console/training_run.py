"""A training run with checkpoints beside its model: started, resumed, stopped, finished."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from esnlm.commands.options.common import ChunkOptions, File, group
from esnlm.commands.options.values import Minutes, integer
from esnlm.utils.messages import log

if TYPE_CHECKING:
    from esnlm.models.training_log import TrainingLog
    from esnlm.storage.checkpoints import Checkpoints

_INTERRUPTED = 130


@group(
    "Training in passes",
    "Shards are read in passes, a chunk at a time, and text too where one of these is given."
    " Interrupted runs resume from a checkpoint beside MODEL, and end in the same model.",
)
class PassOptions(ChunkOptions):
    """Checkpoints, held-out losses and chunks of a training run."""

    resume: bool = False
    """Resume from the last checkpoint, if there is one."""
    checkpoint_every: Minutes | None = None
    """Time between checkpoints; 0: after every chunk (default: 10)."""
    log: File | None = None
    """File for the held-out losses along the way."""
    score_every: Annotated[int | None, integer("TOKENS")] = None
    """Between held-out losses; 0: after passes (default: a tenth of a pass, or a pass)."""


@dataclass(frozen=True)
class Running:
    """A training run's folder of checkpoints, log and pace of saving.

    ``speaks``: whether this process, of several, writes files and messages.
    """

    out: Path
    checkpoints: "Checkpoints"
    log: "TrainingLog"
    save_every: float
    resume: bool
    speaks: bool = True

    @classmethod
    def prepared(
        cls,
        out: Path,
        options: PassOptions,
        further: Sequence[str] = (),
        *,
        overwrite: bool,
        speaks: bool = True,
    ) -> Self:
        """The run that the options ask for, refused before the work is done.

        Raises
        ------
        FileExistsError
            A checkpoint exists, and the options ask neither to resume from it nor to replace it.
        """
        from esnlm.models.training_log import TrainingLog
        from esnlm.storage.checkpoints import Checkpoints

        minutes = 10.0 if options.checkpoint_every is None else options.checkpoint_every
        losses = TrainingLog(options.log, further, overwrite=overwrite)
        losses.check()
        checkpoints = Checkpoints(Path(f"{out}.checkpoints"))
        if speaks and checkpoints.exists() and not options.resume:
            if not overwrite:
                raise FileExistsError(
                    f"{checkpoints.folder} holds a checkpoint of a run that did not end: pass"
                    " --resume to continue it, or --overwrite to start again"
                )
            checkpoints.remove()
        return cls(out, checkpoints, losses, 60 * minutes, options.resume, speaks)

    def run(self, trainer: Any, save: Callable[[], str]) -> int:
        """Train, then save the model; the exit status. ``save`` returns a summary of the model."""
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
                    log.info(
                        f"interrupted after step {trainer.step}: the same command with --resume"
                        " continues from there"
                    )
                return _INTERRUPTED
            if self.speaks:
                summary = save()
                self.checkpoints.remove()
        if self.speaks:
            score = trainer.last_score
            ended = "" if score is None else f", held-out loss {score:.4f} nats a token"
            print(f"{self.out}: {summary}{ended}")
        return 0

    def _is_done(self, trainer: Any) -> bool:
        """Whether the run that is to be resumed has saved its model already."""
        from esnlm.storage.model_folder import read_config

        if not (self.out / "config.json").is_file():
            return False
        if read_config(self.out).get("run") != trainer.digest():
            raise FileExistsError(
                f"{self.out} is a model of another run, and there is no checkpoint to resume from:"
                " choose another folder, or pass --overwrite"
            )
        return True
