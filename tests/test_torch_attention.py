"""Attention to the last places, against attention computed place by place and torch's own."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from esnlm.torch.networks.attention import Attention  # noqa: E402

pytestmark = pytest.mark.torch

WIDTH = 12


def layer(n_heads: int = 3, length: int = 4, width: int = WIDTH) -> Attention:
    torch.manual_seed(0)
    made = Attention(width, n_heads, length).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return made


def one_by_one(made: Attention, z: Any) -> Any:
    """What each place of one sequence z (T, width) reads, by loops over places and heads."""
    normed = made.norm(z)
    q = made.queries(normed).unflatten(1, (made.n_heads, -1))
    k, v = made.others(normed).unflatten(1, (2, made.n_heads, -1)).unbind(dim=1)
    rows = []
    for t in range(len(z)):
        heads = []
        for head in range(made.n_heads):
            seen = range(max(0, t - made.length + 1), t + 1)
            products = [q[t, head] @ k[u, head] / q.shape[2] ** 0.5 for u in seen]
            scores = [
                product + made.distances[head, t - u]
                for product, u in zip(products, seen, strict=True)
            ]
            shares = torch.stack(scores).exp()
            heads.append((shares / shares.sum()) @ torch.stack([v[u, head] for u in seen]))
        rows.append(torch.cat(heads))
    return made.out(torch.stack(rows))


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(1, 11), min_size=1, max_size=5), st.integers(1, 6), st.sampled_from([1, 3])
)
def test_sequences_end_to_end_read_what_each_would_alone(
    lengths: list[int], length: int, n_heads: int
) -> None:
    made = layer(n_heads, length)
    z = torch.from_numpy(np.random.default_rng(1).standard_normal((sum(lengths), WIDTH)))
    found = made.packed(z, np.array(lengths))
    expected = torch.cat([one_by_one(made, part) for part in z.split(lengths)])
    torch.testing.assert_close(found, expected)
    first, _ = made(z[None, : lengths[0]], None)
    torch.testing.assert_close(first[0], expected[: lengths[0]])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.integers(1, 6))
def test_text_in_pieces_reads_what_it_would_at_once(pieces: list[int], length: int) -> None:
    made = layer(3, length)
    rng = np.random.default_rng(2)
    z = torch.from_numpy(rng.standard_normal((2, sum(pieces), WIDTH)))
    whole, end = made(z, None)
    kept, found = None, []
    for part in z.split(pieces, dim=1):
        read, kept = made(part, kept)
        found.append(read)
    torch.testing.assert_close(torch.cat(found, dim=1), whole)
    assert kept is not None
    torch.testing.assert_close(kept, end)
    assert end.shape == (2, min(length - 1, sum(pieces)), 2 * WIDTH)


def test_with_all_places_in_reach_it_is_the_causal_attention_of_torch() -> None:
    made = layer(3, 20)
    with torch.no_grad():
        made.distances.zero_()
    theirs = torch.nn.MultiheadAttention(WIDTH, 3, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([made.queries.weight, made.others.weight]))
        theirs.in_proj_bias.copy_(torch.cat([made.queries.bias, made.others.bias]))
        theirs.out_proj.weight.copy_(made.out.weight)
        theirs.out_proj.bias.copy_(made.out.bias)
    z = torch.from_numpy(np.random.default_rng(3).standard_normal((4, 15, WIDTH)))
    normed, later = made.norm(z), torch.ones(15, 15).triu(1).bool()
    expected, _ = theirs(normed, normed, normed, attn_mask=later, need_weights=False)
    torch.testing.assert_close(made(z, None)[0], expected)


def test_its_gradient_is_that_of_finite_differences() -> None:
    made = layer(1, 3, width=4)
    z = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    lengths = np.array([5, 2])
    assert torch.autograd.gradcheck(lambda z: made.packed(z, lengths), (z,))
