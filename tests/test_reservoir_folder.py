"""A reservoir's own folder: the same states after loading, and no other folder taken for it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reservoirpy.nodes
from safetensors.numpy import load_file, save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from tampered import resealed

from esnlm import LanguageModel, Reservoir, RidgeReadout, load_model
from esnlm.reservoir.weights import TOPOLOGIES, WITH_DEGREE
from esnlm.storage.json_files import sealed
from esnlm.storage.model_folder import ModelFormatError

TOKENS = np.random.default_rng(0).integers(0, 5, 60)
SETTINGS: list[dict[str, Any]] = [
    *({"topology": each} | ({"degree": 4} if each in WITH_DEGREE else {}) for each in TOPOLOGIES),
    {"leak_rate": ("inverse_gamma", 0.6), "dtype": "float64", "bias_scaling": 0.3},
    {"leak_rate": np.linspace(0.1, 1, 24), "input_degree": 3, "washout": 7},
    {"activation": "relu", "spectral_radius": 0.5, "dtype": np.float64},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_states_are_the_same_to_the_last_bit(settings: dict[str, Any], tmp_path: Path) -> None:
    reservoir = Reservoir(24, random_state=None, **settings).fit(n_inputs=5)
    reservoir.save(tmp_path / "r")
    assert sorted(each.name for each in (tmp_path / "r").iterdir()) == [
        "config.json",
        "weights.safetensors",
    ]
    loaded = Reservoir.load(tmp_path / "r")
    np.testing.assert_array_equal(loaded.transform(TOKENS), reservoir.transform(TOKENS))
    assert loaded.transform(TOKENS).dtype == reservoir.transform(TOKENS).dtype
    assert repr(loaded.get_params()).replace("'", "") in (
        repr(reservoir.get_params()).replace("'", ""),
        repr(reservoir.get_params() | {"dtype": "float64"}).replace("'", ""),
    )


def test_weights_that_were_set_stay_set(tmp_path: Path) -> None:
    node = reservoirpy.nodes.Reservoir(20, lr=0.3, sr=0.9, seed=1)
    inputs = np.random.default_rng(0).normal(size=(30, 2))
    states = node.run(inputs)
    Reservoir.from_reservoirpy(node).save(tmp_path / "r")
    loaded = Reservoir.load(tmp_path / "r").fit(inputs)
    np.testing.assert_allclose(loaded.transform(inputs), states, atol=1e-12)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    reservoir = Reservoir(10, degree=3, random_state=0).fit(n_inputs=5)
    reservoir.save(tmp_path / "reservoir")
    model = LanguageModel(Reservoir(10, degree=3), RidgeReadout())
    model.fit([TOKENS]).save(tmp_path / "model")
    return tmp_path


def test_folders_of_the_other_kind_are_named_and_not_replaced(folders: Path) -> None:
    with pytest.raises(ModelFormatError, match=r"holds a reservoir, .* esnlm\.Reservoir\.load"):
        load_model(folders / "reservoir")
    with pytest.raises(ModelFormatError, match=r"holds a model, .* esnlm\.load_model"):
        Reservoir.load(folders / "model")
    reservoir = Reservoir.load(folders / "reservoir")
    with pytest.raises(FileExistsError, match="is not a reservoir"):
        reservoir.save(folders / "model")
    with pytest.raises(FileExistsError, match="is not a model"):
        load_model(folders / "model").save(folders / "reservoir")
    with pytest.raises(ModelFormatError, match="no such reservoir folder"):
        Reservoir.load(folders / "nothing")
    Reservoir(12, degree=3).fit(n_inputs=2).save(folders / "reservoir")
    assert Reservoir.load(folders / "reservoir").n_units == 12
    with pytest.raises(NotFittedError):
        Reservoir(12).save(folders / "other")
    assert not (folders / "other").exists()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("W.data", lambda a: a * np.nan, "W.data of .* must hold finite numbers"),
        ("W.indices", lambda a: a + 10, "indices must lie in"),
        ("bias", lambda a: a[1:].copy(), "not a whole reservoir"),
        ("leak_rate", None, "not a whole reservoir"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    folders: Path, name: str, change: Any, message: str
) -> None:
    place = folders / "reservoir" / "weights.safetensors"
    arrays = load_file(place)
    array = arrays.pop(name)
    save_file(arrays | ({} if change is None else {name: change(array)}), place)
    with pytest.raises(ModelFormatError, match="checksum"):
        Reservoir.load(folders / "reservoir")
    resealed(folders / "reservoir")
    with pytest.raises(ModelFormatError, match=message):
        Reservoir.load(folders / "reservoir")


@pytest.mark.parametrize("kind", ["reservoir", "model"])
def test_a_folder_from_before_the_parameter_washout_loads(folders: Path, kind: str) -> None:
    path = folders / kind / "config.json"
    config = json.loads(path.read_text())
    del config["config_sha256"]
    del config["reservoir"]["params"]["washout"]
    path.write_bytes(sealed(config, "config_sha256"))
    loaded = (
        Reservoir.load(path.parent) if kind == "reservoir" else load_model(path.parent).reservoir_
    )
    assert loaded.washout == 0


@pytest.mark.parametrize("topology", ["delay_line", "orthogonal"])
def test_weights_that_were_set_have_their_radius_after_loading(
    topology: str, tmp_path: Path
) -> None:
    """Whatever the topology is that would have been drawn."""
    reservoir = Reservoir(5, topology=topology, dtype="float64").fit(n_inputs=2)
    assert reservoir.spectral_radius_ == pytest.approx(0.97 * (topology == "orthogonal"))
    reservoir.set_weights(0.5 * np.eye(5) + np.eye(5, k=-1), np.ones((5, 2)), 0.0, 1.0)
    reservoir.save(tmp_path / "set")
    model = LanguageModel(reservoir, RidgeReadout(), n_tokens=2, reset="never")
    model.fit([TOKENS % 2]).save(tmp_path / "model")
    for each in (reservoir, Reservoir.load(tmp_path / "set"), clone(reservoir)):
        assert each.spectral_radius_ == 0.5
    assert load_model(tmp_path / "model").reservoir_.spectral_radius_ == 0.5
