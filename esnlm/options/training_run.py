"""A training run with checkpoints beside its model: started, resumed, stopped, finished."""

import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any

from esnlm.options.common import ChunkOptions, File, group
from esnlm.options.values import Minutes, integer
from esnlm.utils.messages import log, this_command

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


@dataclass
class TrainingRun:
    """A training run's folder of checkpoints, log and pace of saving.

    ``further``: more columns of the log; ``is_main``: whether this process, of several, writes
    files and messages. Raises FileExistsError where a checkpoint exists, and the options ask
    neither to resume from it nor to replace it.
    """

    out: Path
    options: PassOptions
    further: Sequence[str] = ()
    _: KW_ONLY
    overwrite: bool
    is_main: bool = True

    def __post_init__(self) -> None:
        """Check the log; without ``resume``, remove a checkpoint or raise FileExistsError."""
        from esnlm.storage.checkpoints import Checkpoints
        from esnlm.training.training_log import TrainingLog

        if self.options.resume and self.overwrite:
            raise ValueError("--resume continues a run, --overwrite replaces it: give one of them")
        self.log = TrainingLog(self.options.log, further=self.further, overwrite=self.overwrite)
        self.log.check()
        self.checkpoints = Checkpoints(Path(f"{self.out}.checkpoints"))
        if self.is_main and self.checkpoints.exists() and not self.options.resume:
            if not self.overwrite:
                raise FileExistsError(
                    f"{self.checkpoints.folder} holds a checkpoint of a run that did not end: pass"
                    " --resume to continue it, or --overwrite to start again"
                )
            self.checkpoints.remove()

    def run(self, trainer: Any, save: Callable[[], str]) -> int:
        """Train, then save the model; the exit status. ``save`` returns a summary of the model."""
        from esnlm.training.resumable_run import StoppedError

        resume, minutes = self.options.resume, self.options.checkpoint_every
        if resume and not self.checkpoints.exists() and self._is_done(trainer):
            if self.is_main:
                self.checkpoints.remove()  # what is left of them where their removal was killed
                print(f"{self.out} is whole: there is nothing to resume")
            return 0
        if resume and self.is_main and not self.checkpoints.exists():
            log.info("there is no checkpoint to resume from: training begins anew")
        with stopping() as stop:
            try:
                trainer.run(
                    self.checkpoints,
                    resume=resume,
                    save_every=600.0 if minutes is None else 60 * minutes,
                    log=self.log,
                    stop=stop,
                    verbose=True,
                )
            except StoppedError:
                if self.is_main:
                    log.info(
                        f"interrupted after step {trainer.step}: the same command with --resume"
                        f" continues from there: {this_command('--resume')}"
                    )
                return _INTERRUPTED
            if self.is_main:
                summary = save()
                self.checkpoints.remove()
        if self.is_main:
            score = trainer.last_score
            loss = "" if score is None else f", held-out loss {score:.4f} nats a token"
            print(f"{self.out}: {summary}{loss}")
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


def save_model(model: Any, folder: Path) -> None:
    """Save a trained model; where its folder cannot be written, such as on a full disk, elsewhere.

    That is among temporary files, and the OSError says where.
    """
    try:
        model.save(folder)
    except OSError as error:
        reason = error.strerror or str(error)
        with suppress(OSError):  # it is the same disk
            place = Path(tempfile.mkdtemp(prefix="esnlm-"), folder.name)
            model.save(place)
            reason += f"; the model is in {place}: move it from there"
        raise OSError(error.errno, reason, error.filename or str(folder)) from error


@contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """Whether the user asked to stop, by Ctrl-C or SIGTERM; asked again, the run ends at once.

    A terminal that is closed asks, too, unless its signal is ignored, as under ``nohup``.
    """
    signals: list[int] = []
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    # A signal that is ignored stays so, as Ctrl-C is by what a script runs in the background.
    unasked = (signal.SIG_IGN, None)  # None: of a program that embeds Python
    asking = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) not in unasked]
    if hangup is not None and signal.getsignal(hangup) == signal.SIG_DFL:
        asking.append(hangup)

    def ask(number: int, _: Any) -> None:
        if signals and number == hangup:  # the shell sends it, and the system
            return
        if signals:
            raise KeyboardInterrupt
        signals.append(number)
        log.info("stopping after this step, with a checkpoint; once more to stop at once")

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, ask) for number in asking}
    try:
        yield lambda: bool(signals)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
