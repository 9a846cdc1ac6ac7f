"""Training tokens a second of a nonlinear readout on frozen states, beside LSTMs.

    python benchmarks/deep_readout.py SHARDS [--steps K] [--lstm-steps K]

SHARDS is what ``esnlm prepare`` wrote. The readout (``esn+mlp``, its defaults) reads states that
are computed ahead of its steps; the LSTMs have as many trained parameters, or the 512 units of Ueda
et al. (2025). All learn from batches of the same size. Medians of three runs each, in turns, on all
threads of torch; the first tenth of a run, or its first step, is not counted.
"""

from statistics import median

import torch
from _report import options, report, row
from torch_training import REPEATS, pace

from esnlm.text.shards import Shards
from esnlm.torch.networks.deep_readout import DeepReadout
from esnlm.torch.networks.lstm import LSTM
from esnlm.torch.networks.registry import n_trained, settings_of_size
from esnlm.torch.training.plan import Plan, plan_settings

_TARGET = 5.0


def main() -> None:
    args = options(__doc__, "shards", steps=40, lstm_steps=10)
    shards = Shards(args.shards, verify=False)
    stream, n_tokens = shards.stream(), shards.n_tokens_vocab
    size = n_trained("esn+mlp", {}, n_tokens)
    peers = settings_of_size("lstm", size, n_tokens), {"n_units": 512}
    plan = Plan(**plan_settings("esn+mlp", {}, {"score_every": 0}))
    ours: list[float] = []
    theirs: list[list[float]] = [[] for _ in peers]
    for _ in range(REPEATS):
        torch.manual_seed(0)
        ours.append(pace(DeepReadout(n_tokens), stream, plan, args.steps))
        for found, settings in zip(theirs, peers, strict=True):
            found.append(pace(LSTM(n_tokens, **settings), stream, plan, args.lstm_steps))
    mine = f"esn+mlp, {size} trained parameters, V = {n_tokens}, {torch.get_num_threads()} threads"
    rows = []
    for settings, found, target in zip(peers, theirs, (_TARGET, None), strict=True):
        peer = f"LSTM of {settings['n_units']} units, {n_trained('lstm', settings, n_tokens)}"
        pace_of_ours, other = median(ours), median(found)
        aim, met = ("", "") if target is None else (target, pace_of_ours >= target * other)
        rows.append(
            row("training", f"{mine}; {peer}", pace_of_ours, other, "tokens/s", target=aim, met=met)
        )
    report("deep_readout", rows)


if __name__ == "__main__":
    main()
