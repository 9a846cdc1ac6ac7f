"""The n-gram model of text beside the counts it is made of, and beside a reservoir's model."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from esnlm import LanguageModel, Reservoir, RidgeReadout
from esnlm.__main__ import main
from esnlm.evaluation.minimal_pairs.scores import sentence_log_likelihoods
from esnlm.loading import load_model
from esnlm.models.ngram import NgramLanguageModel
from esnlm.ngrams.kneser_ney import KneserNey
from esnlm.storage.model_folder import ModelFormatError
from esnlm.text.corpus import CorpusError
from esnlm.text.prepare import prepare
from esnlm.text.shards import Shards
from esnlm.text.tokenizers import Tokenizer

DOCS = ["the boy sees the dog\nthe dog walks", "the cats chase the dogs", "who sees"] * 4
RESETS = ["sentence", "document", "never"]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("\n\n".join(DOCS) + "\n")


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("tokenizer", ["word", "char"])
def test_the_tokens_are_those_of_a_reservoirs_model(reset, tokenizer):
    model = NgramLanguageModel(order=3, tokenizer=tokenizer, reset=reset).fit(DOCS)
    peer = LanguageModel(
        Reservoir(5, random_state=0), RidgeReadout(), tokenizer=tokenizer, reset=reset
    )
    ours, theirs = model.tokenize(DOCS), peer.fit(DOCS).tokenize(DOCS)
    np.testing.assert_array_equal(ours.tokens, theirs.tokens)
    np.testing.assert_array_equal(ours.bounds, theirs.bounds)
    lengths = [len(scores) for scores in peer.log_likelihood(DOCS)]
    assert [len(scores) for scores in model.log_likelihood(DOCS)] == lengths
    assert model.n_tokens_ == peer.n_tokens_


@pytest.mark.parametrize("reset", RESETS)
def test_scores_are_those_of_the_counts(reset):
    model = NgramLanguageModel(order=3, tokenizer="word", reset=reset).fit(DOCS)
    stream = model.tokenize(DOCS)
    counts = KneserNey(order=3, n_tokens=model.n_tokens_).fit(stream.tokens, starts=stream.starts)
    scores = counts.log_probabilities(stream.tokens, stream.starts)[stream.predicted()]
    np.testing.assert_array_equal(np.concatenate(model.log_likelihood(DOCS)), scores)
    assert model.n_parameters_ == counts.n_parameters_


@pytest.mark.parametrize("reset", RESETS)
def test_each_token_has_the_probability_that_it_is_predicted_with(reset):
    model = NgramLanguageModel(order=4, tokenizer="word", reset=reset).fit(DOCS)
    text = "the dog sees the boy"
    (scores,) = model.log_likelihood([text])
    words = text.split()
    begins = int(reset == "never")  # there is no BOS, so the first word is not predicted
    for place in range(begins, len(words)):
        after = model.predict_proba(" ".join(words[:place]))
        assert after.sum() == pytest.approx(1, abs=1e-12)
        token = model.tokenizer_.encode(words[place])[0]
        assert np.log(after[token]) == pytest.approx(scores[place - begins])


def test_a_saved_model_scores_identically():
    model = NgramLanguageModel(order=3, tokenizer="word", discounts="single").fit(DOCS)
    model.save("model")
    for again in (NgramLanguageModel.load("model"), load_model("model", device="cpu")):
        assert again.get_params(deep=False) | {"tokenizer": None} == {
            "order": 3, "reset": "sentence", "n_tokens": None, "discounts": "single",
            "tokenizer": None,
        }  # fmt: skip
        for one, two in zip(model.log_likelihood(DOCS), again.log_likelihood(DOCS), strict=True):
            np.testing.assert_array_equal(one, two)
        assert again.sample(20, prompt="the", random_state=1) == model.sample(
            20, prompt="the", random_state=1
        )
        again.save("again")
    for path in Path("model").iterdir():
        assert path.read_bytes() == Path("again", path.name).read_bytes()


def test_an_order_to_be_fitted_changes_nothing_that_was():
    model = NgramLanguageModel(order=3, tokenizer="word").fit(DOCS)
    expected = model.predict_proba("the boy")
    model.set_params(order=1)
    np.testing.assert_array_equal(model.predict_proba("the boy"), expected)
    model.save("model")
    assert load_model("model").score(DOCS) == model.score(DOCS)


@pytest.mark.parametrize("order", [2, 3, 5, 9])
@pytest.mark.parametrize("docs", [["hello"], ["a b", "c d e"]])
def test_an_order_beyond_the_longest_text_is_saved_too(docs, order):
    model = NgramLanguageModel(order=order, tokenizer="word").fit(docs)
    model.save("model")
    assert load_model("model").score(docs) == model.score(docs)


def test_integers_without_a_tokenizer():
    model = NgramLanguageModel(order=2, n_tokens=5).fit([[0, 1, 2], [0, 2, 1]])
    model.save("model")
    assert load_model("model").predict_proba([0]).shape == (5,)
    assert model.sample(4, prompt=[0], random_state=0).shape == (4,)
    assert NgramLanguageModel(order=2).fit([[0, 1, 6]]).n_tokens_ == 7


def test_shards_are_counted_as_their_text():
    shards = prepare("text", "shards", "word")
    from_shards = NgramLanguageModel(order=3, tokenizer=shards.tokenizer).fit(
        Shards("shards").stream()
    )
    from_text = NgramLanguageModel(order=3, tokenizer=shards.tokenizer).fit(DOCS)
    for one, two in zip(
        from_text.log_likelihood(DOCS), from_shards.log_likelihood(DOCS), strict=True
    ):
        np.testing.assert_array_equal(one, two)


def test_minimal_pairs_are_scored():
    model = NgramLanguageModel(order=3, tokenizer="word").fit(DOCS)
    good, bad = sentence_log_likelihoods(model, ["the boy sees the dog", "boy the dog sees the"])
    assert good == pytest.approx(model.log_likelihood(["the boy sees the dog"])[0][:-1].sum())
    assert good > bad


def test_either_kind_of_folder_loads_and_is_not_taken_for_the_other():
    NgramLanguageModel(order=2, tokenizer="word").fit(DOCS).save("ngrams")
    LanguageModel(Reservoir(5, random_state=0), RidgeReadout(), tokenizer="word").fit(DOCS).save(
        "reservoir"
    )
    assert isinstance(load_model("ngrams"), NgramLanguageModel)
    assert isinstance(load_model("reservoir"), LanguageModel)
    with pytest.raises(ModelFormatError, match="holds no NgramLanguageModel"):
        NgramLanguageModel.load("reservoir")
    with pytest.raises(ModelFormatError):
        LanguageModel.load("ngrams")
    with pytest.raises(ModelFormatError, match="no such model folder"):
        load_model("none")


def test_every_altered_byte_is_noticed():
    NgramLanguageModel(order=2, tokenizer="word").fit(DOCS[:2]).save("model")
    for path in sorted(Path("model").iterdir()):
        data = path.read_bytes()
        for place in range(0, len(data), max(1, len(data) // 60)):
            path.write_bytes(data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :])
            with pytest.raises(ModelFormatError):
                load_model("model")
        path.write_bytes(data[:-1])
        with pytest.raises(ModelFormatError):
            load_model("model")
        path.write_bytes(data)
    load_model("model")


@pytest.mark.parametrize(
    ("settings", "docs", "error", "message"),
    [
        ({"order": 0}, DOCS, ValueError, "order must be an integer of at least 1, got 0"),
        ({"reset": "now"}, DOCS, ValueError, "reset must be one of"),
        ({"discounts": "none"}, DOCS, ValueError, "discounts must be"),
        ({"tokenizer": None, "n_tokens": 2}, [[0, 5]], ValueError, r"must lie in \[0, 2\)"),
        ({}, [], ValueError, "empty"),
        ({"tokenizer": None}, [[]], CorpusError, "hold no tokens"),
        ({"tokenizer": None}, [[1]], ValueError, "no token to predict"),
    ],
)
def test_bad_settings_and_documents(settings, docs, error, message):
    with pytest.raises(error, match=message):
        NgramLanguageModel(**{"tokenizer": "word", **settings}).fit(docs)


def test_use_before_fit():
    for use in ("log_likelihood", "score", "sample", "predict_proba", "tokenize"):
        with pytest.raises(NotFittedError):
            getattr(NgramLanguageModel(), use)(5 if use == "sample" else ["a"])
    with pytest.raises(NotFittedError):
        NgramLanguageModel().save("model")
    assert clone(NgramLanguageModel(order=4)).order == 4


def test_on_the_command_line(capsys):
    assert main(["ngram", "text", "--order", "3", "--out", "model"]) == 0
    assert "12 tokens" in capsys.readouterr().out
    assert main(["ngram", "text", "--out", "model"]) == 2
    assert "pass --overwrite" in capsys.readouterr().err
    assert load_model("model").order == 3
    prepare("text", "shards", Tokenizer.from_file("model/tokenizer.json"))
    assert main(["ngram", "shards", "--order", "3", "--out", "again"]) == 0
    for name in ("config.json", "weights.safetensors"):
        assert Path("model", name).read_bytes() == Path("again", name).read_bytes()
    assert main(["ngram", "shards", "--lower", "--out", "third"]) == 2
    assert "--lower and --documents are of text" in capsys.readouterr().err
    assert main(["ngram", "none", "--out", "third"]) == 2
    assert "no such file or folder: none" in capsys.readouterr().err
    assert not Path("third").exists()


def test_the_configuration_is_readable():
    NgramLanguageModel(order=3, tokenizer="word").fit(DOCS).save("model")
    config = json.loads(Path("model/config.json").read_text())
    assert config["kind"] == "ngrams"
    assert config["settings"]["order"] == 3
