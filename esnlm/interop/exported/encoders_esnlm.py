"""What reads tokens: a reservoir, a reservoir with trained layers, an LSTM.

An encoder is called with ids (batch, length), ``read`` (batch, length), False at padding or None,
and a state: what its last call returned, a tuple of tensors whose first dimension is the batch, or
None. It returns hidden vectors (batch, length, width) and the new state. Before a token
``reset_token_id`` the state returns to the beginning; padding leaves it as it is.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

State = tuple[Tensor, ...]
_ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "identity": lambda x: x}


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
            matrix = torch.sparse_csr_tensor(*parts, self.shape, check_invariants=not self.checked)
        self.checked = True
        return matrix

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

    def __init__(self, sizes: dict[str, Any], n_tokens: int, reset_token_id: int | None) -> None:
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
        features = torch.zeros(n_tokens, self.n_inputs) if sizes.get("features") else None
        self.register_buffer("features", features)

    def forward(self, ids: Tensor, read: Tensor | None, state: State | None) -> Any:
        """States (batch, length, n_units), and the last one (batch, n_units)."""
        drive = self._drive(ids)
        first = drive.new_zeros(len(ids), self.n_units) if state is None else state[0]
        recurrent = self.recurrent.matrix()

        def step(before: Tensor, t: int) -> Tensor:
            inside = (recurrent @ before.T).T + drive[:, t]
            return before + self.leak_rate * (self.activation(inside) - before)

        states, after = after_each(ids, read, self.reset_token_id, first, 0, step)
        return states, (after,)

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


class LastTokens(nn.Module):
    """The last tokens (batch, length, n), the newest first; ``none`` where there are none."""

    def __init__(self, n: int, none: int, reset_token_id: int | None) -> None:
        super().__init__()
        self.n, self.none, self.reset_token_id = n, none, reset_token_id

    def forward(self, ids: Tensor, read: Tensor | None, state: State | None) -> Any:
        first = ids.new_full((len(ids), self.n), self.none) if state is None else state[0]

        def step(before: Tensor, t: int) -> Tensor:
            return torch.cat([ids[:, t, None], before], dim=1)[:, : self.n]

        tokens, after = after_each(ids, read, self.reset_token_id, first, self.none, step)
        return tokens, (after,)


class LSTM(nn.Module):
    """An embedding and layers whose gates are in the order i, f, g, o, as in torch."""

    def __init__(self, sizes: dict[str, Any], n_tokens: int, reset_token_id: int | None) -> None:
        super().__init__()
        self.n_units, n = sizes["n_units"], sizes["n_units"]
        self.reset_token_id = reset_token_id
        self.embedding = nn.Embedding(n_tokens, n)
        self.layers = nn.ModuleList(nn.LSTMCell(n, n) for _ in range(sizes["n_layers"]))
        self.norm = nn.LayerNorm(n) if sizes["norm"] else nn.Identity()

    def forward(self, ids: Tensor, read: Tensor | None, state: State | None) -> Any:
        hidden, after = self.embedding(ids), []
        for k, layer in enumerate(self.layers):
            # Output and cell side by side, (batch, 2 n_units).
            first = hidden.new_zeros(len(ids), 2 * self.n_units) if state is None else state[k]

            def step(before: Tensor, t: int, layer: nn.LSTMCell = layer, x: Tensor = hidden) -> Any:
                return torch.cat(layer(x[:, t], before.chunk(2, dim=1)), dim=1)

            states, last = after_each(ids, read, self.reset_token_id, first, 0, step)
            hidden = states[..., : self.n_units]
            after.append(last)
        return self.norm(hidden), tuple(after)


class Attention(nn.Module):
    """Attention of each place to the last ``length`` places of its sequence, itself among them."""

    def __init__(self, width: int, n_heads: int, length: int) -> None:
        super().__init__()
        self.n_heads, self.length = n_heads, length
        self.norm = nn.LayerNorm(width)
        self.queries, self.others = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.distances = nn.Parameter(torch.zeros(n_heads, length))

    def forward(self, z: Tensor, place: Tensor, start: Tensor, memory: State) -> Any:
        """What places of z (batch, length, width) read, and the memory after them.

        ``place`` (batch, length) numbers the tokens that are read, -1 at padding; ``start`` is
        the number of the first token of their sequence. The memory: keys and values of places
        before, and their numbers.
        """
        parts = []
        for columns in range(0, z.shape[1], 256):  # memory does not grow with the square
            now = slice(columns, columns + 256)
            part, memory = self._read(z[:, now], place[:, now], start[:, now], memory)
            parts.append(part)
        return torch.cat(parts, dim=1), memory

    def _read(self, z: Tensor, place: Tensor, start: Tensor, memory: State) -> Any:
        normed = self.norm(z)
        others = torch.cat([memory[0], self.others(normed)], dim=1)
        places = torch.cat([memory[1], place], dim=1)
        q = self.queries(normed).unflatten(-1, (self.n_heads, -1))
        k, v = (each.unflatten(-1, (self.n_heads, -1)) for each in others.chunk(2, dim=-1))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / q.shape[-1] ** 0.5
        distance = place[:, :, None] - places[:, None]
        visible = (distance >= 0) & (distance < self.length)
        visible &= (places[:, None] >= start[:, :, None]) & (places >= 0)[:, None]
        by_distance = self.distances[:, distance.clamp(0, self.length - 1)].transpose(0, 1)
        # Padding reads itself: nothing would be no number.
        own = torch.eye(z.shape[1], places.shape[1], dtype=torch.bool, device=z.device)
        visible |= (place < 0)[:, :, None] & own.roll(places.shape[1] - z.shape[1], 1)
        shares = (
            (scores + by_distance).masked_fill(~visible[:, None], float("-inf")).softmax(dim=-1)
        )
        read = torch.einsum("bhij,bjhd->bihd", shares, v).flatten(-2)
        newest = places.argsort(dim=1, stable=True)[:, max(0, places.shape[1] - self.length + 1) :]
        rows = torch.arange(len(z), device=z.device)[:, None]
        return self.out(read), (others[rows, newest], places[rows, newest])


class Residual(nn.Module):
    """``B gelu(A LayerNorm(z) + a) + b``."""

    def __init__(self, width: int, n_hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, n_hidden), nn.Linear(n_hidden, width)

    def forward(self, z: Tensor) -> Tensor:
        return self.down(gelu(self.up(self.norm(z))))


class Layers(nn.Module):
    """A reservoir's state, the last tokens and frequent pairs of them, read by residual layers."""

    def __init__(self, sizes: dict[str, Any], n_tokens: int, reset_token_id: int | None) -> None:
        super().__init__()
        width, reservoir = sizes["width"], sizes["reservoir"]
        self.n_tokens, self.width, self.n_direct = n_tokens, width, sizes["n_direct"]
        self.reset_token_id = reset_token_id
        self.reservoir = self.attend = self.gate = None
        if reservoir is not None:
            self.reservoir = Reservoir(reservoir, n_tokens, reset_token_id)
            self.register_buffer("mean", torch.zeros(self.reservoir.n_units))
            self.register_buffer("deviation", torch.ones(self.reservoir.n_units))
            self.read_state = nn.Linear(self.reservoir.n_units, width)
        if sizes["gates"]:
            self.gate = nn.Linear(width, width)
        self.last = LastTokens(self.n_direct, n_tokens, reset_token_id)
        tables = (nn.Embedding(n_tokens + 1, width) for _ in range(self.n_direct))
        self.tokens = nn.ModuleList(tables)
        self.register_buffer("pairs", torch.zeros(sizes["n_pairs"], dtype=torch.int64))
        if sizes["n_pairs"]:
            self.pair_vectors = nn.Embedding(sizes["n_pairs"] + 1, width)
        if sizes["attention"]:
            self.attend = Attention(width, sizes["n_heads"], sizes["attention"])
        blocks = (Residual(width, sizes["n_hidden"]) for _ in range(sizes["n_blocks"]))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor, read: Tensor | None, state: State | None) -> Any:
        """Hidden (batch, length, width); the state: last tokens, counts, memory, reservoir."""
        if state is None:
            numbers = ids.new_zeros(2, len(ids))  # tokens read, and at the sequence's start
            memory = self.norm.weight.new_zeros(len(ids), 0, 2 * self.width)
            state = (None, *numbers, memory, ids.new_zeros(len(ids), 0), None)
        before, n_read, began, memory, places, inside = state
        last, (before,) = self.last(ids, read, None if before is None else (before,))
        vectors = [table(last[..., k]) for k, table in enumerate(self.tokens)]
        if self.reservoir is not None:
            states, (inside,) = self.reservoir(ids, read, None if inside is None else (inside,))
            from_state = self.read_state((states - self.mean) / self.deviation)
            if self.gate is not None:
                from_state = from_state * (2 * torch.sigmoid(self.gate(vectors[0])))
            vectors.insert(0, from_state)
        if len(self.pairs):
            vectors.append(self.pair_vectors(self._pair_rows(last[..., 0], last[..., 1])))
        z = sum(vectors[1:], vectors[0])
        if self.attend is not None:
            is_read = torch.ones_like(ids, dtype=torch.bool) if read is None else read
            place = n_read[:, None] + is_read.cumsum(dim=1) - 1
            begins = is_read & (ids == (-1 if self.reset_token_id is None else self.reset_token_id))
            start = torch.cat([began[:, None], place.masked_fill(~begins, 0)], dim=1)
            start = start.cummax(dim=1).values
            n_read, began = place[:, -1] + 1, start[:, -1]
            place = place.masked_fill(~is_read, -1)
            context, (memory, places) = self.attend(z, place, start[:, 1:], (memory, places))
            z = z + context
        for block in self.blocks:
            z = z + block(z)
        return self.norm(z), (before, n_read, began, memory, places, inside)

    def _pair_rows(self, newest: Tensor, before: Tensor) -> Tensor:
        """Rows of the last two tokens' vectors; the last row for pairs that have none."""
        none = (before >= self.n_tokens) | (newest >= self.n_tokens)
        keys = torch.where(none, -1, before * self.n_tokens + newest)
        rows = torch.searchsorted(self.pairs, keys).clamp(max=len(self.pairs) - 1)
        return torch.where(self.pairs[rows] == keys, rows, len(self.pairs))


class NoStates(nn.Module):
    """The encoder of n-grams, whose readout reads the last tokens alone."""

    def __init__(self, *sizes: Any) -> None:
        super().__init__()
        self.register_buffer("nothing", torch.zeros(1))  # transformers looks for a weight

    def forward(self, ids: Tensor, read: Tensor | None, state: State | None) -> Any:
        return self.nothing.new_zeros((*ids.shape, 0)), None


def build_encoder(kind: dict[str, Any], n_tokens: int, reset: int | None) -> nn.Module:
    """The module that a description in ``config.json`` stands for."""
    name = kind["kind"]
    if name not in _ENCODERS:
        raise ValueError(f"config.json names the encoder {name!r}: export the model again")
    return _ENCODERS[name](kind, n_tokens, reset)


_ENCODERS = {"reservoir": Reservoir, "layers": Layers, "lstm": LSTM, "none": NoStates}
