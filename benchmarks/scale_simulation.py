"""Many machines on large corpora, simulated from what parts of a pass cost on this one.

    python benchmarks/scale_simulation.py SHARDS

Measures parts of two passes over the shards on one core, the bytes of their sums and what the
scheduler takes for a task; `_scale_simulation` computes from that the hours of more machines on
10^7, 10^9 and 10^11 words. Rows and a plot are in ``reports/scale``.
"""

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any

import cloudpickle
import numpy as np
from _report import ROOT, options, report, row, seconds
from _scale_simulation import Network, Work, added_up, in_rounds, plot
from scale import model_of

from esnlm import LowRankReadout, RidgeReadout
from esnlm.runs.workers import workers
from esnlm.text.shard_parts import PartedCorpus
from esnlm.text.shards import Shards
from esnlm.training.parts_trainer import PartsTrainer
from esnlm.utils.sums import in_pairs

_MACHINES = (1, 2, 4, 10, 20, 50, 100)


def main() -> None:
    """Measure, simulate and report."""
    args = options(__doc__, "shards", units=512, components=128, cores=2)
    report("simulation", _simulated(args), merge=True, folder="scale")


class _Clock:
    """A `Reduce` of this process that remembers what parts cost, by name."""

    def __init__(self) -> None:
        self.parts: dict[str, list[float]] = defaultdict(list)
        self.sums: dict[str, list[float]] = defaultdict(list)
        self.bytes: dict[str, tuple[int, int]] = {}
        self.rounds: list[tuple[float, float]] = []

    def __call__(
        self,
        name: str,
        function: Callable[[Any, Any], Any],
        given: Any,
        items: Sequence[Any],
        done: Callable[[Any], None] = lambda item: None,
    ) -> Any:
        def timed(times: list[float], make: Callable[[], Any]) -> Any:
            begun = time.perf_counter()
            made = make()
            times.append(time.perf_counter() - begun)
            return made

        def leaf(number: int) -> Any:
            return timed(self.parts[name], lambda: function(given, items[number]))

        since = time.perf_counter()
        found = in_pairs(len(items), leaf, lambda a, b: timed(self.sums[name], lambda: a + b))
        self.rounds.append((since, time.perf_counter()))
        self.bytes[name] = found.__sizeof__(), len(cloudpickle.dumps((function, given)))
        return found


def _simulated(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    corpus = PartedCorpus(args.shards.absolute())
    a_word = corpus.n_tokens / Shards(args.shards).manifest["totals"]["words"]
    with workers("local:1") as found:
        list(found.map("start", _nothing, None, [0]))
        per_task = seconds(lambda: list(found.map("none", _nothing, None, range(2000)))) / 2000
    network, n_chunks = Network(), -(-corpus.n_tokens // (1 << 16))
    low_rank = LowRankReadout(n_components=args.components, n_passes=1, random_state=0)
    drawn = []
    for job, name, readout, n_parts, hours in (
        ("moments of ridge", "moments", RidgeReadout(), n_chunks, added_up),
        ("a pass of the low-rank readout", "pass 1", low_rank, 4, in_rounds),
    ):
        clock = _Clock()
        model = model_of(corpus, args.units, readout)
        PartsTrainer(model, corpus, n_parts=n_parts, reduce=clock).run()
        parts = np.array(clock.parts[name])
        # Compiled, and with tables made, after the first.
        typical = parts[np.abs(parts - np.median(parts)) < np.median(parts)]
        n_rounds = len(parts) // n_parts
        per_round = sum(b - a for (_, a), (b, _) in pairwise(clock.rounds[-n_rounds:]))
        work = Work(
            per_token=float(np.median(parts)) * len(parts) / corpus.n_tokens,
            scatter=tuple(typical / typical.mean()),
            per_sum=statistics.median(clock.sums[name]),
            sum_bytes=clock.bytes[name][0],
            given_bytes=clock.bytes[name][1],
            per_round=per_round / max(1, n_rounds - 1),
            per_task=per_task,
        )
        setting = f"{job}, {args.units} units"
        for what, value, unit in (
            ("tokens a second of one core", 1 / work.per_token, "tokens/s"),
            ("adding two sums", work.per_sum, "s"),
            ("a sum", work.sum_bytes / 2**20, "MiB"),
            ("what workers are given", work.given_bytes / 2**20, "MiB"),
            ("client after a round", work.per_round, "s"),
            ("scheduler", work.per_task, "s a task"),
        ):
            yield row(what, setting, value, unit=unit)
        for words, n_machines in product((10**7, 10**9, 10**11), _MACHINES):
            at = words * a_word, n_machines, args.cores, network
            ours, one = hours(work, *at), hours(work, words * a_word, 1, args.cores, network)
            drawn.append((job, words, n_machines, ours / 3600))
            name_ = f"{setting}, {words:.0e} words, {n_machines} machines of {args.cores} cores"
            yield row("simulated time", name_, ours / 3600, one / n_machines / 3600, "hours")
    plot(drawn, ROOT / "reports" / "scale" / "simulation.png")


def _nothing(given: Any, item: int) -> int:
    return item


if __name__ == "__main__":
    main()
