"""Training tokens a second of the ESN with low-rank softmax, beside plain torch.sparse.

    python benchmarks/torch_esn.py SHARDS [--units N] [--rank R] [--large B] [--tokens T]
        [--device NAME] [--bf16]

SHARDS is what ``esnlm prepare`` wrote. Two settings: the batches of 32 sentences of Ueda et al.
(2025), and batches of B sentences. The peer reads the same padded batches one after another with
``torch.sparse`` products for the recurrence and a dense embedding for the input weights, and has
the same output layer and optimiser. On a CUDA device the share of its bfloat16 peak (H100 and
H200: 989 TFLOP/s) is shown, counting the products of the output layer alone.
"""

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from _report import options, report
from torch import Tensor

from esnlm.text.corpus import TokenStream
from esnlm.text.shards import Shards
from esnlm.torch.device import chosen_device, peak_memory
from esnlm.torch.networks.esn import EchoStateNetwork
from esnlm.torch.training.batches import batches_of
from esnlm.torch.training.plan import Plan
from esnlm.torch.training.trainer import NetworkTrainer

PEAK = 989e12


def main() -> None:
    sizes = {"units": 16384, "rank": 512, "large": 1024, "tokens": 1_000_000}
    args = options(__doc__, "shards", **sizes, device="auto", bf16=False)
    device = chosen_device(args.device)
    shards = Shards(args.shards, verify=False)
    stream = first_sentences(shards.stream(), args.tokens)
    rows = []
    for batch, target in ((32, 20.0), (args.large, None)):
        plan = Plan(batch_size=batch, bf16=args.bf16, score_every=0)
        network = made(shards.n_tokens_vocab, args).to(device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        ours = pace(network, stream, plan)
        rows.append(row(network, ours, batch, args, device))
        if target is not None:
            peer = plain_pace(made(shards.n_tokens_vocab, args).to(device), stream, plan)
            faster = {"peer": peer, "ratio": ours / peer, "target": f">= {target:.0f} times"}
            rows[-1] |= faster | {"met": ours >= target * peer}
    report("torch_esn", rows, merge=True)


def row(
    network: EchoStateNetwork, ours: float, batch: int, args: Any, device: torch.device
) -> dict[str, Any]:
    """The row of a measurement."""
    # Six operations a weight, and four where frozen states need no gradient.
    n_operations = args.rank * (4 * args.units + 6 * network.n_tokens)
    place = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    share = f", {n_operations * ours / PEAK:.1%} of the bf16 peak" if device.type == "cuda" else ""
    setting = (
        f"N = {args.units}, rank {args.rank}, V = {network.n_tokens}, batches of {batch},"
        f" {'bf16' if args.bf16 else 'float32'}, {place}{share},"
        f" peak memory {peak_memory(device) / 2**30:.1f} GiB"
    )
    return {"benchmark": "training", "setting": setting, "ours": ours, "unit": "tokens/s"}


def made(n_tokens: int, args: argparse.Namespace) -> EchoStateNetwork:
    torch.manual_seed(0)
    reservoir = {"n_units": args.units, "random_state": 0}
    return EchoStateNetwork(n_tokens, reservoir=reservoir, rank=args.rank)


def first_sentences(stream: TokenStream, n_tokens: int) -> TokenStream:
    """The sentences that begin in the first ``n_tokens``."""
    assert stream.starts is not None
    n = int(np.searchsorted(stream.starts, n_tokens))
    end = int(np.append(stream.starts, len(stream.tokens))[n])
    return TokenStream(np.asarray(stream.tokens[:end]), stream.starts[:n], np.array([0, end]))


def pace(network: EchoStateNetwork, stream: TokenStream, plan: Plan) -> float:
    """Tokens a second of the second of two runs: kernels are then loaded."""
    assert stream.starts is not None
    NetworkTrainer(network, first_sentences(stream, len(stream.tokens) // 10), None, plan).run()
    trainer = NetworkTrainer(network, stream, None, plan)
    trainer.run()
    return trainer.tokens / trainer.seconds


def plain_pace(network: EchoStateNetwork, stream: TokenStream, plan: Plan) -> float:
    """Tokens a second of the peer, after a first tenth that is not counted."""
    step = plain_step(network, plan)
    batches = batches_of(stream, plan)
    tokens = 0
    for number, batch in enumerate(batches.of_pass(0)):
        if number == batches.n_batches // 10:
            synchronised(network.device)
            tokens, start = 0, time.perf_counter()
        step(batch)
        tokens += int(batch.counted.sum())
    synchronised(network.device)
    return tokens / (time.perf_counter() - start)


def plain_step(network: EchoStateNetwork, plan: Plan) -> Any:
    """One step of the peer on a padded batch."""
    kept, device = network.reservoir, network.device
    W = torch.sparse_csr_tensor(kept.W_.indptr, kept.W_.indices, kept.W_.data, kept.W_.shape)
    W = W.to(device)
    W_in = torch.from_numpy(np.asarray(kept.W_in_.T.toarray())).to(device)
    leak = torch.from_numpy(kept.leak_rate_).to(device)[:, None]
    optimizer = torch.optim.AdamW(network.parameters())

    def states(tokens: Tensor) -> Iterator[Tensor]:
        state = torch.zeros(len(leak), len(tokens), device=device)
        for t in range(tokens.shape[1]):
            drive = W_in[tokens[:, t]].t()
            state = (1 - leak) * state + leak * torch.tanh(W @ state + drive)
            yield state.t()

    def step(batch: Any) -> None:
        tokens, following, counted = (
            torch.from_numpy(array).to(device)
            for array in (batch.tokens, batch.following, batch.counted)
        )
        with torch.no_grad():
            hidden = torch.stack(list(states(tokens)), dim=1)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=plan.bf16):
            loss = network.loss(hidden[counted], following[counted]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def synchronised(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
