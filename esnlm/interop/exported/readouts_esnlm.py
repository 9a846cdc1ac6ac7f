"""Readouts: states and last tokens to log-probabilities of the next token."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, log_softmax


def _normalised(outputs: Tensor, floor: Tensor | None, lowest: float | None = None) -> Tensor:
    """Outputs to log-probabilities: softmax, or raised to ``floor`` and divided by their sum.

    A softmax takes none for further below the largest than ``lowest``.
    """
    if outputs.device.type != "mps":  # the device that has no float64
        outputs = outputs.double()
    if floor is None:
        if lowest is not None:
            outputs = (outputs - outputs.amax(-1, keepdim=True)).clamp(min=lowest)
        return log_softmax(outputs, dim=-1)
    outputs = torch.maximum(outputs, floor)
    return torch.log(outputs) - torch.log(outputs.sum(-1, keepdim=True))


class Linear(nn.Module):
    """Ridge or softmax: states (..., n_units) to log-probabilities (..., n_outputs)."""

    def __init__(self, n_units: int, kind: dict[str, Any]) -> None:
        super().__init__()
        n_outputs, n_floors = kind["n_outputs"], kind["n_floors"]
        self.coef = nn.Parameter(torch.zeros(n_outputs, n_units))
        self.intercept = nn.Parameter(torch.zeros(n_outputs))
        self.register_buffer("floor", torch.zeros(n_floors) if n_floors else None)

    def outputs(self, states: Tensor) -> Tensor:
        """Before they are made probabilities."""
        return linear(states, self.coef, self.intercept)

    def forward(self, states: Tensor) -> Tensor:
        return _normalised(self.outputs(states), self.floor)


class Uniform(nn.Module):
    """The same probability for every output."""

    def __init__(self, n_units: int, kind: dict[str, Any]) -> None:
        super().__init__()
        self.n_outputs = kind["n_outputs"]

    def forward(self, states: Tensor) -> Tensor:
        return _normalised(states.new_zeros(*states.shape[:-1], self.n_outputs), None)


class Mixture(nn.Module):
    """A softmax gate over softmax experts, or over linear ones whose mean is floored."""

    def __init__(self, n_units: int, kind: dict[str, Any]) -> None:
        super().__init__()
        n_outputs, n_experts, n_floors = (kind[f"n_{n}"] for n in ("outputs", "experts", "floors"))
        self.lowest = kind.get("lowest")
        self.register_buffer("mean", torch.zeros(n_units))
        self.register_buffer("map", torch.zeros(n_units, n_units))
        self.experts = nn.Parameter(torch.zeros(n_experts, n_outputs, n_units + 1))
        self.gate = nn.Parameter(torch.zeros(n_experts, n_units + 1))
        self.register_buffer("floor", torch.zeros(n_floors) if n_floors else None)

    def forward(self, states: Tensor) -> Tensor:
        white = (states - self.mean) @ self.map
        gate = _normalised(linear(white, self.gate[:, :-1], self.gate[:, -1]), None, self.lowest)
        total = None
        for k, expert in enumerate(self.experts):  # one at a time: the vocabulary may be large
            outputs = linear(white, expert[:, :-1], expert[:, -1])
            share = gate[..., k, None]
            if self.floor is None:
                part = share + _normalised(outputs, None, self.lowest)
                total = part if total is None else torch.logaddexp(total, part)
            else:
                part = share.exp() * outputs
                total = part if total is None else total + part
        return _normalised(total, self.floor)


class Factored(nn.Module):
    """log P(class | h) + log P(word | class, h), for every word.

    Word factors give outputs class by class; ``position`` (n_outputs,) is the word's place there.
    """

    def __init__(self, n_units: int, kind: dict[str, Any]) -> None:
        super().__init__()
        self.sizes = kind["sizes"]
        self.classes = build_readout(n_units, kind["classes"])
        if "words" in kind:
            self.words = build_readout(n_units, kind["words"])
        else:
            self.words = nn.ModuleList(build_readout(n_units, part) for part in kind["factors"])
        self.register_buffer("position", torch.zeros(sum(self.sizes), dtype=torch.int64))

    def forward(self, states: Tensor) -> Tensor:
        classes = self.classes(states)
        if isinstance(self.words, Linear):
            floors = [None] * len(self.sizes)
            if self.words.floor is not None:
                floors = self.words.floor.split(self.sizes)
            outputs = self.words.outputs(states).split(self.sizes, dim=-1)
            parts = [_normalised(z, floor) for z, floor in zip(outputs, floors, strict=True)]
        else:
            parts = [factor(states) for factor in self.words]
        both = (part + classes[..., c, None] for c, part in enumerate(parts))
        logs = torch.cat([part.to(states.dtype) for part in both], dim=-1)
        return logs[..., self.position]


class LowRank(nn.Module):
    """A factored readout of a few linear components of the states.

    With ``n_direct`` of them, the last tokens (..., n_direct), the newest first and -1 for none,
    each add a vector to the components, and so do ``n_ngrams`` n-grams of the last two and three,
    which are numbered in base ``n_tokens``, longer ones after shorter ones.
    """

    def __init__(self, n_units: int, kind: dict[str, Any]) -> None:
        super().__init__()
        n_components, self.n_direct = kind["n_components"], kind.get("n_direct", 0)
        self.directions = nn.Parameter(torch.zeros(n_units, n_components))
        self.register_buffer("shift", torch.zeros(n_components))
        if self.n_direct:
            shape = (self.n_direct, kind["n_tokens"] + 1, n_components)
            self.direct = nn.Parameter(torch.zeros(shape))
        self.n_ngrams, self.n_tokens = kind.get("n_ngrams", 0), kind.get("n_tokens", 0)
        if self.n_ngrams:
            self.register_buffer("ngrams", torch.zeros(self.n_ngrams, dtype=torch.int64))
            self.ngram_direct = nn.Parameter(torch.zeros(self.n_ngrams, n_components))
        self.inner = build_readout(n_components, kind["inner"])
        unigram = torch.zeros(kind["n_tokens"]) if kind.get("unigram") else None
        self.register_buffer("unigram", unigram)

    def forward(self, states: Tensor, last: Tensor | None = None) -> Tensor:
        components = states @ self.directions - self.shift
        if last is not None:
            for k, table in enumerate(self.direct):
                components = components + table[last[..., k]]
            keys, first = last[..., 0], 0
            for k in range(1, min(self.n_direct, 3) if self.n_ngrams else 1):
                keys = keys + last[..., k] * self.n_tokens**k
                wanted, first = first + keys, first + self.n_tokens ** (k + 1)
                rows = torch.searchsorted(self.ngrams, wanted).clamp(max=self.n_ngrams - 1)
                known = (self.ngrams[rows] == wanted) & (last[..., : k + 1] >= 0).all(-1)
                components = components + self.ngram_direct[rows] * known[..., None]
        logs = self.inner(components)
        if self.unigram is not None:
            log_rest = torch.log1p(-self.unigram.sum(dtype=torch.float64)).to(logs.dtype)
            logs = torch.logaddexp(logs + log_rest, self.unigram.to(logs.dtype).log())
        return logs


class Ngrams(nn.Module):
    """N-grams with back-off weights of the last tokens, longest first in ARPA's sense.

    For each order: rising keys, the place of the context in the table one shorter times the size of
    the vocabulary, plus the token; natural logs; back-off weights. Every token is a unigram.
    """

    def __init__(self, n_units: int, kind: dict[str, Any]) -> None:
        super().__init__()
        self.n_tokens = kind["n_tokens"]
        self.order = len(kind["sizes"])
        for k, size in enumerate(kind["sizes"], start=1):
            self.register_buffer(f"keys_{k}", torch.zeros(size, dtype=torch.int64))
            for name in ("logs", "backoffs"):  # generation asks a parameter for the device
                values = nn.Parameter(torch.zeros(size), requires_grad=False)
                self.register_parameter(f"{name}_{k}", values)

    def table(self, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Keys, logs and back-off weights of an order."""
        return tuple(getattr(self, f"{name}_{k}") for name in ("keys", "logs", "backoffs"))

    def forward(self, states: Tensor, last: Tensor) -> Tensor:
        """Log-probabilities (n, n_tokens) after last tokens (n, order - 1), the newest first."""
        logs = self.logs_1.expand(len(last), -1).clone()
        for length in range(1, self.order):
            place = self._place(last[:, :length])
            known = place >= 0
            backoffs, (keys, values, _) = self.table(length)[2], self.table(length + 1)
            logs += torch.where(known, backoffs[place.clamp(min=0)], 0.0)[:, None]
            low, high = (torch.searchsorted(keys, (place + i) * self.n_tokens) for i in (0, 1))
            counts = (high - low) * known
            row = torch.repeat_interleave(counts)
            at = torch.arange(len(row), device=row.device) + (low - counts.cumsum(0) + counts)[row]
            logs[row, keys[at] % self.n_tokens] = values[at]
        return logs

    def _place(self, context: Tensor) -> Tensor:
        """Places (n,) of contexts (n, length), the newest token first; -1 where in no table."""
        place = context[:, -1]
        for k in range(2, context.shape[1] + 1):
            keys = self.table(k)[0]
            wanted = place * self.n_tokens + context[:, -k]
            near = torch.searchsorted(keys, wanted).clamp(max=max(len(keys) - 1, 0))
            is_there = (place >= 0) & (context[:, -k] >= 0)
            if len(keys):
                place = torch.where(is_there & (keys[near] == wanted), near, -1)
            else:
                place = torch.full_like(place, -1)
        return place


def build_readout(n_units: int, kind: dict[str, Any]) -> nn.Module:
    """The module that a description in ``config.json`` stands for."""
    name = kind["kind"]
    if name not in _READOUTS:
        raise ValueError(f"config.json names the readout {name!r}: export the model again")
    return _READOUTS[name](n_units, kind)


_READOUTS = {
    "linear": Linear, "uniform": Uniform, "mixture": Mixture, "factored": Factored,
    "low_rank": LowRank, "ngrams": Ngrams,
}  # fmt: skip
