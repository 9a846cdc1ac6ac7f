"""A frozen reservoir beside the last tokens, read by residual layers: a nonlinear readout."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from esnlm.features.spectral import SpectralWordFeatures
from esnlm.readouts.base.last_tokens import NO_TOKEN, last_tokens
from esnlm.readouts.class_based.direct_connections import NgramCounts
from esnlm.text.corpus import TokenStream
from esnlm.text.shuffling import evenly_spaced
from esnlm.torch.device import on_device
from esnlm.torch.networks.attention import Attention, feed_forward
from esnlm.torch.networks.dropout import Dropout
from esnlm.torch.networks.esn import ReservoirNetwork
from esnlm.torch.networks.network import SHARE, Settings, State, decaying
from esnlm.torch.networks.traces import Traces
from esnlm.torch.networks.two_level_softmax import COMPARED, PIECE, TwoLevelSoftmax, counts_of
from esnlm.utils.arrays import Array, Ints64
from esnlm.utils.validation import Count, Flag, OneOf, limited

# Tokens whose states say how much each unit varies.
_SURVEYED = 1 << 16
# The learning rate of vectors of tokens, in others' rates.
_FASTER = 5.0
_MOST_PAIRS, _LEAST_DEVIATION = 1 << 17, 1e-4
_NEEDED = OneOf((True,))


@dataclass(eq=False, repr=False, kw_only=True)
class EchoStateNetworkWithMLP(ReservoirNetwork):
    """States of a frozen reservoir and the last tokens, read by residual layers (``esn+mlp``).

    ``z = W s + Σ_k e_k(w_t-k) + p(w_t-1, w_t)``, s the reservoir's state, each unit standardised;
    e_k and p vectors of the last tokens and of frequent pairs of them, past the reservoir (direct
    connections, Jaeger 2001; as `LowRankReadout` has them). With ``gates``, ``W s`` is first
    multiplied with ``2 sigmoid(G e_0(w_t))``. With ``attention``, z attends to those of the last
    places (see `Attention`). Then ``n_blocks`` times ``z += B gelu(A LayerNorm(z))`` (He et al.
    2016; Xiong et al. 2020), and a softmax over classes and the words of a class of LayerNorm(z),
    or over all words. All but the reservoir is trained; no gradient goes through its time, so that
    states of many sequences are computed at once, ahead of their step. ``trained_inputs`` are the
    control: what do frozen inputs cost?

    Word classes, the pairs, the features that drive the reservoir and the deviation of each unit
    come from the training text: see `survey`. Units are leaky traces without coupling, which on
    words lost nothing, unless parameters of the reservoir say how they are coupled.
    """

    RECIPE: ClassVar[Settings] = {
        "batch_size": 128, "n_passes": 2, "learning_rate": 2e-3, "betas": (0.9, 0.98),
        "weight_decay": 0.05, "decay_passes": 0.46,
        "schedule": "warmup-hold-cosine", "warmup": 0.02,
    }  # fmt: skip
    RESERVOIR: ClassVar[Settings] = {
        "n_units": 512, "topology": "diagonal", "spectral_radius": 0.0, "input_scaling": 0.3,
        "leak_rate": ("uniform", 0.0, 1.0),
    }  # fmt: skip
    #: Where a topology, a radius or a degree is given.
    COUPLED: ClassVar[Settings] = {"degree": 16, "topology": "offsets", "spectral_radius": 0.97}

    #: `SpectralWordFeatures` that drive the reservoir, at most one a token; 0: one input a token.
    n_features: int = limited(128, Count(0))
    width: int = limited(384, Count())  #: of z
    n_hidden: int = limited(1024, Count())  #: hidden units of a residual layer
    n_blocks: int = limited(1, Count(0))
    n_direct: int = limited(3, Count(0))  #: last tokens that are read past the reservoir
    #: Most frequent pairs of the last two tokens that have vectors; None: 2^17, or V² / 512.
    n_pairs: int | None = limited(None, Count(0, none=True))
    state: bool = limited(True, Flag())  #: false: the last tokens alone, the control
    #: The state is that of `Traces`, its inputs first the frozen ones and then trained, its decays
    #: fixed; for units that are not coupled.
    trained_inputs: bool = limited(False, Flag(), state=_NEEDED, n_direct=Count())
    #: Last places, the present one among them, whose states are attended to; 0: no attention
    #: (Köster & Uchida 2025 attend to one state's units; here it is to several states).
    attention: int = limited(32, Count(0))
    n_heads: int = limited(6, Count())  #: of the attention, a divisor of ``width``
    gates: bool = limited(False, Flag())  #: the newest token's gates of what is read of the state
    two_level: bool = limited(True, Flag())  #: classes first; false: one softmax over all words
    dropout: float = limited(0.0, SHARE)  #: of z, and of what each layer adds to it
    #: Of the vectors of last tokens and pairs, each left out as a whole in training: for several
    #: passes over a small text, which is learned by heart otherwise.
    token_dropout: float = limited(0.0, SHARE)

    def __post_init__(self) -> None:
        """Build the trained layers; raise ValueError where settings do not fit together."""
        super().__post_init__()
        n_units, width = len(self.reservoir.bias_), self.width
        if not (self.state or self.n_direct):
            raise ValueError("without state, n_direct must be at least 1, got 0")
        if self.gates and not (self.state and self.n_direct):
            raise ValueError("gates need a state, and n_direct of at least 1")
        if self.attention and width % self.n_heads:
            raise ValueError(f"width must be a multiple of n_heads={self.n_heads}, got {width}")
        self.mean, self.deviation = nn.Buffer(torch.zeros(n_units)), nn.Buffer(torch.ones(n_units))
        self.drop = Dropout(self.dropout)
        if self.state:
            self.read_state = nn.Linear(n_units, width)
        if self.trained_inputs:
            if not self.recurrence.forwards.is_zero:
                raise ValueError("trained_inputs need units without coupling: spectral_radius=0")
            self.traces = Traces(self.reservoir.leak_rate_)
            self.trace_vectors = _vectors(self.n_tokens + 1, n_units)
        if self.gates:
            self.gate = nn.Linear(width, width)
        tables = (_vectors(self.n_tokens + 1, width) for _ in range(self.n_direct))
        self.tokens = nn.ModuleList(tables)
        n_pairs = _pairs_of(self.n_tokens, self.n_direct, self.n_pairs)
        self.pairs = nn.Buffer(torch.full((n_pairs,), self.n_tokens**2))
        if n_pairs:
            self.pair_vectors = _vectors(n_pairs + 1, width)
        if self.attention:
            self.attend = Attention(width, self.n_heads, self.attention)
        self.blocks = nn.ModuleList(
            feed_forward(width, self.n_hidden) for _ in range(self.n_blocks)
        )
        self.norm = nn.LayerNorm(width)
        kind: Any = TwoLevelSoftmax if self.two_level else nn.Linear
        self.output = kind(width, self.n_tokens)

    @classmethod
    def family(cls) -> Iterator[Settings]:
        """Yield settings of every width, with 8/3 times as many hidden units and up to 6 heads."""
        for width in range(1, 1 << 14):
            n_heads = next(n for n in range(6, 0, -1) if width % n == 0)
            yield {"width": width, "n_hidden": 8 * width // 3, "n_heads": n_heads}

    @staticmethod
    def count(n_tokens: int, **settings: Any) -> int:
        """Return the number of trained parameters of all parts that the settings turn on."""
        width, hidden, n_direct = (settings[name] for name in ("width", "n_hidden", "n_direct"))
        n_pairs = _pairs_of(n_tokens, n_direct, settings["n_pairs"])
        n_vectors = n_direct * (n_tokens + 1) + (n_pairs + 1 if n_pairs else 0)
        total = settings["n_blocks"] * (2 * width * (hidden + 1) + width + hidden) + 2 * width
        total += n_vectors * width
        if settings["state"]:
            reservoir = EchoStateNetworkWithMLP.RESERVOIR | (settings["reservoir"] or {})
            total += width * (reservoir["n_units"] + 1)
            total += settings["trained_inputs"] * (n_tokens + 1) * reservoir["n_units"]
        if settings["gates"]:
            total += width * (width + 1)
        if settings["attention"]:
            total += Attention.count(width, settings["n_heads"], settings["attention"])
        if settings["two_level"]:
            return int(total + TwoLevelSoftmax.count(width, n_tokens))
        return int(total + n_tokens * (width + 1))

    def survey(self, stream: TokenStream) -> None:
        """Take classes, pairs, features and deviations from a text."""
        tokens, n_tokens = stream.tokens, self.n_tokens
        counts = counts_of(stream, n_tokens)
        seed = self.reservoir.random_state or 0
        n_features = min(n_tokens, self.n_features or COMPARED)
        words = SpectralWordFeatures(n_features=n_features, random_state=seed)
        vectors = words.fit(tokens, starts=stream.starts, n_tokens=n_tokens).embedding_
        if self.n_features:
            self.inputs.vectors.copy_(torch.from_numpy(_normalised(vectors, counts)))
        if self.two_level:
            self.output.begin(counts, vectors[:, :COMPARED], seed)
        if len(self.pairs):
            self._find_pairs(stream)
        if self.trained_inputs:
            self._begin_vectors(counts)
        elif self.state:
            self._measure(stream)

    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Hidden (B, T, width); the state is the reservoir's, the last tokens, and what is kept."""
        n_rows, n_steps = tokens.shape
        before = tokens.new_full((n_rows, self.n_direct), self.n_tokens)
        reservoir, before, cache = (None, before, None) if state is None else state
        text, states = torch.cat([before, tokens], dim=1), None
        if self.trained_inputs:
            vectors = self._looked_up(self.trace_vectors, tokens)
            states, reservoir = self.traces.read(vectors, reservoir)
        elif self.state:
            states, reservoir = super().encode(tokens, reservoir)
        last = [text[:, self.n_direct - k :][:, :n_steps] for k in range(self.n_direct)]
        z = self._joined(states, last)
        if self.attention:
            context, cache = self.attend(z, cache)
            z = z + self.drop(context)
        after = text[:, text.shape[1] - self.n_direct :]
        return self._deepened(z), (reservoir, after, cache)

    def start(self, width: int) -> Tensor:
        """Return the hidden vector (width,) of the zero state and no last tokens."""
        states = self.mean.new_zeros((1, len(self.mean) if self._harvests_states else 0))
        last = states.new_full((1, self.n_direct), self.n_tokens)
        return self.hidden_of(torch.cat([states, last], dim=1), np.ones(1, dtype=np.int64))[0]

    def harvest(self, tokens: Ints64, starts: Ints64) -> Tensor:
        """States (n, N), unless inputs are trained, beside the last tokens (n, n_direct)."""
        last = last_tokens(tokens, np.arange(len(tokens)), starts, self.n_direct)
        last = np.where(last == NO_TOKEN, self.n_tokens, last)
        ids = on_device(last.astype(np.float32), self.device)  # which holds them exactly
        if not self._harvests_states:
            return ids
        return torch.cat([super().harvest(tokens, starts), ids], dim=1)

    def hidden_of(self, harvested: Tensor, lengths: Ints64) -> Tensor:
        """Return hidden vectors (n, width) of what `harvest` returned."""
        n_states = harvested.shape[1] - self.n_direct
        states = harvested[:, :n_states] if self.state else None
        last = list(harvested[:, n_states:].long().unbind(dim=1))
        if self.trained_inputs:
            states = self.traces(self._looked_up(self.trace_vectors, last[0]), lengths)
        z = self._joined(states, last)
        if self.attention:
            z = z + self.drop(self.attend.packed(z, lengths))
        return self._deepened(z)

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """As others', but vectors of tokens learn faster on a CPU, where a step moves few."""
        if self.device.type != "cpu":
            return super().parameter_groups(weight_decay)
        vectors = [table.weight for table in self.modules() if isinstance(table, nn.Embedding)]
        trained = self.trained_parameters().values()
        dense = [p for p in trained if all(p is not table for table in vectors)]
        sparse = {"sparse": True, "times": _FASTER, "weight_decay": weight_decay}
        return decaying(dense, weight_decay) + ([{"params": vectors, **sparse}] if vectors else [])

    def frozen_weights(self) -> list[Any]:
        """Return weights of the reservoir and its word features; without state, none."""
        if not self._harvests_states:
            return [self.reservoir.leak_rate_] if self.trained_inputs else []
        features = [self.inputs.vectors] if self.n_features else []
        return [*super().frozen_weights(), *features]

    @property
    def _harvests_states(self) -> bool:
        return self.state and not self.trained_inputs

    def _merged(self, settings: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
        coupled = {} if self.COUPLED.keys().isdisjoint(settings) else self.COUPLED
        return super()._merged(settings, **{**defaults, **coupled})

    def _joined(self, states: Tensor | None, last: list[Tensor]) -> Tensor:
        """States (..., N) and the last tokens, each (...) -> z (..., width)."""
        vectors = [self._looked_up(t, ids) for t, ids in zip(self.tokens, last, strict=True)]
        if states is not None:
            standardised = (states - self.mean) / self.deviation
            vector = self.read_state(standardised.to(self.read_state.weight.dtype))
            if self.gates:
                vector = vector * (2 * torch.sigmoid(self.gate(vectors[0])))
            vectors.insert(0, vector)
        if len(self.pairs):
            vectors.append(self._looked_up(self.pair_vectors, self._pair_rows(*last[:2])))
        z: Tensor = self.drop(sum(vectors[1:], vectors[0]))
        return z

    def _looked_up(self, table: Any, ids: Tensor) -> Tensor:
        """Vectors of tokens or pairs; their gradient is sparse where no device waits for that."""
        vectors = functional.embedding(ids, table.weight, sparse=self.device.type == "cpu")
        if not (self.training and self.token_dropout):
            return vectors
        return vectors * functional.dropout(vectors.new_ones((*ids.shape, 1)), self.token_dropout)

    def _deepened(self, z: Tensor) -> Tensor:
        """Return z (..., width) -> what the softmax reads."""
        for block in self.blocks:
            z = z + self.drop(block(z))
        return self.norm(z)

    def _pair_rows(self, newest: Tensor, before: Tensor) -> Tensor:
        """Rows of the last two tokens' vectors; the last row for pairs that have none."""
        keys = torch.where(before < self.n_tokens, before * self.n_tokens + newest, -1)
        rows = torch.searchsorted(self.pairs, keys).clamp_(max=len(self.pairs) - 1)
        return torch.where(self.pairs[rows] == keys, rows, len(self.pairs))

    def _find_pairs(self, stream: TokenStream) -> None:
        """Set the most frequent pairs of successive tokens, counted piece by piece."""
        starts = np.zeros(1, dtype=np.int64) if stream.starts is None else stream.starts
        counts = NgramCounts(self.n_tokens)
        for first in range(0, len(stream.tokens), PIECE):
            piece = stream.tokens[first : first + PIECE]
            inside = starts[(starts > first) & (starts < first + len(piece))] - first
            counts.add(last_tokens(piece, np.arange(len(piece)), np.append(0, inside), 2))
        pairs = counts.most_frequent(len(self.pairs))
        self.pairs[: len(pairs)] = torch.from_numpy(pairs).to(self.device)

    @torch.no_grad()
    def _begin_vectors(self, counts: Ints64) -> None:
        """Set the vectors of traces to the frozen inputs, of mean zero and variance one."""
        ids = torch.arange(self.n_tokens, device=self.device)[None]
        drives = self.recurrence.start(self.n_tokens)
        drives = self.recurrence.activate(self.inputs.add(ids, 0, drives)).t().double()
        weights = on_device(counts / max(1, counts.sum()), self.device)[:, None]
        drives = drives - (weights * drives).sum(dim=0)
        deviations = (weights * drives**2).sum(dim=0).sqrt().clamp(min=_LEAST_DEVIATION)
        self.trace_vectors.weight[:-1] = drives / deviations
        self.trace_vectors.weight[-1] = 0.0  # before the first token

    def _measure(self, stream: TokenStream) -> None:
        sample = evenly_spaced(stream, _SURVEYED)
        starts = np.zeros(1, dtype=np.int64) if sample.starts is None else sample.starts
        tokens = np.asarray(sample.tokens, dtype=np.int64)
        states = super().harvest(tokens, starts).double()
        self.mean.copy_(states.mean(dim=0))
        self.deviation.copy_(states.std(dim=0, correction=0).clamp(min=_LEAST_DEVIATION))


def _vectors(n: int, width: int) -> nn.Embedding:
    """Vectors to be trained, small at first."""
    return nn.Embedding.from_pretrained(0.02 * torch.randn(n, width), freeze=False)


def _pairs_of(n_tokens: int, n_direct: int, n_pairs: int | None) -> int:
    """Return number of pairs that have vectors."""
    if n_direct < 2:
        return 0
    return min(_MOST_PAIRS, n_tokens * n_tokens // 512) if n_pairs is None else n_pairs


def _normalised(vectors: Array, counts: Ints64) -> Array:
    """Features (V, F) whose entries have variance one over tokens that occur, on the whole."""
    return np.asarray(vectors / max(float(vectors[counts > 0].std()), 1e-6), dtype=np.float32)
