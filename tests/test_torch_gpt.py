"""The small GPT against transformers' rotary positions and torch's own attention."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from esnlm.torch.networks.gpt import GPT, _Layer, _turned  # noqa: E402

pytestmark = pytest.mark.torch

SMALL: dict[str, Any] = {"n_units": 16, "n_layers": 2, "n_heads": 2, "context": 12}


def small(**settings: Any) -> GPT:
    torch.manual_seed(0)
    return GPT(11, **(SMALL | settings)).eval()


def tokens_of(*shape: int) -> Tensor:
    return torch.randint(0, 11, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.hf
def test_vectors_are_turned_as_llamas() -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(hidden_size=32, num_attention_heads=4)
    queries, keys = torch.randn(2, 3, 4, 7, 8)
    cos, sin = llama.LlamaRotaryEmbedding(config)(queries, torch.arange(5, 12)[None])
    expected = llama.apply_rotary_pos_emb(queries, keys, cos, sin)
    for ours, theirs in zip((queries, keys), expected, strict=True):
        torch.testing.assert_close(_turned(ours, 5), theirs)


def test_attention_is_torchs_own() -> None:
    torch.manual_seed(0)
    layer = _Layer(16, 2, 0.0).eval()
    for parameter in layer.block[-1].parameters():
        parameter.data.zero_()
    x = torch.randn(3, 6, 16)
    read = layer.reads(layer.norm(x)).view(3, 6, 3, 2, 8).transpose(1, 3)
    queries, keys, values = read.unbind(2)
    queries, keys = (_turned(functional.rms_norm(each, (8,)), 0) for each in (queries, keys))
    heads = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    expected = x + layer.out(heads.transpose(1, 2).reshape(3, 6, 16))
    torch.testing.assert_close(layer(x, None)[0], expected)


def test_distances_count_and_places_do_not() -> None:
    vectors = torch.randn(2, 4, 8)
    here, there = (_turned(vectors, first) for first in (0, 9))
    torch.testing.assert_close(here[0] @ here[1].T, there[0] @ there[1].T)
    assert not torch.allclose(here[0] @ here[1].T, vectors[0] @ vectors[1].T)


@pytest.mark.parametrize("two_level", [True, False])
def test_probabilities_sum_to_one_and_the_loss_agrees(two_level: bool) -> None:
    network, tokens = small(two_level=two_level), tokens_of(1, 9)
    hidden = network.encode(tokens[:, :-1])[0][0]
    logs = functional.log_softmax(network.head(hidden), dim=-1)
    torch.testing.assert_close(logs.exp().sum(dim=-1), torch.ones(8))
    expected = -logs[torch.arange(8), tokens[0, 1:]]
    torch.testing.assert_close(network.loss(hidden, tokens[0, 1:]), expected)


def test_an_odd_head_is_refused() -> None:
    with pytest.raises(ValueError, match="n_units must be a multiple of 2 n_heads=6, got 16"):
        small(n_heads=3)
