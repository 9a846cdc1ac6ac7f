"""GPT-2 against transformers' own, from scratch and from a folder."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from esnlm.__main__ import main  # noqa: E402
from esnlm.loading import load_model  # noqa: E402
from esnlm.storage.model_folder import ModelFormatError  # noqa: E402
from esnlm.text.tokenizers import Tokenizer  # noqa: E402
from esnlm.torch.language_model import TorchLanguageModel  # noqa: E402
from esnlm.torch.networks.gpt2 import (  # noqa: E402
    END_OF_TEXT,
    GPT2,
    pretrained,
)

pytestmark = [pytest.mark.torch, pytest.mark.hf]

SMALL = {"n_units": 16, "n_layers": 2, "n_heads": 4, "context": 12}
TEXT = ["the boy sees the dog", "the dog sees the boy", "a girl walks"]


def small(n_tokens=11, **settings):
    torch.manual_seed(0)
    return GPT2(n_tokens, **(SMALL | settings)).eval()


def own(network):
    """The model of transformers with the same weights."""
    model = transformers.GPT2LMHeadModel(network.transformer.config).eval()
    model.transformer.load_state_dict(network.transformer.state_dict())
    return model


def test_size_is_that_of_papers_000_and_001():
    with torch.device("meta"):
        count = sum(p.numel() for p in GPT2(50257).parameters())
    assert count == 124_439_808
    assert count == (50257 + 1024) * 768 + 12 * (12 * 768**2 + 13 * 768) + 2 * 768


def test_the_default_configuration_is_that_of_transformers():
    ours, theirs = small().transformer.config, transformers.GPT2Config()
    sizes = {"vocab_size", "n_embd", "n_layer", "n_head", "n_positions"}
    ends = {"bos_token_id", "eos_token_id"}
    kept = {k: v for k, v in theirs.to_dict().items() if k not in sizes | ends}
    assert kept.items() <= ours.to_dict().items()
    with torch.device("meta"):
        full = GPT2(50257).transformer.config
    assert all(getattr(full, name) == getattr(theirs, name) for name in sizes)


def test_scores_are_those_of_transformers():
    network = small()
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, 11, size=(3, 12)))
    with torch.no_grad():
        logits = network.head(network.encode(tokens)[0])
        expected = own(network)(tokens).logits
    torch.testing.assert_close(logits, expected)


def test_long_text_is_read_in_windows_that_overlap():
    network = small()
    text = np.random.default_rng(2).integers(0, 11, size=31)
    read = TorchLanguageModel(network, reset="never")
    scores = read.log_likelihood([text])[0]
    blocks = list(read._distributions(read.tokenize([text])))
    places = np.concatenate([places for _, places in blocks])
    assert places.tolist() == list(range(1, 31))
    own_rows = np.concatenate([rows for rows, _ in blocks])[np.arange(30), text[1:]]
    np.testing.assert_allclose(np.log(own_rows), scores, atol=1e-5)
    model = own(network)
    expected = []
    for t in range(1, 31):
        # The first window predicts 12 tokens; each after it moves on by 6.
        first = 0 if t <= 12 else min(-(-(t - 12) // 6) * 6, 30 - 12)
        with torch.no_grad():
            logits = model(torch.from_numpy(text[first:t])[None]).logits[0, -1]
        expected.append(float(torch.log_softmax(logits, dim=-1)[text[t]]))
    np.testing.assert_allclose(scores, expected, atol=1e-5)


@pytest.fixture
def folder(tmp_path):
    """A folder as transformers writes it, with byte pairs learned from a few sentences."""
    from tokenizers import ByteLevelBPETokenizer

    made = ByteLevelBPETokenizer()
    made.train_from_iterator(TEXT * 5, vocab_size=280, special_tokens=[END_OF_TEXT])
    path = tmp_path / "gpt2"
    path.mkdir()
    made.save(str(path / "tokenizer.json"))
    made.save_model(str(path))
    own(small(made.get_vocab_size())).save_pretrained(path)
    return path


def test_a_pretrained_folder_scores_as_in_transformers(folder):
    model = pretrained(folder)
    reference = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    sentence = TEXT[0]
    end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    ids = [end, *tokenizer.encode(sentence, add_special_tokens=False), end]
    with torch.no_grad():
        logits = reference(torch.tensor([ids])).logits[0]
    expected = torch.log_softmax(logits[:-1], -1)[torch.arange(len(ids) - 1), ids[1:]]
    (found,) = model.log_likelihood([sentence])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_vocabulary_and_merges_are_as_good_as_a_tokenizer_file(folder):
    expected = pretrained(folder).log_likelihood(TEXT)
    (folder / "tokenizer.json").unlink()
    found = pretrained(folder).log_likelihood(TEXT)
    for scores, others in zip(found, expected, strict=True):
        np.testing.assert_allclose(scores, others)


def test_commands_take_a_pretrained_folder(folder, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(TEXT))
    assert main(["evaluate", str(folder), str(text), "--bins", str(text)]) == 0
    shown = capsys.readouterr().out
    assert "perplexity" in shown
    assert "<100" in shown


@pytest.mark.parametrize(
    "changes", [{"n_positions": 10**9}, {"n_head": "x"}, {"use_cache": 7}, {"vocab_size": None}]
)
def test_a_configuration_of_another_kind_is_refused(changes, folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(ModelFormatError, match="gpt2 "):
        pretrained(folder)


def thin(folder):
    """Leave out a matrix."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["transformer.wpe.weight"]
    save_file(weights, path, metadata={"format": "pt"})


def test_it_trains_by_the_command_line(tmp_path):
    text, out = tmp_path / "text.txt", tmp_path / "model"
    text.write_text("\n".join(TEXT * 20))
    options = ["--model", "gpt2", "--units", "16", "--device", "cpu", "--out", str(out)]
    for name in ("n_layers=1", "n_heads=2", "context=16", "dropout=0"):
        options += ["--option", name]
    plan = ["--passes", "6", "--batch-size", "4", "--learning-rate", "0.01"]
    assert main(["train", str(text), *options, *plan]) == 0
    model = load_model(out)
    assert model.network.settings()["context"] == 16
    assert model.perplexity(TEXT) < 4


def change(folder, **changed):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "holds no model of transformers"),
        (lambda f: change(f, model_type="opt"), "holds no GPT-2"),
        (lambda f: change(f, activation_function="relu"), "has activation_function = 'relu'"),
        (lambda f: (f / "model.safetensors").unlink(), "has no weights in safetensors"),
        (lambda f: (f / "model.safetensors").write_bytes(b"?"), "is not a whole model"),
        (lambda f: thin(f), "it lacks transformer.wpe.weight"),
        (lambda f: [(f / n).unlink() for n in ("tokenizer.json", "merges.txt")], "no merges.txt"),
    ],
)
def test_folders_that_hold_no_such_model(folder, spoil, message):
    spoil(folder)
    with pytest.raises(ModelFormatError, match=message):
        pretrained(folder)


def test_a_tokenizer_of_another_model(folder):
    Tokenizer.train_words(TEXT, boundaries=True).backend.save(str(folder / "tokenizer.json"))
    with pytest.raises((ModelFormatError, ValueError), match="endoftext"):
        pretrained(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_heads": 3}, "n_units must be a multiple of n_heads=3, got 16"),
        ({"context": 0}, "context must be an integer of at least 1, got 0"),
    ],
)
def test_settings_that_make_no_network(settings, message):
    with pytest.raises(ValueError, match=message):
        small(**settings)
