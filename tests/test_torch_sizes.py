"""Settings for a number of parameters, against the networks that they make."""

import pytest

torch = pytest.importorskip("torch")

from esnlm.torch.networks.registry import (  # noqa: E402
    NETWORKS,
    merged,
    n_trained,
    network_class,
    settings_of_size,
)

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("n_parameters", "n_tokens"), [(6_000, 20), (15_000, 48), (50_000, 48)])
def test_networks_have_about_the_parameters_asked_for(name, n_parameters, n_tokens):
    if name == "gpt2":
        pytest.importorskip("transformers")
        n_parameters *= 4  # there are 1024 positions in any case
    settings = settings_of_size(name, n_parameters, n_tokens)
    network = network_class(name)(n_tokens, **settings)
    found = network.parameter_counts().trainable
    assert found == n_trained(name, settings, n_tokens)
    assert found == pytest.approx(n_parameters, rel=0.25)


GIVEN = {
    "laerc": {"reservoir_gradient": True, "expansion": 2},
    "esn": {"rank": 5, "reservoir": {"degree": 4}},
    "lstm": {"n_layers": 2, "two_level": True},
    "esn+i": {"two_level": True},
    "mts-lstm": {"n_layers": 4},
    "transformer": {"n_dims": 8},
}


@pytest.mark.parametrize("name", GIVEN)
def test_given_settings_stay(name):
    settings = settings_of_size(name, 9_000, 30, GIVEN[name])
    found = network_class(name)(30, **settings).parameter_counts().trainable
    assert found == n_trained(name, settings, 30)
    assert merged(settings, GIVEN[name]) == settings


def test_published_sizes_go_first():
    assert settings_of_size("aerc", 45_000, 48) == {"n_units": 100, "n_hidden": 20}
    found = settings_of_size("transformer", 155_000, 48)
    assert found == {"n_hidden": 256, "n_heads": 16, "n_layers": 16}
    found = settings_of_size("gpt2", 124_000_000, 50_257)
    assert found == {"n_units": 768, "n_heads": 12, "n_layers": 12}


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match="no esn with 50257 tokens has about 1000 trained"):
        settings_of_size("esn", 1000, 50_257)
    with pytest.raises(ValueError, match="model must be one of esn"):
        settings_of_size("dyck", 1000, 5)
