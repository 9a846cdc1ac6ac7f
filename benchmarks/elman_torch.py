"""How near to the oracle of Elman's grammar do networks trained by gradient come on the same words?

    python benchmarks/elman_torch.py

LSTM, GRU and transformer of 64 units, and a net of one hidden layer that reads the states of a
frozen reservoir (extra ``torch``, one core, AdamW), on the sentences that ``esnlm elman`` draws for
each seed. Each sentence is read from the start state. The last tenth of the training sentences
decides when to halve the rate and when to stop; the second corpus is scored once, by the weights
that are best on that tenth. Ours: its perplexity; peer: the oracle's on the same tokens. Rows go to
``reports/elman/networks.csv``.
"""

import copy
import math
import time
from typing import Any

import numpy as np
import torch
from _report import options, report, row
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from esnlm import Reservoir
from esnlm.evaluation.metrics import perplexity
from esnlm.studies.elman.presets import Settings
from esnlm.studies.elman.states import make_corpora

UNITS = {"LSTM": 64, "GRU": 64, "transformer": 64, "net on a reservoir": 400}
DROPOUT, BATCH, RATE = 0.2, 32, 3e-3
#: Of the net that reads a reservoir, which is driven as defer_exit as in ``elman_limits.py``.
HIDDEN, HIDDEN_DROPOUT, RADIUS, SCALING = 512, 0.5, 1.0, 0.1
#: Epochs without a lower held-out loss before the rate is halved, and how often it is.
PATIENCE, HALVINGS = 3, 5


class Network(nn.Module):
    """Tokens (B, T) -> logits (B, T, V) of the tokens that follow, read from the start state."""

    def __init__(self, kind: str, n_tokens: int, longest: int, seed: int) -> None:
        super().__init__()
        n_units = UNITS[kind]
        self.embedding = nn.Embedding(n_tokens, n_units)
        self.drop = nn.Dropout(DROPOUT)
        self.output: nn.Module = nn.Linear(n_units, n_tokens)
        self.body: nn.Module
        if kind == "transformer":
            self.positions = nn.Parameter(0.02 * torch.randn(longest, n_units))
            layer = nn.TransformerEncoderLayer(
                n_units, 4, 4 * n_units, DROPOUT, batch_first=True, norm_first=True
            )
            self.body = nn.TransformerEncoder(layer, 2, nn.LayerNorm(n_units), False)
        elif kind in ("LSTM", "GRU"):
            self.body = getattr(nn, kind)(n_units, n_units, batch_first=True)
        else:
            reservoir = Reservoir(
                n_units, spectral_radius=RADIUS, input_scaling=SCALING, random_state=seed
            ).fit(n_inputs=n_tokens)
            body = nn.RNN(n_units, n_units, bias=False, batch_first=True).requires_grad_(False)
            body.weight_ih_l0.copy_(torch.eye(n_units))
            body.weight_hh_l0.copy_(torch.from_numpy(reservoir.W_.toarray()))
            self.body, self.drop.p = body, 0.0
            self.embedding = nn.Embedding.from_pretrained(torch.from_numpy(reservoir.W_in_).T)
            self.output = nn.Sequential(
                nn.Linear(n_units, HIDDEN),
                nn.ReLU(),
                nn.Dropout(HIDDEN_DROPOUT),
                nn.Linear(HIDDEN, n_tokens),
            )

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        if isinstance(self.body, nn.TransformerEncoder):
            length = tokens.shape[1]
            mask = nn.Transformer.generate_square_subsequent_mask(length)
            hidden = self.body(self.drop(hidden + self.positions[:length]), mask, is_causal=True)
        else:
            hidden, _ = self.body(self.drop(hidden))
        logits: Tensor = self.output(self.drop(hidden))
        return logits

    def losses(self, sentences: Tensor) -> Tensor:
        """Nats of every word of sentences (B, T), which are padded by -1; zero for padding."""
        before = functional.pad(sentences[:, :-1].clamp(min=0), (1, 0))
        logits = self(before).transpose(1, 2)
        return functional.cross_entropy(logits, sentences, ignore_index=-1, reduction="none")


def padded(tokens: NDArray[Any], end: int) -> Tensor:
    """Sentences (n, longest), padded by -1, of tokens (T,); each ends with the token ``end``."""
    pieces = np.split(tokens, np.flatnonzero(tokens == end)[:-1] + 1)
    return nn.utils.rnn.pad_sequence(
        [torch.as_tensor(piece, dtype=torch.int64) for piece in pieces], True, -1
    )


def train(network: Network, sentences: Tensor, held_out: Tensor) -> int:
    """Train to the least loss on ``held_out``: the number of epochs until then."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE)
    best, kept, reached = math.inf, network.state_dict(), 0
    since = halvings = epoch = 0
    while halvings <= HALVINGS:
        epoch += 1
        network.train()
        for batch in sentences[torch.randperm(len(sentences))].split(BATCH):
            optimizer.zero_grad()
            (network.losses(batch).sum() / (batch >= 0).sum()).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
        loss = float(scored(network, held_out).mean())
        since += 1
        if loss < best:
            best, kept, reached, since = loss, copy.deepcopy(network.state_dict()), epoch, 0
        elif since >= PATIENCE:
            halvings, since = halvings + 1, 0
            for group in optimizer.param_groups:
                group["lr"] /= 2
    network.load_state_dict(kept)
    return reached


@torch.no_grad()
def scored(network: Network, sentences: Tensor) -> Tensor:
    """Nats (T,) of the words of padded sentences, in their order."""
    network.eval()
    return network.losses(sentences)[sentences >= 0]


def measure(kind: str, settings: Settings, seed: int) -> list[dict[str, Any]]:
    """Rows of one network: perplexity on the second corpus, seconds to train, best epoch."""
    corpora = make_corpora(settings, seed)
    end = corpora.grammar.vocabulary.index(".")
    parts = np.split(corpora.train, [corpora.held_out])
    sentences, held_out, test = (padded(part, end) for part in (*parts, corpora.test))
    torch.manual_seed(seed)
    longest = max(part.shape[1] for part in (sentences, held_out, test))
    network = Network(kind, len(corpora.grammar.vocabulary), longest, seed)
    start = time.process_time()
    epochs = train(network, sentences, held_out)
    spent = time.process_time() - start
    # The oracle has no probability for the first token of a corpus.
    ours = perplexity(-scored(network, test)[1:].double().numpy())
    oracle = perplexity(corpora.grammar.oracle_log_likelihood(corpora.test))
    n_parameters = sum(each.numel() for each in network.parameters() if each.requires_grad)
    setting = f"{kind}, {UNITS[kind]} units, {n_parameters} trained parameters, seed {seed}"
    return [
        row("perplexity beside the oracle", setting, ours, oracle, "perplexity"),
        row("training", setting, spent, unit="processor s"),
        row("best on the held-out tenth", setting, epochs, unit="epochs"),
    ]


def main() -> None:
    given = options(__doc__, networks=list(UNITS), seeds=3)
    torch.set_num_threads(1)
    runs = [(kind, seed) for kind in given.networks for seed in range(given.seeds)]
    rows = [each for kind, seed in runs for each in measure(kind, Settings(), seed)]
    report("networks", rows, merge=True, folder="elman")


if __name__ == "__main__":
    main()
