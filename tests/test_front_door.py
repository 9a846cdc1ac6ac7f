"""What a notebook calls first: prefixes in lists, next words, surprisal tables, plots, types."""

import csv
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn import config_context
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

import esnlm
from esnlm import LanguageModel, NgramLanguageModel, Reservoir, RidgeReadout, Tokenizer
from esnlm.__main__ import main
from esnlm.evaluation.interpolation import InterpolatedModel

mpl.use("agg")
DOCS = ["the boy sees the dog .", "the dog sees the boys .", "boys see Mary ."] * 4
PREFIXES = ["", "the", "the boy sees", "boys"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def reservoir_model(reset: str = "sentence", tokenizer: Any = "word") -> LanguageModel:
    reservoir = Reservoir(30, degree=4, random_state=0)
    return LanguageModel(reservoir, RidgeReadout(), tokenizer=tokenizer, reset=reset).fit(DOCS)


def ngrams(reset: str = "sentence", tokenizer: Any = "word") -> NgramLanguageModel:
    return NgramLanguageModel(order=3, tokenizer=tokenizer, reset=reset).fit(DOCS)


def network() -> Any:
    torch = pytest.importorskip("torch")
    from esnlm.torch.language_model import TorchLanguageModel
    from esnlm.torch.networks.registry import network_class

    torch.manual_seed(0)
    tokenizer = Tokenizer.train_words(DOCS)
    kind = network_class("lstm")
    return TorchLanguageModel(kind(len(tokenizer), n_units=8).eval(), tokenizer)


def mixed() -> InterpolatedModel:
    return InterpolatedModel(reservoir_model(), ngrams(), 0.4)


def of_bytes() -> Tokenizer:
    entries = {
        piece: i for i, piece in enumerate(["</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())])
    }
    backend = Backend(models.BPE(entries, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend, bos="</s>", eos="</s>").prepend_bos()


MODELS = [reservoir_model, ngrams, mixed, pytest.param(network, marks=pytest.mark.torch)]


@pytest.mark.parametrize("make", MODELS)
def test_a_list_of_prefixes_has_a_row_for_each(make):
    model = make()
    several = model.predict_proba(PREFIXES)
    assert several.shape == (len(PREFIXES), model.n_tokens_)
    for prefix, row in zip(PREFIXES, several, strict=True):
        np.testing.assert_allclose(row, model.predict_proba(prefix), atol=1e-6)
    np.testing.assert_array_equal(several, model.predict_proba(pd.Series(PREFIXES)))
    ids = [[1, 3], [1, 4, 5], np.array([], dtype=int)]
    rows = model.predict_proba(ids)
    for one, row in zip(ids, rows, strict=True):
        np.testing.assert_allclose(row, model.predict_proba(one), atol=1e-6)
    assert model.predict_proba(np.array([[1, 3], [1, 4]])).shape == (2, model.n_tokens_)
    assert model.predict_proba([1, 3]).shape == (model.n_tokens_,)
    assert model.predict_proba([]).shape == (model.n_tokens_,)


def test_prefixes_that_are_wrong_are_refused():
    model = reservoir_model()
    with pytest.raises(ValueError, match="1-D array of integers"):
        model.predict_proba([[0.5]])
    with pytest.raises(ValueError, match=r"got text, expected integer arrays"):
        NgramLanguageModel(order=2).fit([[0, 1, 2]]).predict_proba(["the"])
    with pytest.raises(ValueError, match="k must"):
        model.next_words("the", k=0)


@pytest.mark.parametrize("make", MODELS)
def test_next_words_are_the_most_probable(make):
    model = make()
    found = model.next_words("the boy", k=4)
    expected = model.predict_proba("the boy")
    assert [word for word, _ in found] == [
        model.tokenizer_.vocabulary[i] for i in np.argsort(-expected, kind="stable")[:4]
    ]
    assert [p for _, p in found] == pytest.approx(sorted(expected)[:-5:-1], abs=1e-6)
    everything = model.next_words("the boy", k=1000)
    assert sum(p for _, p in everything) == pytest.approx(1, abs=1e-5)
    assert pd.DataFrame(found).columns.tolist() == ["word", "probability"]


def test_next_words_without_tokenizer_are_numbers_and_sub_words_are_text():
    model = NgramLanguageModel(order=2).fit([[0, 1, 2, 1, 2]])
    assert model.next_words([1], k=1)[0].word == 2
    words = [word for word, _ in ngrams(tokenizer=of_bytes()).next_words("the", k=300)]
    assert words[0] == " "
    assert "</s>" in words
    assert "Ã" in words  # the first byte of two is no text


@pytest.mark.parametrize("reset", ["sentence", "document", "never"])
@pytest.mark.parametrize("make", [reservoir_model, ngrams])
@pytest.mark.parametrize("tokens", ["word", "char", "bytes"])
def test_a_table_of_surprisal_has_a_row_a_word_and_sums_to_the_whole(make, reset, tokens):
    tokenizer = of_bytes() if tokens == "bytes" else tokens
    model = make(reset, tokenizer)
    text = ["the boy sees\n\nthe dog .", "boys see Mary ."]
    table = model.surprisal(text)
    assert table["word"].tolist() == " ".join(text).split()
    assert table["position"].tolist() == [1, 2, 3, 1, 2, 3, 1, 2, 3, 4]
    assert table["document"].tolist() == [1] * 6 + [2] * 4
    assert table["length"].tolist() == [len(word) for word in table["word"]]
    Path("text").write_text("\n\n".join(text).replace("\n\nthe", "\nthe") + "\n")
    model.save("model")
    assert main(["evaluate", "model", "text", "--surprisal-csv", "words.csv"]) == 0
    with open("words.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    ends = model.tokenizer_.eos
    if tokens == "word" or reset == "sentence":
        bits = [float(row["surprisal_bits"]) for row in rows if row["string"] != ends]
        assert table["surprisal_bits"].tolist() == pytest.approx(bits, rel=1e-4, abs=1e-6)


def test_the_sum_of_a_sentence_and_its_end_is_its_negative_log_likelihood():
    model = ngrams()
    table = model.surprisal("the boy sees Mary")
    (scores,) = model.log_likelihood("the boy sees Mary")
    np.testing.assert_allclose(table["surprisal_bits"] * np.log(2), -scores[:-1])
    assert table["n_tokens"].tolist() == [1] * 4


def test_frequencies_are_those_of_the_training_text_or_of_counts():
    counts = Counter(" ".join(DOCS).lower().split())
    expected = {word: np.log((n + 1) / counts.total()) for word, n in counts.items()}
    for model in (reservoir_model(), ngrams()):
        model.save("model")
        for each in (model, esnlm.load_model("model")):
            table = each.surprisal("The boy, sees cats")
            found = dict(zip(table["word"], table["log_frequency"], strict=True))
            assert found["The"] == pytest.approx(expected["the"])
            assert found["boy,"] == pytest.approx(expected["boy"])
            assert found["cats"] == pytest.approx(-np.log(counts.total()))
        given = model.surprisal("The boy", counts={"the": 3, "The": 1, "dog": 6})
        assert given["log_frequency"].tolist() == pytest.approx(np.log([0.5, 0.1]))
        same = model.surprisal("The boy", counts=["the the", "dog " * 6 + "The the"])
        assert same["log_frequency"].tolist() == pytest.approx(np.log([0.5, 0.1]))
    for tokens in ("char", of_bytes()):
        assert ngrams(tokenizer=tokens).surprisal("the boy")["log_frequency"].isna().all()


def test_frequencies_grow_with_what_is_learned():
    model = reservoir_model()
    before = model.token_counts_.copy()
    model.partial_fit(["the boy"])
    assert (model.token_counts_ - before).sum() == 3  # two words and the end
    parts = LanguageModel.of_parts(model.reservoir_, model.readout_, tokenizer=model.tokenizer_)
    assert parts.surprisal("the boy")["log_frequency"].isna().all()


def test_surprisal_of_what_is_no_text_is_refused():
    with pytest.raises(ValueError, match="surprisal reads text, got a document of"):
        reservoir_model().surprisal([[1, 2]])
    with pytest.raises(ValueError, match="set a tokenizer"):
        NgramLanguageModel(order=2).fit([[0, 1, 2]]).surprisal("the")


def test_states_as_a_data_frame():
    vectors = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), index=range(5, 35))
    plain = Reservoir(6, degree=2, random_state=0).fit_transform(vectors)
    reservoir = Reservoir(6, degree=2, random_state=0).set_output(transform="pandas")
    table = reservoir.fit_transform(vectors)
    assert table.columns.tolist() == reservoir.get_feature_names_out().tolist()
    assert table.columns[0] == "reservoir0"
    assert table.index.tolist() == vectors.index.tolist()
    assert reservoir.n_features_in_ == 2
    np.testing.assert_array_equal(table.to_numpy(), plain)
    regression = make_pipeline(reservoir, Ridge()).fit(vectors, vectors[0])
    assert regression[-1].feature_names_in_.tolist() == table.columns.tolist()
    assert not hasattr(Reservoir(6), "n_features_in_")


def test_a_model_does_not_mind_data_frames():
    expected = reservoir_model().predict_proba("the boy")
    with config_context(transform_output="pandas"):
        model = reservoir_model()
        np.testing.assert_allclose(model.predict_proba("the boy"), expected, atol=1e-6)
        node = model.reservoir_.to_reservoirpy()
        assert np.isfinite(node.run(np.eye(model.n_tokens_))).all()
        states = model.reservoir_.advance(np.zeros(30), 1)
    assert isinstance(states, np.ndarray)


def test_sequences_of_unequal_length():
    rng = np.random.default_rng(0)
    for sequences in (
        [rng.normal(size=(n, 2)) for n in (5, 1, 9)],
        [rng.integers(0, 7, size=n) for n in (5, 1, 9)],
        [np.array([0, 3]), np.array([6, 1])],
    ):
        reservoir = Reservoir(8, degree=2, random_state=0)
        found = reservoir.fit_transform(sequences)
        assert reservoir.n_inputs_ == (2 if sequences[0].ndim == 2 else 7)
        for sequence, states in zip(sequences, found, strict=True):
            np.testing.assert_array_equal(states, reservoir.transform(sequence))
    with pytest.raises(ValueError, match=r"a list of arrays, one a sequence, got .* \[1, 2\]"):
        reservoir.transform([[0, 1], [2]])
    with pytest.raises(ValueError, match="transform each by itself"):
        reservoir.set_output(transform="pandas").transform(sequences)


def test_plots_return_axes():
    model = reservoir_model()
    given = Figure().add_subplot()
    axis = esnlm.plot_surprisal(
        {"a": model.surprisal("the boy"), "b": ngrams().surprisal("the boy")}
    )
    assert [text.get_text() for text in axis.get_xticklabels()] == ["the", "boy"]
    heights = [patch.get_height() for patch in axis.patches]
    assert heights[:2] == model.surprisal("the boy")["surprisal_bits"].tolist()
    assert esnlm.plot_surprisal(model.surprisal("the boy\nthe dog"), ax=given) is given
    with pytest.raises(ValueError, match="of the same words, got others for 'b'"):
        esnlm.plot_surprisal({"a": model.surprisal("the boy"), "b": model.surprisal("the")})
    states = model.reservoir_.transform([1, 3, 4, 5])
    esnlm.plot_states(states, words=list("abcd"), groups=[0, 0, 1, 1])
    with pytest.raises(ValueError, match="words must be one for each of 4 states, got 3"):
        esnlm.plot_states(states, words=list("abc"))
    rows = pd.DataFrame(
        {"readout": ["ridge", "ridge", "moe"], "n_units": [25, 50, 25], "perplexity": [9.0, 8, 7]}
    )
    axis = esnlm.plot_perplexity_by_size(rows, reference={"oracle": 4.6})
    assert [line.get_ydata().tolist() for line in axis.lines[:2]] == [[9, 8], [7]]
    rows["nll_per_token"] = np.log(rows.pop("perplexity"))
    axis = esnlm.plot_perplexity_by_size(rows, by=None)
    np.testing.assert_allclose(axis.lines[0].get_ydata(), [8, 8])  # mean of two runs
    with pytest.raises(ValueError, match="rows must have a column n_units, got x"):
        esnlm.plot_perplexity_by_size([{"x": 1}])
    with pytest.raises(ValueError, match="at least one row"):
        esnlm.plot_blimp([])
    plt.close("all")


def test_models_of_one_table_of_pairs_are_told_apart(tmp_path):
    rows = [
        {"model": model, "level": level, "phenomenon": name, "accuracy": share,
         "lower": share - 0.01, "upper": share + 0.01}
        for model, shares in (("A", (0.6, 0.7, 0.65)), ("B", (0.5, 0.4, 0.45)))
        for (level, name), share in zip(
            (("phenomenon", "x"), ("phenomenon", "y"), ("overall", "overall")), shares, strict=True
        )
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(tmp_path / "blimp.csv", index=False)
    for given in (rows, tmp_path / "blimp.csv"):
        axis = esnlm.plot_blimp(given, others={"C": {"x": 0.9}})
        drawn = {line.get_label(): line.get_xdata() for line in axis.get_lines()}
        np.testing.assert_allclose(drawn["A"], [70, 60, 65])
        np.testing.assert_allclose(drawn["B"], [40, 50, 45])
        np.testing.assert_allclose(drawn["C"], [np.nan, 90, np.nan])
    with pytest.raises(ValueError, match="rows hold x of the model A twice"):
        esnlm.plot_blimp([*rows, rows[0]])
    plt.close("all")


def test_signs_of_components_do_not_depend_on_those_of_the_states():
    from esnlm.plots.plotting import principal_components

    states = np.random.default_rng(0).normal(size=(50, 7))
    points, _ = principal_components(states)
    flipped, _ = principal_components(states[::-1])
    np.testing.assert_allclose(flipped[::-1], points)
    found = np.linalg.svd(states - states.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(np.abs(points), np.abs(found[0] * found[1])[:, :2])


SNIPPET = """\
from sklearn.linear_model import LogisticRegression
from esnlm import LanguageModel, NgramLanguageModel, Reservoir, RidgeReadout, load_model
LanguageModel(Reservoir(10), RidgeReadout())
LanguageModel(Reservoir(10), "softmax", tokenizer="word")
LanguageModel(Reservoir(10), LogisticRegression())
frame = load_model("model").surprisal("the boy")
words: list[tuple[str | int, float]] = [*NgramLanguageModel(2).next_words("the", k=3)]
LanguageModel(1, RidgeReadout())
LanguageModel(Reservoir(10), 2)
LanguageModel(1, 2)
"""


@pytest.mark.slow
def test_a_type_checker_knows_what_a_model_is_made_of(tmp_path):
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--follow-imports=silent",
         "--cache-dir", str(tmp_path / "cache"), str(snippet)],
        capture_output=True, text=True,
        env=os.environ | {"MYPYPATH": str(Path(esnlm.__file__).parents[1])},
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if "error:" in line]
    places = [int(line.split(":")[1]) for line in lines]
    assert places == [8, 9, 10, 10], done.stdout + done.stderr
    assert all("[arg-type]" in line for line in lines)
