"""Several models as one: its probabilities, its weights, its folder, its command."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from esnlm import LanguageModel, NgramLanguageModel, Reservoir, RidgeReadout, load_model
from esnlm.__main__ import main
from esnlm.models.interpolated import InterpolatedModel
from esnlm.storage.model_folder import ModelFormatError
from esnlm.utils.interpolation import likeliest_weight, likeliest_weights, log_mixture

DOCS = ["the boy sees the dog\nthe dog walks", "the cats chase the dogs", "who sees"] * 4
HELD_OUT = ["the dog sees the boy", "the dogs walk"]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def three():
    """A reservoir's model and n-grams of two orders that share its tokenizer."""
    reservoir = Reservoir(20, random_state=0)
    first = LanguageModel(reservoir, RidgeReadout(), tokenizer="word").fit(DOCS)
    others = [NgramLanguageModel(n, tokenizer=first.tokenizer_).fit(DOCS) for n in (1, 3)]
    return [first, *others]


def test_probabilities_are_the_weighted_sum():
    models, weights = three(), [0.5, 0.2, 0.3]
    model = InterpolatedModel(models, weights=weights)
    parts = [np.exp(np.concatenate(each.log_likelihood(DOCS))) for each in models]
    found = np.exp(np.concatenate(model.log_likelihood(DOCS)))
    np.testing.assert_allclose(found, np.dot(weights, parts), rtol=1e-6)
    prefixes = ["the boy", "", "who sees the"]
    expected = sum(w * m.predict_proba(prefixes) for w, m in zip(weights, models, strict=True))
    np.testing.assert_allclose(model.predict_proba(prefixes), expected, rtol=1e-5)
    stream = model.tokenize(HELD_OUT)
    blocks = list(model._distributions(stream))
    places = np.concatenate([at for _, at in blocks])
    assert np.array_equal(np.sort(places), np.flatnonzero(stream.predicted()))
    rows = np.concatenate([rows for rows, _ in blocks])
    np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-6)
    own = np.log(rows[np.arange(len(places)), stream.tokens[places]])
    np.testing.assert_allclose(own, model._log_probabilities(stream)[places], atol=1e-5)
    assert isinstance(model.sample(5, prompt="the", random_state=0), str)
    assert model.surprisal("the boy sees")["surprisal_bits"].min() > 0


def test_distributions_of_long_sequences_are_those_of_their_scores(monkeypatch):
    monkeypatch.setattr("esnlm.models.interpolated._LONGEST", 8)
    monkeypatch.setattr("esnlm.models.interpolated.ROWS_AT_ONCE", 4)
    model = InterpolatedModel(three(), weights=[0.5, 0.2, 0.3])
    stream = model.tokenize(["the boy", "the boy sees the dog who sees the boys " * 3, "the dog"])
    blocks = list(model._distributions(stream))
    places = np.concatenate([at for _, at in blocks])
    assert np.array_equal(places, np.flatnonzero(stream.predicted()))
    own = np.log(
        np.concatenate([rows for rows, _ in blocks])[np.arange(len(places)), stream.tokens[places]]
    )
    np.testing.assert_allclose(own, model._log_probabilities(stream)[places], atol=1e-5)


def test_fitted_weights_are_those_of_a_minimiser():
    models = three()
    model = InterpolatedModel(models).fit(HELD_OUT)
    logs = np.stack([np.concatenate(each.log_likelihood(HELD_OUT)) for each in models])

    def loss(free):
        weights = np.append(free, 1 - free.sum())
        return -np.log(np.maximum(weights @ np.exp(logs), 1e-300)).mean()

    simplex = {"type": "ineq", "fun": lambda free: 1 - free.sum()}
    best = minimize(loss, [0.3, 0.3], bounds=[(0, 1)] * 2, constraints=simplex, tol=1e-12)
    assert -model.score(HELD_OUT) <= best.fun + 1e-8
    assert model.weights_.sum() == pytest.approx(1)
    alone = [-each.score(HELD_OUT) for each in [*models, model]]
    np.testing.assert_allclose(model.losses_, alone, atol=1e-12)
    rng = np.random.default_rng(0)
    pair = -rng.gamma(2.0, 1.0, size=(2, 500))
    assert likeliest_weights(pair)[0] == pytest.approx(likeliest_weight(*pair), abs=1e-4)


def test_impossible_tokens():
    logs = np.log([[0.5, 0.5], [0.25, 0.25]])
    assert likeliest_weights(logs).round(3).tolist() == [1.0, 0.0]
    never = np.array([[-np.inf, 0.0], [-np.inf, -np.inf]])
    assert log_mixture(never, np.array([0.5, 0.5])).tolist() == [-np.inf, np.log(0.5)]
    with pytest.raises(ValueError, match="impossible to all models"):
        likeliest_weights(never)
    with pytest.raises(ValueError, match="hold no token"):
        likeliest_weights(logs[:, :0])


def test_a_saved_model_is_the_same_model():
    model = InterpolatedModel(three(), weights=[0.6, 0.0, 0.4])
    model.save("model")
    found = load_model("model")
    assert isinstance(found, InterpolatedModel)
    for ours, theirs in zip(found.log_likelihood(DOCS), model.log_likelihood(DOCS), strict=True):
        assert np.array_equal(ours, theirs)
    nested = InterpolatedModel([found, three()[1]])
    nested.save("nested")
    assert load_model("nested").score(DOCS) == nested.score(DOCS)
    with pytest.raises(ModelFormatError, match="holds no LanguageModel: load it with"):
        LanguageModel.load("model")


def test_what_cannot_be_interpolated_is_refused():
    first, second, _ = three()
    with pytest.raises(ValueError, match="different tokenizers"):
        InterpolatedModel([first, NgramLanguageModel(2, "char").fit(DOCS)])
    both = InterpolatedModel([first, second], weights=[0.2, 0.8])
    for weights in ([0.5], [0.5, 0.6], [1.5, -0.5], [np.nan, 0.5], "0.5,0.5", {"first": 1}):
        with pytest.raises(ValueError, match="weights must be 2 shares that sum to 1, got"):
            both.set_params(weights=weights)
        assert (both.weights, both.weights_.tolist()) == ([0.2, 0.8], [0.2, 0.8])
        with pytest.raises(ValueError, match="weights must be 2 shares that sum to 1, got"):
            InterpolatedModel([first, second], weights=weights)
    with pytest.raises(ValueError, match="two fitted models at least, got 1"):
        InterpolatedModel([first])
    with pytest.raises(NotFittedError):
        InterpolatedModel([first, NgramLanguageModel(2)])
    with pytest.raises(ValueError, match=r"got 'model' in it: esnlm.load_model reads a folder"):
        InterpolatedModel([first, "model"])


def test_a_model_that_was_fitted_again_is_noticed():
    first, second = LanguageModel(random_state=0).fit(DOCS), NgramLanguageModel(2, "word").fit(DOCS)
    both = InterpolatedModel([first, second])
    both.save("both")
    copy = pickle.loads(pickle.dumps(both))
    assert copy.score(DOCS) == both.score(DOCS)
    nested = InterpolatedModel([both, first])
    second.fit(["one two three four five six seven eight nine ten eleven twelve"])
    for use in (both.score, both.predict_proba, both.surprisal, nested.score, both.fit):
        with pytest.raises(ValueError, match=r"model 2 was fitted again since, .* make a new"):
            use(DOCS)
    with pytest.raises(ValueError, match=r"model 2 was fitted again since"):
        both.save("both")
    assert load_model("both").score(DOCS) == copy.score(DOCS)
    second.fit(DOCS)
    assert both.set_params(models=[first, second]).score(DOCS) == copy.score(DOCS)


def test_copies_and_settings_follow_scikit_learn():
    model = InterpolatedModel(three()).fit(HELD_OUT)
    copy = clone(model)
    assert copy.models == model.models
    assert copy.weights_.tolist() == [1 / 3] * 3
    copy.set_params(weights=[1.0, 0.0, 0.0])
    assert copy.score(DOCS) == pytest.approx(model.models[0].score(DOCS))
    assert copy.set_params(models=model.models[:2], weights=None).weights_.tolist() == [0.5, 0.5]


def test_the_command_writes_a_model_of_models(capsys):
    for name, model in zip(("one", "two"), three(), strict=False):
        model.save(name)
    Path("text").write_text("\n\n".join(HELD_OUT) + "\n")
    assert main(["interpolate", "one", "two", "--held-out", "text", "--out", "both"]) == 0
    printed = capsys.readouterr().out
    expected = InterpolatedModel([load_model("one"), load_model("two")]).fit(HELD_OUT)
    assert load_model("both").weights_ == pytest.approx(expected.weights_, abs=1e-9)
    assert f"{-expected.score(HELD_OUT):.4f}" in printed
    assert main(["evaluate", "both", "text"]) == 0
    assert main(["interpolate", "one", "two", "--held-out", "text", "--out", "both"]) == 2
    assert "both exists" in capsys.readouterr().err
    assert main(["prepare", "text", "--tokenizer", "one", "--out", "shards"]) == 0
    on_shards = ["interpolate", "one", "two", "--held-out", "shards", "--out", "other"]
    assert main([*on_shards, "--documents", "line"]) == 2
    assert "shards were cut in tokens by prepare" in capsys.readouterr().err
    assert main(["interpolate", "one", "--held-out", "text", "--out", "other"]) == 2
    assert "two models at least, got one" in capsys.readouterr().err
