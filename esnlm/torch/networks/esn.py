"""Echo state networks trained by cross-entropy: low-rank output, or trained embedding."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn

from esnlm.models.language_model import LanguageModel
from esnlm.models.saving import describe, parameters, rebuild
from esnlm.readouts.softmax.softmax import SoftmaxReadout
from esnlm.readouts.softmax.variants import ReducedRankSoftmaxReadout
from esnlm.reservoir.reservoir import Reservoir
from esnlm.text.tokenizers import Tokenizer
from esnlm.torch.device import on_device
from esnlm.torch.networks.network import SHARE, Network, Settings, State
from esnlm.torch.networks.recurrence import FeatureInputs, Recurrence, TokenInputs, packed
from esnlm.torch.networks.two_level_softmax import TwoLevelSoftmax
from esnlm.utils.arrays import Arrays, Ints64
from esnlm.utils.state_dict import under_prefix, with_prefix
from esnlm.utils.validation import (
    Count,
    Flag,
    OneOf,
    at_fit,
    check_parameters,
    limited,
    unused_parameters,
)

#: Parameters of `output_layer` -> arrays of the core's readouts; a factor's are transposed.
_CORE_NAMES = {
    "weight": "coef_", "bias": "intercept_",
    "0.weight": "down_", "1.weight": "up_", "1.bias": "intercept_",
}  # fmt: skip


@dataclass(eq=False, repr=False, kw_only=True)
class ReservoirNetwork(Network):
    """A frozen `esnlm.Reservoir` driven by tokens; a subclass reads its states by `output`."""

    reads_ahead: ClassVar[bool] = True
    RESERVOIR: ClassVar[Settings] = {}

    #: A `Reservoir` with weights for its inputs is used as it is, and saved with the network;
    #: otherwise weights are drawn. A mapping holds parameters that differ from ``RESERVOIR``'s.
    reservoir: Any = None
    #: Features of the vectors that stand for tokens at the reservoir; 0: an input for each token.
    n_features: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Build reservoir and recurrence; raise ValueError if the number of inputs does not fit."""
        check_parameters(self)
        self._has_weights = isinstance(self.reservoir, Reservoir)
        if not self._has_weights:
            self.reservoir = Reservoir(**self._merged(self.reservoir or {}))
        reservoir: Reservoir = self.reservoir
        n_inputs = min(self.n_features, self.n_tokens) or self.n_tokens
        if not hasattr(reservoir, "W_"):
            reservoir.fit(n_inputs=n_inputs)
        if reservoir.n_inputs_ != n_inputs:
            name = "n_tokens" if n_inputs == self.n_tokens else "n_features"
            raise ValueError(
                f"the reservoir has {reservoir.n_inputs_} inputs, expected {name}={n_inputs}"
            )
        super().__post_init__()
        activation = at_fit(reservoir)["activation"]
        self.recurrence = Recurrence(reservoir.W_, reservoir.leak_rate_, activation)
        self.inputs: Any = (
            FeatureInputs(reservoir.W_in_, reservoir.bias_, self.n_tokens)
            if self.n_features
            else TokenInputs(reservoir.W_in_, reservoir.bias_)
        )

    @classmethod
    def family(cls) -> Iterator[Settings]:
        """Yield settings of reservoirs with 1, 2, 3 and more units."""
        yield from ({"reservoir": {"n_units": n}} for n in range(1, 1 << 20))

    def settings(self) -> Settings:
        """Return constructor arguments as JSON-compatible values, the reservoir as parameters."""
        return super().settings() | {"reservoir": describe(self.reservoir)["params"]}

    def given_weights(self) -> Arrays:
        """Return the weights of a `Reservoir` that was given: its seed may not draw them again."""
        return with_prefix("reservoir", self.reservoir.state_dict()) if self._has_weights else {}

    @classmethod
    def of_saved(cls, settings: Settings, weights: Arrays) -> "Network":
        """Return the network of saved settings, with the reservoir's weights if they are saved."""
        reservoir: Any = parameters({"class": "Reservoir", "params": settings["reservoir"]})
        if arrays := under_prefix("reservoir", weights):
            reservoir = Reservoir(**reservoir).load_state_dict(arrays)
        return cls(**settings | {"reservoir": reservoir})

    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Return states (B, T, N) of tokens (B, T), without gradient, and last states (B, N)."""
        drive = partial(self.inputs.add, tokens.t())
        states = self.recurrence.harvest(tokens.shape[1], drive, self._start(tokens, state))
        return states.permute(2, 0, 1), states[-1].t().clone()

    def _start(self, tokens: Tensor, state: State) -> Tensor:
        return self.recurrence.start(len(tokens)) if state is None else state.t().contiguous()

    def harvest(self, tokens: Ints64, starts: Ints64) -> Tensor:
        """Hidden (n, D) after each of tokens (n,), sequences beginning at ``starts`` (n_seq,)."""
        if self.recurrence.forwards.is_zero and self.device.type == "cpu":
            distinct, rows = np.unique(tokens, return_inverse=True)
            drive = partial(self.inputs.add, torch.from_numpy(distinct)[None])
            ends = np.append(starts[1:], len(tokens))
            return self.recurrence.harvest_uncoupled(drive, rows, ends)
        source, *rest = packed(starts, len(tokens))
        ids, restart, target = (on_device(array, self.device) for array in (tokens[source], *rest))
        drive = partial(self.inputs.add, ids)
        return self.recurrence.harvest_packed(drive, restart, target, len(tokens))

    def frozen_weights(self) -> list[Any]:
        return [self.reservoir.W_, self.reservoir.W_in_, self.reservoir.leak_rate_]

    def _merged(self, settings: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
        merged = (
            self.RESERVOIR | defaults | {name: rebuild(value) for name, value in settings.items()}
        )
        if merged.get("random_state") is None:  # drawn as all other weights are
            merged["random_state"] = int(torch.randint(2**31 - 1, ()))
        unused = unused_parameters(Reservoir, merged).keys() - settings.keys()
        return {name: value for name, value in merged.items() if name not in unused}


@dataclass(eq=False, repr=False, kw_only=True)
class EchoStateNetwork(ReservoirNetwork):
    """A frozen `esnlm.Reservoir` and a trained softmax of low rank (Ueda et al. 2025, eq. 1-4).

    The parameters of its reservoir are the paper's where none are given.
    """

    RESERVOIR: ClassVar[Settings] = {
        "n_units": 4096, "topology": "bernoulli", "degree": 32, "input_degree": 32,
        "spectral_radius": 0.99, "leak_rate": ("uniform", 0.0, 1.0),
    }  # fmt: skip

    #: Of the output matrix, at most the units; None: a full matrix.
    rank: int | None = limited(512, Count(none=True))
    #: Share of a state's units dropped before the output, in training.
    dropout: float = limited(0.0, SHARE)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.drop = nn.Dropout(self.dropout)
        n_units, dtype = len(self.reservoir.bias_), self.inputs.bias.dtype
        self.output = output_layer(n_units, self.n_tokens, self.rank, dtype)

    @classmethod
    def of_core(cls, model: LanguageModel) -> "EchoStateNetwork":
        """Return the network of a model whose states are driven by tokens and read by a softmax."""
        readout = model.readout_
        if model.features_ is not None or not isinstance(readout, SoftmaxReadout):
            kind = type(readout).__name__
            raise ValueError(
                f"torch does not compute word features, nor a {kind}: leave out the device"
            )
        rank = len(readout.up_) if isinstance(readout, ReducedRankSoftmaxReadout) else None
        network = cls(model.n_tokens_, reservoir=model.reservoir_, rank=rank)
        with torch.no_grad():
            for name, parameter in network.output.named_parameters():
                array = getattr(readout, _CORE_NAMES[name])
                parameter.copy_(torch.from_numpy(np.array(array.T if "." in name else array)))
        return network

    @staticmethod
    def count(n_tokens: int, **settings: Any) -> int:
        n, rank = settings["reservoir"]["n_units"], settings["rank"]
        if rank is None:
            return int(n_tokens * (n + 1))
        return int(min(rank, n, n_tokens) * (n + n_tokens) + n_tokens)

    def before_output(self, hidden: Tensor) -> Tensor:
        """Return states (..., N), with dropout in training."""
        dropped: Tensor = self.drop(hidden)
        return dropped

    def language_model(self, tokenizer: Tokenizer | None, reset: str) -> LanguageModel | None:
        """Return the core's model with the same weights: a softmax readout, full or of low rank."""
        first = self.output if self.rank is None else self.output[0]
        arrays = {"n_features_in_": np.asarray(first.in_features), "n_iter_": np.asarray(1)}
        for name, value in self.output.named_parameters():
            array = value.detach().cpu().numpy()
            arrays[_CORE_NAMES[name]] = np.ascontiguousarray(array.T if "." in name else array)
        arrays["classes_"] = np.arange(self.n_tokens)
        full = self.rank is None
        readout = SoftmaxReadout() if full else ReducedRankSoftmaxReadout(rank=first.out_features)
        readout.load_state_dict(arrays)
        reservoir = self._core_reservoir()
        return LanguageModel.of_parts(reservoir, readout, tokenizer=tokenizer, reset=reset)

    def _core_reservoir(self) -> Reservoir:
        return self.reservoir


@dataclass(eq=False, repr=False, kw_only=True)
class EchoStateNetworkWithEmbedding(EchoStateNetwork):
    """ESN+i: a frozen recurrence whose input weights are trained too (Ueda et al. 2025b).

    The gradient runs back through the frozen recurrence; a full softmax reads its states. The
    reservoir's input weights initialise the embedding. The paper's reservoir has half the
    recurrent weights zero and input weights N(0, 1). Its ESN is this network with
    ``train_embedding`` false.
    """

    reads_ahead: ClassVar[bool] = False
    RESERVOIR: ClassVar[Settings] = {
        "n_units": 512, "topology": "bernoulli", "spectral_radius": 0.993, "leak_rate": 0.8,
        "activation": "relu",
    }  # fmt: skip

    rank: int | None = limited(None, Count(none=True), two_level=OneOf((False,)))
    dropout: float = limited(0.1, SHARE)  #: after the embedding and before the output
    train_embedding: bool = limited(True, Flag())
    two_level: bool = limited(False, Flag())  #: classes of words first: faster, not the paper's
    #: The gradient is cut at every step that is a multiple of it.
    truncate: int | None = limited(None, Count(none=True), train_embedding=OneOf((True,)))

    def __post_init__(self) -> None:
        super().__post_init__()
        start = self.reservoir.W_in_.T
        start = start.toarray() if scipy.sparse.issparse(start) else start
        self.embedding = nn.Embedding.from_pretrained(
            torch.tensor(start), freeze=not self.train_embedding
        )
        del self.inputs.weights
        if self.two_level:
            softmax = TwoLevelSoftmax(len(self.reservoir.bias_), self.n_tokens)
            self.output = softmax.to(self.embedding.weight.dtype)

    @staticmethod
    def count(n_tokens: int, **settings: Any) -> int:
        n = settings["reservoir"]["n_units"]
        embedding = n * n_tokens if settings["train_embedding"] else 0
        if settings["two_level"]:
            return int(embedding + TwoLevelSoftmax.count(n, n_tokens))
        return EchoStateNetwork.count(n_tokens, **settings) + embedding

    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Return states (B, T, N) of tokens (B, T), with gradient, and last states (B, N)."""
        vectors = self.drop(self.embedding(tokens)).permute(1, 2, 0)
        drives = (vectors + self.inputs.bias).contiguous()
        states = self.recurrence(drives, self._start(tokens, state), self.truncate)
        return states.permute(2, 0, 1), states[-1].t()

    def frozen_weights(self) -> list[Any]:
        frozen = [] if self.train_embedding else [self.embedding.weight.detach()]
        return [self.reservoir.W_, self.reservoir.leak_rate_, *frozen]

    def language_model(self, tokenizer: Tokenizer | None, reset: str) -> LanguageModel | None:
        """Return the core's model with the same weights; None in two levels."""
        return None if self.two_level else super().language_model(tokenizer, reset)

    def _core_reservoir(self) -> Reservoir:
        start = self.reservoir
        W_in = self.embedding.weight.detach().cpu().numpy().T
        reservoir = Reservoir(**start.get_params() | {"input_degree": None})
        return reservoir.set_weights(start.W_, W_in, start.bias_, start.leak_rate_)

    def _merged(self, settings: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
        n_units = settings.get("n_units", self.RESERVOIR["n_units"])
        return super()._merged(settings, degree=max(1, n_units // 2), **defaults)


def output_layer(n_units: int, n_tokens: int, rank: int | None, dtype: torch.dtype) -> Any:
    """States (..., n_units) -> logits (..., n_tokens): ``A B h + b`` of a rank, or ``W h + b``.

    Initialised as torch's linear layers, as in Ueda et al. (2025, footnote 1).
    """
    if rank is None:
        return nn.Linear(n_units, n_tokens, dtype=dtype)
    rank = min(rank, n_units, n_tokens)
    down = nn.Linear(n_units, rank, bias=False, dtype=dtype)
    return nn.Sequential(down, nn.Linear(rank, n_tokens, dtype=dtype))
