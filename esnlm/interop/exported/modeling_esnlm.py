"""A reservoir language model for transformers: frozen recurrence, trained readout.

Written beside the weights by ``esnlm export``; needs torch and transformers alone.

    h[t] = (1 - a) h[t-1] + a f(W h[t-1] + W_in u[t] + b)        log P(token | h[t])

``logits`` are natural log-probabilities: a softmax leaves them as they are. They are float64, since
a softmax over 50 000 of them in float32 is wrong by some 1e-5 nats a token.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, log_softmax, nll_loss
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

_ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "identity": lambda x: x}


class EsnlmConfig(PretrainedConfig):
    """Sizes and kinds of what ``model.safetensors`` holds.

    ``reset_token_id`` is the token before which the state returns to zero, or None; ``padding`` the
    id of the tokenizer's padding, which may lie past the vocabulary.
    """

    # Before it loads a tokenizer, transformers reads config.json and asks whether to run its code,
    # unless it knows the type. This one it knows, and has no models of: a model without its code
    # is still refused.
    model_type = "rag"

    def __init__(
        self,
        vocab_size: int = 1,
        reservoir: dict[str, Any] | None = None,
        readout: dict[str, Any] | None = None,
        reset_token_id: int | None = None,
        padding: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.reservoir = reservoir or {"n_units": 1, "nnz": 0, "n_inputs": vocab_size}
        self.readout = readout or {"kind": "linear", "n_outputs": vocab_size, "n_floors": 0}
        self.reset_token_id = reset_token_id
        self.padding = padding
        # A state has no longest text; harnesses cut their input at what stands here.
        lengths = {"n_positions": 1 << 20, "max_position_embeddings": 1 << 20}
        kwargs |= {"hidden_size": self.reservoir["n_units"], "num_hidden_layers": 1, **lengths}
        kwargs.setdefault("tie_word_embeddings", False)
        super().__init__(**kwargs)


@dataclass
class StateCache:
    """What generation continues from: ``states`` (batch, n_units) and ``n_seen`` tokens.

    ``last`` (batch, n_direct): the newest tokens, or None where no readout reads them.
    """

    is_compileable: ClassVar[bool] = False

    states: Any
    last: Tensor | None
    n_seen: int

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens read so far, padding included."""
        return self.n_seen

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder the states: beam i continues beam ``beam_idx[i]``."""
        self.states = self.states.index_select(0, beam_idx.to(self.states.device))
        if self.last is not None:
            self.last = self.last.index_select(0, beam_idx.to(self.last.device))


def check_dtype(dtype: torch.dtype) -> None:
    """Raise ValueError for types in which states and their sums mean nothing: 8 or 11 bits."""
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(
            "the model computes in float32 or float64: load it with dtype=torch.float32, got"
            f" {dtype}"
        )


def after_each(
    ids: Tensor,
    read: Tensor | None,
    reset: int | None,
    state: Tensor,
    start: int,
    step: Callable[[Tensor, int], Tensor],
) -> tuple[Tensor, Tensor]:
    """A state after each of ids (batch, length), stacked along dimension 1, and after the last.

    ``step(state, t)`` reads the token at t, where ``read`` (batch, length) lets it through (None:
    everywhere); before a token ``reset`` each entry of the state is ``start``.
    """
    states = []
    for t in range(ids.shape[1]):
        before = state
        if reset is not None:
            before = before.masked_fill((ids[:, t] == reset)[:, None], start)
        after = step(before, t)
        state = after if read is None else torch.where(read[:, t, None], after, state)
        states.append(state)
    return torch.stack(states, 1) if states else state[:, None].expand(-1, 0, -1), state


class Sparse(nn.Module):
    """A matrix (n_rows, n_columns) in compressed rows: data, indices and indptr."""

    def __init__(self, shape: tuple[int, int], nnz: int, index_dtype: str) -> None:
        super().__init__()
        self.shape = shape
        self.checked = False
        kind = getattr(torch, index_dtype)
        self.register_buffer("data", torch.zeros(nnz))
        self.register_buffer("indices", torch.zeros(nnz, dtype=kind))
        self.register_buffer("indptr", torch.zeros(shape[0] + 1, dtype=kind))

    def matrix(self) -> Tensor:
        """As a sparse tensor of torch; indices that do not fit raise the first time."""
        parts = self.indptr, self.indices, self.data
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
            made = torch.sparse_csr_tensor(*parts, self.shape, check_invariants=not self.checked)
        self.checked = True
        return made

    def rows(self, numbers: Tensor) -> Tensor:
        """Rows of those numbers (n,), dense: (n, n_columns)."""
        numbers = numbers.to(self.indptr.device)
        first = self.indptr[numbers].long()
        counts = self.indptr[numbers + 1].long() - first
        row = torch.repeat_interleave(torch.arange(len(numbers), device=counts.device), counts)
        before = counts.cumsum(0) - counts
        at = torch.arange(len(row), device=counts.device) + (first - before)[row]
        out = self.data.new_zeros(len(numbers), self.shape[1])
        out[row, self.indices[at].long()] = self.data[at]
        return out


class Reservoir(nn.Module):
    """Tokens (batch, length) to states (batch, length, n_units)."""

    def __init__(self, sizes: dict[str, Any], vocab_size: int, reset_token_id: int | None) -> None:
        super().__init__()
        self.n_units = n_units = sizes["n_units"]
        self.n_inputs = sizes["n_inputs"]
        self.reset_token_id = reset_token_id
        self.activation = _ACTIVATIONS[sizes.get("activation", "tanh")]
        index_dtype = sizes.get("index_dtype", "int32")
        self.recurrent = Sparse((n_units, n_units), sizes["nnz"], index_dtype)
        self.register_buffer("bias", torch.zeros(n_units))
        self.register_buffer("leak_rate", torch.zeros(n_units))
        shape = (self.n_inputs, n_units)  # W_in transposed: one row an input
        if sizes.get("input_nnz") is None:
            self.register_buffer("input", torch.zeros(shape))
        else:
            self.input = Sparse(shape, sizes["input_nnz"], index_dtype)
        # Word features drive the reservoir in place of the tokens themselves.
        features = torch.zeros(vocab_size, self.n_inputs) if sizes.get("features") else None
        self.register_buffer("features", features)

    def forward(self, ids: Tensor, read: Tensor | None, state: Tensor | None) -> Any:
        """States (batch, length, n_units) and the last one (batch, n_units); None: all zero.

        Tokens where ``read`` (batch, length) is False leave the state as it is.
        """
        drive = self._drive(ids if read is None else ids.masked_fill(~read, 0))
        if state is None:
            state = drive.new_zeros(len(ids), self.n_units)
        recurrent = self.recurrent.matrix()

        def step(before: Tensor, t: int) -> Tensor:
            inside = (recurrent @ before.T).T + drive[:, t]
            return before + self.leak_rate * (self.activation(inside) - before)

        return after_each(ids, read, self.reset_token_id, state, 0, step)

    def _drive(self, ids: Tensor) -> Tensor:
        """W_in u + b of each token: (batch, length, n_units)."""
        flat = ids.reshape(-1)
        sparse = isinstance(self.input, Sparse)
        if self.features is not None:
            columns = self.input.matrix().to_dense() if sparse else self.input
            rows = self.features[flat] @ columns
        else:
            rows = self.input.rows(flat) if sparse else self.input[flat]
        return (rows + self.bias).reshape(*ids.shape, self.n_units)


def _normalised(outputs: Tensor, floor: Tensor | None) -> Tensor:
    """Outputs to log-probabilities: softmax, or raised to ``floor`` and divided by their sum."""
    if outputs.device.type != "mps":  # the device that has no float64
        outputs = outputs.double()
    if floor is None:
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
        self.register_buffer("mean", torch.zeros(n_units))
        self.register_buffer("map", torch.zeros(n_units, n_units))
        self.experts = nn.Parameter(torch.zeros(n_experts, n_outputs, n_units + 1))
        self.gate = nn.Parameter(torch.zeros(n_experts, n_units + 1))
        self.register_buffer("floor", torch.zeros(n_floors) if n_floors else None)

    def forward(self, states: Tensor) -> Tensor:
        white = (states - self.mean) @ self.map
        gate = _normalised(linear(white, self.gate[:, :-1], self.gate[:, -1]), None)
        total = None
        for k, expert in enumerate(self.experts):  # one at a time: the vocabulary may be large
            outputs = linear(white, expert[:, :-1], expert[:, -1])
            share = gate[..., k, None]
            if self.floor is None:
                part = share + _normalised(outputs, None)
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
        logs = torch.cat([part + classes[..., c, None] for c, part in enumerate(parts)], dim=-1)
        return logs[..., self.position]


class LowRank(nn.Module):
    """A factored readout of a few linear components of the states.

    With ``n_direct`` of them, the last tokens (..., n_direct), the newest first and -1 for none,
    each add a vector to the components, and so do ``n_pairs`` pairs of the last two, which are
    numbered ``before * n_tokens + newest``.
    """

    def __init__(self, n_units: int, kind: dict[str, Any]) -> None:
        super().__init__()
        n_components, self.n_direct = kind["n_components"], kind.get("n_direct", 0)
        self.directions = nn.Parameter(torch.zeros(n_units, n_components))
        self.register_buffer("shift", torch.zeros(n_components))
        if self.n_direct:
            shape = (self.n_direct, kind["n_tokens"] + 1, n_components)
            self.direct = nn.Parameter(torch.zeros(shape))
        self.n_pairs, self.n_tokens = kind.get("n_pairs", 0), kind.get("n_tokens", 0)
        if self.n_pairs:
            self.register_buffer("pairs", torch.zeros(self.n_pairs, dtype=torch.int64))
            self.pair_direct = nn.Parameter(torch.zeros(self.n_pairs, n_components))
        self.inner = build_readout(n_components, kind["inner"])
        unigram = torch.zeros(kind["n_tokens"]) if kind.get("unigram") else None
        self.register_buffer("unigram", unigram)

    def forward(self, states: Tensor, last: Tensor | None = None) -> Tensor:
        components = states @ self.directions - self.shift
        if last is not None:
            for k, table in enumerate(self.direct):
                components = components + table[last[..., k]]
            if self.n_pairs:
                keys = last[..., 1] * self.n_tokens + last[..., 0]
                rows = torch.searchsorted(self.pairs, keys.contiguous()).clamp(max=self.n_pairs - 1)
                known = (self.pairs[rows] == keys) & (last[..., :2] >= 0).all(-1)
                components = components + self.pair_direct[rows] * known[..., None]
        logs = self.inner(components)
        if self.unigram is not None:
            kept = torch.log1p(-self.unigram.sum(dtype=torch.float64)).to(logs.dtype)
            logs = torch.logaddexp(logs + kept, self.unigram.to(logs.dtype).log())
        return logs


def build_readout(n_units: int, kind: dict[str, Any]) -> nn.Module:
    """The module that a description in ``config.json`` stands for."""
    name = kind["kind"]
    if name not in _READOUTS:
        raise ValueError(f"config.json names the readout {name!r}: export the model again")
    return _READOUTS[name](n_units, kind)


_READOUTS = {
    "linear": Linear, "uniform": Uniform, "mixture": Mixture, "factored": Factored,
    "low_rank": LowRank,
}  # fmt: skip


class EsnlmForCausalLM(PreTrainedModel, GenerationMixin):
    """Reservoir and readout as a causal language model.

    The state is zero before the first token that the attention mask lets through, and before
    every ``config.reset_token_id``. Padding, left or right, leaves the state as it is.
    """

    config_class = EsnlmConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    _is_stateful = True

    def __init__(self, config: EsnlmConfig) -> None:
        super().__init__(config)
        check_dtype(torch.get_default_dtype())  # of from_pretrained(dtype=...)
        self.reservoir = Reservoir(config.reservoir, config.vocab_size, config.reset_token_id)
        self.readout = build_readout(config.reservoir["n_units"], config.readout)
        self.n_direct = int(config.readout.get("n_direct", 0))
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Every weight comes from the file."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def get_input_embeddings(self) -> None:
        """None: tokens are columns of W_in."""

    def get_output_embeddings(self) -> None:
        """None: readouts are of several kinds."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: StateCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> Any:
        """Log-probabilities (batch, length, vocab_size) float64 of the token after each one.

        With ``labels`` (batch, length; -100 is left out) also the mean negative log-likelihood of
        the tokens after the first.
        """
        check_dtype(self.reservoir.bias.dtype)
        before = past_key_values or StateCache(None, None, 0)
        read = self._read(input_ids, attention_mask)
        states, after = self.reservoir(input_ids, read, before.states)
        kept = logits_to_keep
        if isinstance(kept, int):
            kept = slice(-kept if kept else None, None)
        last = before.last
        if self.n_direct:
            if last is None:
                last = input_ids.new_full((len(input_ids), self.n_direct), -1)

            def step(newest: Tensor, t: int) -> Tensor:
                return torch.cat([input_ids[:, t, None], newest[:, :-1]], dim=1)

            reset = self.config.reset_token_id
            tokens, last = after_each(input_ids, read, reset, last, -1, step)
            logits = self.readout(states[:, kept], tokens[:, kept])
        else:
            logits = self.readout(states[:, kept])
        loss = None
        if labels is not None:
            wanted = labels[:, kept][:, 1:].reshape(-1).to(logits.device)
            predicted = logits[:, :-1].reshape(-1, logits.shape[-1])
            loss = nll_loss(predicted, wanted, ignore_index=-100)
        cache = None
        if use_cache is not False:
            cache = StateCache(after, last, before.n_seen + input_ids.shape[1])
        hidden = (states,) if output_hidden_states else None
        out = CausalLMOutputWithPast(
            loss=loss, logits=logits, past_key_values=cache, hidden_states=hidden
        )
        return out.to_tuple() if return_dict is False else out

    def _read(self, ids: Tensor, attention_mask: Tensor | None) -> Tensor | None:
        """Which tokens (batch, length) are no padding; None: all of them."""
        padding = self.config.padding
        read = None
        if attention_mask is not None:
            read = attention_mask[:, attention_mask.shape[1] - ids.shape[1] :].bool()
        if padding is None or padding < self.config.vocab_size:
            return read
        # Padding past the vocabulary cannot be read; generation marks what follows EOS as read.
        return ids != padding if read is None else read & (ids != padding)
