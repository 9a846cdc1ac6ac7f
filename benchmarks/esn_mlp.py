"""Training tokens a second of a nonlinear readout on frozen states, beside LSTMs.

    python benchmarks/esn_mlp.py SHARDS [--steps K] [--lstm-steps K]

SHARDS is what ``esnlm prepare`` wrote. The readout (``esn+mlp``, its defaults) reads states that
are computed ahead of its steps. The LSTMs have as many trained parameters (``--lstm-steps`` of
them); as many without the embeddings of tokens and pairs, since a step updates few of these; or
the 512 units of Ueda et al. (2025). All learn in bfloat16 from batches of as many sentences, of
like length. Medians of three runs each, in turns, on all threads of torch; the first tenth of a
run, or its first step, is not counted. The bound of the readout's pace is that of the matrix
products of its steps, each repeated alone, with everything else for nothing.
"""

from collections import Counter
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Any

import torch
from _report import median_seconds, options, report, row
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch_training import REPEATS, pace

from esnlm.text.shards import Shards
from esnlm.torch.networks.esn_mlp import EchoStateNetworkWithMLP
from esnlm.torch.networks.lstm import LSTM
from esnlm.torch.networks.network import Network
from esnlm.torch.networks.registry import n_trained, settings_of_size
from esnlm.torch.training.plan import Plan, plan_settings
from esnlm.torch.training.trainer import NetworkTrainer
from esnlm.training.resumable_run import StoppedError

_TARGET = 5.0


def main() -> None:
    args = options(__doc__, "shards", steps=40, lstm_steps=10)
    shards = Shards(args.shards, verify=False)
    stream, n_tokens = shards.stream(), shards.n_tokens_vocab
    size = n_trained("esn+mlp", {}, n_tokens)
    read = size - in_vectors(EchoStateNetworkWithMLP(n_tokens))
    as_many = settings_of_size("lstm", size, n_tokens), args.lstm_steps, _TARGET
    as_many_read = {"n_units": units_of(read, n_tokens)}, args.steps, None
    peers = [as_many, as_many_read, ({"n_units": 512}, args.steps, None)]
    plan = Plan(**plan_settings("esn+mlp", {}, {"score_every": 0, "bf16": True, "pool": 64}))
    ours: list[float] = []
    theirs: list[list[float]] = [[] for _ in peers]
    for _ in range(REPEATS):
        torch.manual_seed(0)
        ours.append(pace(EchoStateNetworkWithMLP(n_tokens), stream, plan, args.steps))
        for found, (settings, n_steps, _) in zip(theirs, peers, strict=True):
            found.append(pace(LSTM(n_tokens, **settings), stream, plan, n_steps))
    threads = torch.get_num_threads()
    mine = (
        f"esn+mlp, {size} trained parameters, {read} beside vectors, V = {n_tokens},"
        f" {threads} threads"
    )
    rows = []
    for (settings, _, target), found in zip(peers, theirs, strict=True):
        count, vectors = n_trained("lstm", settings, n_tokens), n_tokens * settings["n_units"]
        peer = f"LSTM of {settings['n_units']} units, {count}, {count - vectors} beside vectors"
        pace_of_ours, other = median(ours), median(found)
        aim, met = ("", "") if target is None else (target, pace_of_ours >= target * other)
        rows.append(
            row("training", f"{mine}; {peer}", pace_of_ours, other, "tokens/s", target=aim, met=met)
        )
    trainer = NetworkTrainer(EchoStateNetworkWithMLP(n_tokens), stream, None, plan)
    with suppress(StoppedError), Products() as products:
        trainer.run(stop=lambda: trainer.step == args.steps)
    bound = trainer.tokens / products.seconds()
    rows.append(row("bound", f"{mine}; matrix products alone", median(ours), bound, "tokens/s"))
    report("esn_mlp", rows)


class Products(TorchDispatchMode):
    """Counts the matrix products of all that is computed meanwhile, by shapes and dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[Any] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm):
            factors = ((x.shape, x.stride(), x.dtype) for x in args[-2:])
            self.counts[tuple(factors)] += 1
        return func(*args, **(kwargs or {}))

    def seconds(self) -> float:
        """Return the seconds that they take, each repeated alone."""
        total = 0.0
        for factors, count in self.counts.items():
            a, b = (torch.empty_strided(x, y, dtype=z).normal_() for x, y, z in factors)
            total += count * median_seconds(partial(torch.matmul, a, b), repeats=3)
        return total


def in_vectors(network: Network) -> int:
    """Count the trained parameters in embeddings; a step updates those of its tokens alone."""
    return sum(each.weight.numel() for each in network.modules() if isinstance(each, nn.Embedding))


def units_of(n_parameters: int, n_tokens: int) -> int:
    """Units of the LSTM that has the nearest number of parameters beside its vectors."""

    def distance(n_units: int) -> int:
        count = n_trained("lstm", {"n_units": n_units}, n_tokens) - n_tokens * n_units
        return abs(count - n_parameters)

    return min(range(1, 1 << 12), key=distance)


if __name__ == "__main__":
    main()
