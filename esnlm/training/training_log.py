"""Held-out losses along a training run, as a CSV that a resumed run continues."""

import csv
import hashlib
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from esnlm.storage.atomic import naming
from esnlm.storage.results import csv_aside, fits
from esnlm.utils.messages import log

COLUMNS = ("pass", "tokens", "share", "held_out_nll", "held_out_perplexity", "seconds")


class TrainingLog:
    """Rows of held-out losses, each on the disk before training continues; None keeps nothing.

    ``tokens`` were learned so far over all passes, ``share`` is their part of the whole run,
    ``held_out_nll`` is in nats a token, ``seconds`` are those of training, pauses left out. A run
    may have further columns. Rows of earlier runs stay, unless ``overwrite``.
    """

    def __init__(
        self, path: str | Path | None, *, further: Sequence[str] = (), overwrite: bool = False
    ) -> None:
        self.path = None if path is None else Path(path)
        self.columns = (*COLUMNS, *further)
        self.overwrite = overwrite
        #: Rows so far, those of earlier runs among them.
        self.n_rows = 0
        self._digest = hashlib.sha256()

    def digest(self) -> str | None:
        """Return the SHA-256 of the rows so far, where they are kept."""
        return None if self.path is None else self._digest.hexdigest()

    def check(self) -> None:
        """Raise FileExistsError if the file is something else than a training log."""
        if self.path is None:
            return
        if self.path.exists() and not self.path.is_file():
            raise FileExistsError(f"cannot write the log {self.path}: it is no file")
        if not fits(self.path, self.columns):
            raise FileExistsError(
                f"{self.path} exists and is not a log of training: choose another name"
            )

    def begin(self) -> None:
        """Start after the existing rows, or with none."""
        rows = self._found()
        if rows:
            log.info(f"{self.path} is there: rows are added to it")
        self._write(rows)

    def resume(self, n_rows: int, *, sha256: str | None = None) -> None:
        """Continue after the first ``n_rows`` existing rows, which have this digest.

        Raises ValueError where they were altered; none at all are no mistake.
        """
        if self.path is None:
            self.n_rows = n_rows
            return
        self._write(self._found()[:n_rows])
        if self.n_rows and sha256 not in (None, self.digest()):
            raise ValueError(
                f"{self.path} was altered since the checkpoint was saved: move it, or train with"
                " overwrite=True"
            )

    def add(
        self,
        number: int,
        tokens: int,
        total: int,
        loss: float | None,
        seconds: float,
        *,
        further: Sequence[Any] = (),
    ) -> None:
        """Append the loss (nats a token) after ``tokens`` of ``total``, in pass ``number``.

        Where nothing was held out, ``loss`` is None; ``further`` has the values of those columns.
        """
        scores = ["", ""] if loss is None else [loss, math.exp(min(loss, 700.0))]
        row = [number, tokens, round(tokens / total, 6), *scores, round(seconds, 1), *further]
        self._count([row])
        if self.path is None:
            return
        with naming(self.path), open(self.path, "a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([row] if file.tell() else [self.columns, row])  # it was moved
            file.flush()
            os.fsync(file.fileno())

    def _found(self) -> list[list[str]]:
        """Whole rows of the file, if there is one."""
        self.check()
        if self.path is None or not self.path.is_file() or self.overwrite:
            return []
        with naming(self.path), open(self.path, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))[1:]
        return [row for row in rows if len(row) == len(self.columns)]

    def _count(self, rows: Sequence[Sequence[Any]]) -> None:
        for row in rows:
            self.n_rows += 1
            self._digest.update(",".join(map(str, row)).encode() + b"\n")

    def _write(self, rows: list[list[str]]) -> None:
        self.n_rows, self._digest = 0, hashlib.sha256()
        self._count(rows)
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with csv_aside(self.path, self.columns) as writer:
            writer.writerows(rows)


def mean_training_loss(path: Path, n_rows: int) -> float:
    """Return the mean of a log's ``training_nll`` over the tokens of the run, as they were learned.

    A row has the mean since the row before it. ValueError unless all ``n_rows`` are there.
    """
    with naming(path), open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if len(rows) != n_rows:
        raise ValueError(
            f"{path} has {len(rows)} of the run's {n_rows} rows: put back the log that was moved"
        )
    tokens = np.diff([int(row["tokens"]) for row in rows], prepend=0)
    return float(np.average([float(row["training_nll"]) for row in rows], weights=tokens))
