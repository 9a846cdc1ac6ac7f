"""Training runs that checkpoint, log and stop when asked, and resume to the last bit."""

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from esnlm.storage.checkpoints import Checkpoint, CheckpointError, Checkpoints
from esnlm.storage.model_folder import MISFITS, restoring
from esnlm.text.corpus import TokenStream
from esnlm.training.training_log import TrainingLog
from esnlm.utils.arrays import Array
from esnlm.utils.messages import progress_bar


class StoppedError(Exception):
    """A run was asked to stop, and did at the end of a step; a checkpoint was saved if any are."""


class ResumableRun(ABC):
    """Base class of training runs: checkpoints between steps, the log and the progress bar.

    A subclass counts ``step`` and ``tokens``, the predicted tokens learned over all passes.
    """

    #: Whether this process writes log and checkpoints and shows the progress.
    is_first: bool = True

    step = 0
    tokens = 0
    #: Newest held-out loss, in nats a token.
    last_score: float | None = None
    _seconds = 0.0
    _clock: float | None = None

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All that the result depends on, as JSON can hold it."""

    @abstractmethod
    def _begin(self, checkpoint: Checkpoint | None) -> int:
        """Begin anew or from a checkpoint; the tokens of the whole run."""

    @abstractmethod
    def _steps(self) -> Iterator[None]:
        """Make the steps that are left, yielding where a checkpoint may be saved."""

    @abstractmethod
    def _snapshot(self) -> tuple[dict[str, Any], Mapping[str, Array]]:
        """Facts and arrays for `_begin`, beside settings, step, tokens and seconds."""

    @abstractmethod
    def _finish(self) -> Any:
        """Work after the last step; the result of `run`."""

    def run(
        self,
        checkpoints: Checkpoints | None = None,
        *,
        resume: bool = False,
        save_every: float = 600.0,
        log: TrainingLog | None = None,
        stop: Callable[[], bool] = lambda: False,
        verbose: bool = False,
        name: str = "",
    ) -> Any:
        """Train to the end; the trained model.

        A checkpoint is saved every ``save_every`` seconds, for 0 after each step. ``resume``
        continues from the newest one, if there is one: of the same settings and corpus, otherwise
        CheckpointError is raised. ``log`` gets the held-out scores. ``stop`` is called after each
        step; True saves a last checkpoint and raises `StoppedError`. ``verbose`` shows progress on
        standard error, under ``name``.
        """
        for what, value, kind in (
            ("checkpoints", checkpoints, Checkpoints),
            ("log", log, TrainingLog),
        ):
            if not isinstance(value, kind | None):
                raise ValueError(f"{what} must be {kind.__name__}(path) or None, got {value!r}")
        self._checkpoints, self._save_every, self._stop = checkpoints, save_every, stop
        self._log = log or TrainingLog(None)
        checkpoint = checkpoints.latest() if checkpoints is not None and resume else None
        if checkpoint is not None:
            with restoring(checkpoint.place, "checkpoint"):
                saved = dict(checkpoint.facts["settings"])
                self.step, self.tokens = checkpoint.step, int(checkpoint.facts["tokens"])
                self._seconds = float(checkpoint.facts["seconds"])
                for setting, now in self.settings.items():
                    if saved.get(setting) != now:
                        what = _difference(setting, saved.get(setting), now)
                        raise CheckpointError(
                            f"cannot resume: {what} when the run began: give the same, or remove"
                            f" {checkpoint.place.parent} to start again"
                        )
        visible = verbose and self.is_first
        self._name = name
        bar = progress_bar(visible, unit="tok", unit_scale=True, desc=name or None, leave=not name)
        # What fails without a message of its own fails for what the checkpoint holds.
        doubted = (
            nullcontext()
            if checkpoint is None
            else restoring(checkpoint.place, "checkpoint", MISFITS)
        )
        with bar as self._bar, doubted:
            self._saved_at = self._clock = time.monotonic()
            with nullcontext() if checkpoint is None else restoring(checkpoint.place, "checkpoint"):
                self._n_tokens = self._begin(checkpoint)
            bar.reset(self._n_tokens)
            if self.is_first:
                if checkpoint is None:
                    self._log.begin()
                else:
                    self._log.resume(
                        checkpoint.facts["log_rows"], sha256=checkpoint.facts.get("log_sha256")
                    )
            bar.update(self.tokens)
            for _ in self._steps():
                self._pause()
            result = self._finish()
        self._seconds, self._clock = self.seconds, None
        return result

    def _say(self, phase: str) -> None:
        """Name the phase of the run on its progress bar."""
        self._bar.set_description_str(": ".join(filter(None, (self._name, phase))))

    def digest(self) -> str:
        """Return the SHA-256 of the settings, by which the run is known."""
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()

    @property
    def seconds(self) -> float:
        """Seconds of training so far, those before an interruption among them."""
        running = 0.0 if self._clock is None else time.monotonic() - self._clock
        return self._seconds + running

    @contextmanager
    def _untimed(self) -> Iterator[None]:
        """Leave the block out of `seconds`."""
        self._seconds, self._clock = self.seconds, None
        yield
        self._clock = time.monotonic()

    def _record(self, number: int, further: tuple[Any, ...] = ()) -> None:
        """Write `last_score`, reached in pass ``number``, to the log and the progress bar."""
        score, seconds = self.last_score, self.seconds
        self._log.add(number, self.tokens, self._n_tokens, score, seconds, further=further)
        if self.last_score is not None:
            self._bar.set_postfix_str(f"held-out {self.last_score:.4f} nats")

    def _agreed(self, wishes: list[bool]) -> list[bool]:
        """Wishes to stop and to save, of any process."""
        return wishes

    def _pause(self) -> None:
        """Between two steps: save a checkpoint when it is time, and stop when asked to."""
        due = self.is_first and time.monotonic() - self._saved_at >= self._save_every
        stop, save = self._agreed([self._stop(), due])
        if self._checkpoints is not None and (stop or save):
            facts, arrays = self._snapshot()
            facts |= {
                "settings": self.settings,
                "tokens": self.tokens,
                "seconds": self.seconds,
                "log_rows": self._log.n_rows,
                "log_sha256": self._log.digest(),
            }
            if self.is_first:
                self._checkpoints.save(self.step, facts, dict(arrays))
            self._saved_at = time.monotonic()
        if stop:
            raise StoppedError


def _difference(name: str, then: Any, now: Any) -> str:
    """Name the first setting that differs from the checkpoint.

    >>> _difference("plan", {"random_state": 1}, {"random_state": 2})
    'random_state of the plan is 2, but was 1'
    """
    if isinstance(then, dict) and isinstance(now, dict) and then.get("class") == now.get("class"):
        then, now = (dict(value.get("params", value)) for value in (then, now))
        for key, value in now.items():
            if then.get(key) != value:
                return _difference(f"{key} of the {name}", then.get(key), value)
    if name in ("corpus", "held-out text", "tokenizer"):
        return f"the {name} is another one than"
    if name == "first weights":
        return "the first weights are others than"
    return f"{name} is {now!r}, but was {then!r}"


def stream_digest(stream: TokenStream) -> str:
    """SHA-256 of tokens and starts."""
    digest = hashlib.sha256()
    for array in (stream.tokens, stream.starts):
        digest.update(b"-" if array is None else np.ascontiguousarray(array).data)
    return digest.hexdigest()
