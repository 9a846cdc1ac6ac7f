"""The character transformer against straightforward numpy and the paper's sizes."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from esnlm.torch.networks.windowed import CharacterTransformer, sinusoids  # noqa: E402

pytestmark = pytest.mark.torch

TEXT = np.random.default_rng(0).integers(0, 11, size=30)


def small(**settings):
    torch.manual_seed(1)
    kept = {"n_hidden": 6, "n_heads": 2, "n_layers": 2, "n_dims": 4, "context": 8} | settings
    return CharacterTransformer(11, **kept)


def softmax(x):
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def layer_norm(x, w, name):
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def one_layer(x, w, name, n_heads):
    """Vaswani's encoder layer, normalised after each part: x (L, D) -> (L, D)."""
    q, k, v = np.split(
        x @ w[f"{name}.self_attn.in_proj_weight"].T + w[f"{name}.self_attn.in_proj_bias"], 3, -1
    )
    heads = []
    for q_h, k_h, v_h in zip(*(np.split(part, n_heads, -1) for part in (q, k, v)), strict=True):
        heads.append(softmax(q_h @ k_h.T / np.sqrt(q_h.shape[1])) @ v_h)
    attended = np.concatenate(heads, -1) @ w[f"{name}.self_attn.out_proj.weight"].T
    x = layer_norm(x + attended + w[f"{name}.self_attn.out_proj.bias"], w, f"{name}.norm1")
    units = np.maximum(x @ w[f"{name}.linear1.weight"].T + w[f"{name}.linear1.bias"], 0)
    back = units @ w[f"{name}.linear2.weight"].T + w[f"{name}.linear2.bias"]
    return layer_norm(x + back, w, f"{name}.norm2")


def test_the_forward_pass_against_numpy():
    network = small().double().eval()
    w = {name: tensor.detach().numpy() for name, tensor in network.named_parameters()}
    angles = np.arange(8)[:, None] / 10_000 ** (np.arange(0, 4, 2) / 4)
    positions = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(8, 4)
    logits = network.head(network.encode(torch.from_numpy(TEXT)[None])[0])[0].detach()
    for position in range(len(TEXT)):
        window = TEXT[max(0, position - 7) : position + 1]
        x = w["embedding.weight"][window] + positions[8 - len(window) :]
        for layer in ("layers.0", "layers.1"):
            x = one_layer(x, w, layer, n_heads=2)
        expected = w["output.weight"] @ x[-1] + w["output.bias"]
        np.testing.assert_allclose(logits[position], expected, atol=1e-6)


def test_positions_are_those_of_the_paper():
    table = sinusoids(32, 16).double().numpy()
    for position in (0, 1, 31):
        for pair in range(8):
            angle = position / 10_000 ** (2 * pair / 16)
            found = table[position, 2 * pair : 2 * pair + 2]
            np.testing.assert_allclose(found, [np.sin(angle), np.cos(angle)], atol=1e-5)


def test_gradients_against_finite_differences():
    network = small(n_dims=2, n_heads=1, n_layers=1, n_hidden=3, context=3, dropout=0.0).double()
    tokens = torch.from_numpy(TEXT[:6].reshape(2, 3))
    parameters = tuple(network.parameters())
    assert torch.autograd.gradcheck(lambda *_: network.head(network.last(tokens)), parameters)


def test_parameter_counts():
    published = (15_000, 25_000, 50_000, 100_000, 155_000)
    for settings, about in zip(CharacterTransformer.PUBLISHED, published, strict=True):
        network = CharacterTransformer(59, **settings)
        count = sum(p.numel() for p in network.parameters())
        d, f = 16, network.n_hidden
        assert count == network.n_layers * (4 * d * d + 9 * d + 2 * d * f + f) + 2 * d * 59 + 59
        assert count == pytest.approx(about, rel=0.22)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="n_dims must be a multiple of n_heads=4"):
        small(n_heads=4, n_dims=6)
    with pytest.raises(ValueError, match="dropout"):
        small(dropout=1.0)
