"""Seconds that a reduction over parts takes on many machines, from what a part costs on one core.

A discrete simulation: every worker does one task at a time, sums before parts; a sum goes to the
worker that holds the left one of the pair, through the network cards of two machines, each of which
sends and receives one array at a time; the scheduler answers one finished task at a time.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import NullLocator

from esnlm.plots.figures import GREY, panels, save, style
from esnlm.utils.sums import in_pairs


@dataclass(frozen=True)
class Network:
    """Bytes a second each way of a machine's card, and seconds until the first byte arrives."""

    bandwidth: float = 1.25e9
    latency: float = 1e-4

    def seconds(self, n_bytes: float) -> float:
        return self.latency + n_bytes / self.bandwidth


@dataclass(frozen=True)
class Work:
    """What a pass costs one core, as it was measured.

    ``per_token``: seconds; ``scatter`` (n,): seconds of the parts measured, relative to their mean;
    ``per_sum``: seconds of adding two sums; ``sum_bytes``, ``given_bytes``: of a sum, and of what
    the workers are given before a round; ``per_round``: seconds of the client after it;
    ``per_task``: seconds of the scheduler.
    """

    per_token: float
    scatter: Sequence[float]
    per_sum: float
    sum_bytes: float
    given_bytes: float
    per_round: float
    per_task: float


@dataclass
class _Node:
    """A part, or the sum of two nodes."""

    seconds: float
    worker: int = -1
    parent: "_Node | None" = None
    children: tuple["_Node", ...] = ()
    waits: int = 0
    is_sum: bool = False
    order: int = 0


@dataclass
class _Workers:
    """What is under way on the workers of so many machines."""

    n_machines: int
    cores: int
    work: Work
    network: Network
    queues: list[list[tuple[bool, int, _Node]]] = field(init=False)

    def __post_init__(self) -> None:
        self.n = self.n_machines * self.cores
        self.queues = [[] for _ in range(self.n)]
        self.busy = [False] * self.n
        self.sends, self.receives = ([0.0] * self.n_machines for _ in range(2))
        self.scheduler = 0.0
        self.events: list[tuple[float, int, str, Any]] = []
        self.numbers = count()

    def at(self, time: float, kind: str, what: Any) -> None:
        heapq.heappush(self.events, (time, next(self.numbers), kind, what))

    def answered(self, time: float) -> float:
        """When the scheduler has heard of a task that ended."""
        self.scheduler = max(self.scheduler, time) + self.work.per_task
        return self.scheduler

    def arrives(self, time: float, sender: int, receiver: int) -> float:
        """When a sum that one worker holds is at another one."""
        a, b = sender // self.cores, receiver // self.cores
        if a == b:
            return time
        begun = max(time, self.sends[a], self.receives[b])
        end = begun + self.network.seconds(self.work.sum_bytes)
        self.sends[a] = self.receives[b] = end
        return end

    def start(self, worker: int, time: float) -> None:
        """Let a worker that waits take what is next."""
        if not self.busy[worker] and self.queues[worker]:
            _, _, node = heapq.heappop(self.queues[worker])
            self.busy[worker] = True
            self.at(time + node.seconds, "ended", node)


def round_seconds(
    work: Work,
    n_parts: int,
    tokens: float,
    n_machines: int,
    cores: int,
    network: Network,
    seed: int,
) -> float:
    """Seconds of one reduction over ``n_parts`` parts of ``tokens`` tokens each."""
    workers = _Workers(n_machines, cores, work, network)
    scatter = np.random.default_rng(seed).choice(np.asarray(work.scatter), n_parts)
    numbers = count()

    def leaf(number: int) -> _Node:
        worker = number * workers.n // n_parts
        return _Node(tokens * work.per_token * scatter[number], worker, order=next(numbers))

    def add(a: _Node, b: _Node) -> _Node:
        made = _Node(work.per_sum, -1, None, (a, b), 2, True, next(numbers))
        a.parent = b.parent = made
        return made

    leaves = [leaf(number) for number in range(n_parts)]
    root = in_pairs(n_parts, leaves.__getitem__, add)
    # What is given goes from machine to machine: at each step as many have it again.
    steps = [int(np.ceil(np.log2(machine + 2))) for machine in range(n_machines)]
    for node in leaves:
        begun = steps[node.worker // cores] * network.seconds(work.given_bytes)
        workers.at(begun, "ready", node)
    while True:
        time, _, kind, node = heapq.heappop(workers.events)
        if kind == "ready":
            heapq.heappush(workers.queues[node.worker], (not node.is_sum, node.order, node))
            workers.start(node.worker, time)
            continue
        workers.busy[node.worker] = False
        heard = workers.answered(time)
        if node is root:
            return heard + network.seconds(work.sum_bytes) + work.per_round
        workers.start(node.worker, time)
        parent = node.parent
        parent.waits -= 1
        if not parent.waits:
            left, right = parent.children
            parent.worker = left.worker
            workers.at(workers.arrives(heard, right.worker, left.worker), "ready", parent)


def added_up(
    work: Work, tokens: float, n_machines: int, cores: int, network: Network, parts_each: int = 4
) -> float:
    """Seconds of a pass that only adds up, in ``parts_each`` parts for every core."""
    n_parts = parts_each * n_machines * cores
    return round_seconds(work, n_parts, tokens / n_parts, n_machines, cores, network, 0)


def in_rounds(
    work: Work, tokens: float, n_machines: int, cores: int, network: Network, chunk: int = 1 << 16
) -> float:
    """Seconds of a pass of averaged steps, with a part for every core, a chunk of it in a round."""
    n_parts = n_machines * cores
    n_rounds = max(1.0, tokens / (n_parts * chunk))
    each = min(chunk, tokens / n_parts)
    args = work, n_parts, each, n_machines, cores, network
    return n_rounds * float(np.mean([round_seconds(*args, seed) for seed in range(5)]))


def plot(rows: Sequence[tuple[str, int, int, float]], path: Path) -> None:
    """Hours against machines, a panel for each job and a line for each corpus, beside the ideal."""
    jobs = list(dict.fromkeys(job for job, *_ in rows))
    figure, axes = panels(len(jobs))
    for axis, job in zip(axes, jobs, strict=True):
        sizes = sorted({words for name, words, *_ in rows if name == job})
        for number, words in enumerate(sizes):
            line = [row[2:] for row in rows if row[:2] == (job, words)]
            machines, hours = np.array(line).T
            label = f"{words:,} words".replace(",", " ")
            axis.plot(machines, hours, label=label, **style(number))
            ideal = hours[0] / machines
            axis.plot(machines, ideal, color=GREY, linestyle=":", linewidth=1)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xticks(machines, [str(int(n)) for n in machines])
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xlabel("machines")
        axis.set_ylabel("hours")
        axis.set_title(job, loc="left", fontsize=10)
    save(figure, path, legend_of=axes[0], n_columns=2)
