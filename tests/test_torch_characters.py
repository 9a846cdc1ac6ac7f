"""Character networks as language models: folders, scores and samples."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from esnlm.loading import load_model  # noqa: E402
from esnlm.text.tokenizers import Tokenizer  # noqa: E402
from esnlm.torch.language_model import TorchLanguageModel  # noqa: E402
from esnlm.torch.networks.registry import network_class  # noqa: E402

pytestmark = pytest.mark.torch

TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer"
SMALL = {
    "char-esn": {"n_units": 12, "context": 8},
    "aerc": {"n_units": 12, "n_hidden": 3, "context": 8},
    "transformer": {"n_hidden": 6, "n_heads": 2, "n_layers": 2, "n_dims": 4, "context": 8},
    "laerc": {"n_dims": 4, "n_layers": 2, "last_radius": 0.95},
}


def model(name):
    torch.manual_seed(0)
    tokenizer = Tokenizer.train_characters([TEXT])
    network = network_class(name)(len(tokenizer), **SMALL[name])
    return TorchLanguageModel(network, tokenizer, reset="document")


@pytest.mark.parametrize("name", SMALL)
def test_a_folder_keeps_the_model(name, tmp_path):
    made = model(name)
    made.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    (expected,), (found,) = (m.log_likelihood([TEXT]) for m in (made, loaded))
    np.testing.assert_array_equal(found, expected)
    assert loaded.sample(5, prompt=TEXT, random_state=0) == made.sample(
        5, prompt=TEXT, random_state=0
    )
    assert {p.name for p in (tmp_path / "model").iterdir()} == {
        "config.json", "weights.safetensors", "tokenizer.json",
    }  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_scores_of_a_text_are_those_of_its_prefixes(name):
    made = model(name)
    ids = made.tokenizer_.encode(TEXT)
    (scores,) = made.log_likelihood([TEXT])
    for place in (1, 3, 8, 9, 40, len(ids) - 1):
        probabilities = made.predict_proba(TEXT[:place])
        assert probabilities.sum() == pytest.approx(1, abs=1e-9)
        found = np.log(probabilities[ids[place]])
        assert found == pytest.approx(scores[len(scores) - len(ids) + place], abs=1e-5)


@pytest.mark.parametrize("name", ["char-esn", "aerc", "transformer"])
def test_a_window_is_all_that_a_prediction_reads(name):
    made = model(name)
    made.network.eval()
    for text in (TEXT, TEXT[20:]):
        np.testing.assert_allclose(
            made.predict_proba(text), made.predict_proba(text[-8:]), atol=1e-6
        )
    tokens = torch.from_numpy(made.tokenizer_.encode(TEXT[:40]).astype(int)).view(2, 20)
    torch.testing.assert_close(made.network.last(tokens), made.network.last(tokens[:, -8:]))


@pytest.mark.parametrize("name", SMALL)
def test_bfloat16_is_near_float32(name):
    torch.manual_seed(0)
    network = network_class(name)(20, **SMALL[name]).eval()
    tokens = torch.randint(0, 20, (64, 9))
    losses = []
    for bf16 in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            losses.append(network.loss(network.last(tokens[:, :8]), tokens[:, 8]).mean())
    losses[1].backward()
    assert losses[1].item() == pytest.approx(losses[0].item(), abs=0.02)
