"""Training tokens a second of ESN+i on a CPU: bfloat16, and sentences sorted by length.

    python benchmarks/torch_training.py SHARDS [--units N] [--steps K]

SHARDS is what ``esnlm prepare`` wrote. The peer is the paper's setting (Ueda et al. 2025b):
float32, 32 sentences a step as they come. Medians of three runs each, in turns; the first tenth of
a run is not counted.
"""

import time
from contextlib import suppress
from statistics import median
from typing import Any

import torch
from _report import options, report, row

from esnlm.text.corpus import TokenStream
from esnlm.text.shards import Shards
from esnlm.torch.networks.esn import EchoStateNetworkWithEmbedding
from esnlm.torch.networks.network import Network
from esnlm.torch.training.plan import Plan
from esnlm.torch.training.trainer import NetworkTrainer
from esnlm.training.resumable_run import StoppedError

PLANS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"bf16": True},
    "float32, 64 batches sorted by length": {"pool": 64},
    "bfloat16, 64 batches sorted by length": {"bf16": True, "pool": 64},
}
REPEATS = 3


def main() -> None:
    args = options(__doc__, "shards", units=512, steps=200)
    shards = Shards(args.shards, verify=False)
    stream, n_tokens = shards.stream(), shards.n_tokens_vocab
    paces: dict[str, list[float]] = {name: [] for name in PLANS}
    for _ in range(REPEATS):
        for name, plan in PLANS.items():
            torch.manual_seed(0)
            reservoir = {"n_units": args.units, "random_state": 0}
            network = EchoStateNetworkWithEmbedding(n_tokens, reservoir=reservoir)
            paces[name].append(pace(network, stream, Plan(**plan), args.steps))
    plain = median(paces["float32"])
    setting = f"ESN+i, N = {args.units}, V = {n_tokens}, {torch.get_num_threads()} threads"
    report(
        "torch_training",
        [
            row("training", f"{setting}, {name}", median(found), plain, "tokens/s")
            for name, found in paces.items()
        ],
    )


def pace(network: Network, stream: TokenStream, plan: Plan, n_steps: int) -> float:
    """Tokens a second between a tenth of the steps, or the first of them, and the last."""
    trainer = NetworkTrainer(network, stream, None, plan)
    begun = [0.0, 0.0]

    def stop() -> bool:
        if trainer.step == max(1, n_steps // 10):
            begun[:] = [trainer.tokens, time.perf_counter()]
        return trainer.step == n_steps

    with suppress(StoppedError):
        trainer.run(stop=stop)
    return (trainer.tokens - begun[0]) / (time.perf_counter() - begun[1])


if __name__ == "__main__":
    main()
