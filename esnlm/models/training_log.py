"""Held-out losses along a training run, as a CSV that a resumed run continues."""

import csv
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from esnlm.storage.atomic import csv_aside, naming

COLUMNS = ("pass", "tokens", "share", "held_out_nll", "held_out_perplexity", "seconds")


class TrainingLog:
    """Rows of held-out losses, each on the disk before training continues; None keeps nothing.

    ``tokens`` were learned so far over all passes, ``share`` is their part of the whole run,
    ``held_out_nll`` is in nats a token, ``seconds`` are those of training, pauses left out. A run
    may have further columns.
    """

    def __init__(self, path: Path | None, further: Sequence[str] = ()) -> None:
        self.path = path
        self.columns = (*COLUMNS, *further)
        self.n_rows = 0

    def check(self) -> None:
        """Raise FileExistsError if the file is something else than a training log."""
        if self.path is None or not self.path.exists():
            return
        if not self.path.is_file():
            raise FileExistsError(f"cannot write the log {self.path}: it is no file")
        with open(self.path, encoding="utf-8", errors="replace") as file:
            first = file.readline().rstrip("\n")
        if first and first != ",".join(self.columns):
            raise FileExistsError(
                f"{self.path} exists and is not a log of training: choose another name"
            )

    def begin(self, n_rows: int) -> None:
        """Start with the first ``n_rows`` rows that are there, leaving out all others."""
        self.n_rows = n_rows
        if self.path is None:
            return
        self.check()
        kept: list[list[str]] = []
        if self.path.is_file():
            with open(self.path, newline="", encoding="utf-8") as file:
                rows = list(csv.reader(file))[1:]
            kept = [row for row in rows if len(row) == len(self.columns)][:n_rows]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with csv_aside(self.path, self.columns) as writer:
            writer.writerows(kept)

    def add(
        self,
        number: int,
        tokens: int,
        total: int,
        loss: float | None,
        seconds: float,
        further: Sequence[Any] = (),
    ) -> None:
        """Append the loss (nats a token) after ``tokens`` of ``total``, in pass ``number``.

        Where nothing was held out, ``loss`` is None; ``further`` has the values of those columns.
        """
        self.n_rows += 1
        if self.path is None:
            return
        scores = ["", ""] if loss is None else [loss, math.exp(min(loss, 700.0))]
        row = [number, tokens, round(tokens / total, 6), *scores, round(seconds, 1), *further]
        with naming(self.path), open(self.path, "a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerow(row)
            file.flush()
            os.fsync(file.fileno())
