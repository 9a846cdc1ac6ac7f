"""LanguageModel: what it predicts, how documents are cut, sampling, saving."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from small_models import reservoir_model

from esnlm import (
    ClassFactoredReadout,
    LanguageModel,
    LowRankReadout,
    MixtureOfExpertsReadout,
    NgramLanguageModel,
    Reservoir,
    RidgeReadout,
    SoftmaxReadout,
    TokenGatedReadout,
    Tokenizer,
    WordFeatures,
)
from esnlm.ngrams.kneser_ney import KneserNey
from esnlm.storage.model_folder import (
    ModelFormatError,
)
from esnlm.text.boundaries import framed, framed_prefix
from esnlm.text.corpus import CorpusError

RESETS = ("sentence", "document", "never")
READOUTS = {
    "ridge": RidgeReadout(),
    "softmax": SoftmaxReadout(max_iter=5),
    "moe": MixtureOfExpertsReadout(n_experts=2, max_iter=2, random_state=0),
    "factored": ClassFactoredReadout(random_state=0),
}


def sentences(n: int, seed: int) -> list[np.ndarray]:
    """Counting modulo five from a random start, with noise: tokens 0 to 4, ended by 5."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        length = rng.integers(3, 9)
        steps = np.where(rng.random(length) < 0.9, 1, 2)
        made.append(np.append((rng.integers(5) + np.cumsum(steps)) % 5, 5))
    return made


def spelled(docs: list[np.ndarray]) -> list[str]:
    return [" ".join("abcde"[token] for token in doc[:-1]) for doc in docs]


def model(reset: str = "sentence", n_units: int = 30, **options) -> LanguageModel:
    reservoir = Reservoir(n_units, degree=8, random_state=0)
    readout = options.pop("readout", RidgeReadout())
    return LanguageModel(reservoir, readout, reset=reset, random_state=0, **options)


TRAIN, TEST = sentences(200, 0), sentences(40, 1)


@pytest.mark.parametrize("reset", RESETS)
def test_log_likelihood_is_that_of_each_prefix(reset: str):
    fitted = model(reset).fit(TRAIN)
    docs = TEST[:4]
    scores = fitted.log_likelihood(docs)
    read = np.zeros(0, dtype=int)
    for doc, found in zip(docs, scores, strict=True):
        start = len(read) if reset == "never" else 0
        read = np.concatenate([read, doc]) if reset == "never" else doc
        first = max(start, 1)
        expected = [
            np.log(fitted.predict_proba(read[:t])[read[t]]) for t in range(first, len(read))
        ]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("tokenizer", ["word", "char"])
def test_text_of_every_framing(reset: str, tokenizer: str):
    fitted = model(reset, tokenizer=tokenizer).fit(spelled(TRAIN))
    docs = spelled(TEST)
    n_predicted = sum(map(len, fitted.log_likelihood(docs)))
    assert n_predicted == fitted.tokenize(docs).n_predicted
    assert fitted.score(docs) == pytest.approx(-np.log(fitted.perplexity(docs)))
    assert fitted.perplexity(docs) < 3
    assert fitted.predict_proba("a b").sum() == pytest.approx(1, abs=1e-6)


def test_sentences_of_a_text_are_lines_and_a_document_has_one_array():
    fitted = model(tokenizer="word").fit(["a b c\nb c"] * 20)
    (scores,) = fitted.log_likelihood(["a b c\n\nb c"])
    assert len(scores) == 4 + 3
    apart = np.concatenate(fitted.log_likelihood(["a b c", "b c"]))
    np.testing.assert_allclose(scores, apart, rtol=1e-5)


@pytest.mark.parametrize("kind", [LanguageModel, NgramLanguageModel])
def test_a_fit_that_does_not_end_leaves_the_model_as_it_was(kind, monkeypatch):
    """A new tokenizer beside the old readout would read the text as other words."""
    mine, others = ["the boy sees the dog", "a cat sees the boy"] * 20, ["dog sees a the boy"] * 40
    fitted = kind(tokenizer="word", n_tokens=12)
    if kind is LanguageModel:
        fitted.set_params(reservoir=Reservoir(30, random_state=0), readout=RidgeReadout())

    def stop(*args: Any, **options: Any):
        raise KeyboardInterrupt

    def interrupt():
        with monkeypatch.context() as patch:
            patch.setattr(RidgeReadout, "fit_blocks", stop)
            patch.setattr(KneserNey, "fit", stop)
            with pytest.raises(KeyboardInterrupt):
                fitted.fit(others)

    interrupt()
    with pytest.raises(NotFittedError):
        fitted.predict_proba("the")
    scores = fitted.fit(mine).log_likelihood(mine)
    before = dict(vars(fitted))
    interrupt()
    assert vars(fitted) == before
    np.testing.assert_array_equal(
        np.concatenate(fitted.log_likelihood(mine)), np.concatenate(scores)
    )


def test_empty_document_has_an_empty_array():
    fitted = model().fit(TRAIN)
    assert [len(x) for x in fitted.log_likelihood([TEST[0], [], [1]])] == [len(TEST[0]) - 1, 0, 0]


def test_text_and_its_integers_agree():
    fitted = model(tokenizer="word").fit(spelled(TRAIN))
    tokenizer = fitted.tokenizer_
    docs = spelled(TEST)
    assert fitted.score(docs) == fitted.score(
        [ids for (ids,) in framed(docs, tokenizer, "sentence")]
    )
    prefix = np.append([tokenizer.bos_id], tokenizer.encode("a b"))
    np.testing.assert_array_equal(fitted.predict_proba("a b"), fitted.predict_proba(prefix))


def test_streams_and_order_do_not_change_a_closed_form_fit():
    one = model(n_streams=1, shuffle=False).fit(TRAIN)
    many = model(n_streams=64, shuffle=True).fit(TRAIN)
    assert one.score(TEST) == pytest.approx(many.score(TEST), abs=1e-4)


@pytest.mark.parametrize("reset", ["sentence", "never"])
@pytest.mark.parametrize("name", READOUTS)
def test_the_number_of_threads_does_not_matter(
    reset: str, name: str, monkeypatch: pytest.MonkeyPatch
):
    scores = []
    for n_threads in ("1", "2"):
        monkeypatch.setenv("ESNLM_NUM_THREADS", n_threads)
        fitted = model(reset, readout=READOUTS[name]).fit(TRAIN)
        scores.append(np.concatenate(fitted.log_likelihood(TEST)))
    np.testing.assert_array_equal(*scores)


def test_without_resets_streams_agree_within_the_echo_state_tolerance():
    one = model("never", n_streams=1).fit(TRAIN)
    many = model("never", n_streams=3).fit(TRAIN)
    assert one.score(TEST) == pytest.approx(many.score(TEST), abs=1e-4)


@pytest.mark.parametrize("kind", [LanguageModel, NgramLanguageModel])
def test_what_is_set_after_fit_waits_for_the_next(kind: Any, tmp_path: Path):
    fitted = (model() if kind is LanguageModel else NgramLanguageModel(2)).fit(TRAIN)
    before = fitted.perplexity(TRAIN)
    fitted.set_params(reset="never", n_tokens=9, tokenizer="char")
    assert fitted.perplexity(TRAIN) == before
    fitted.save(tmp_path / "model")
    loaded = kind.load(tmp_path / "model").set_params(reset="never")
    assert loaded.perplexity(TRAIN) == before
    assert fitted.set_params(tokenizer=None).fit(TRAIN).reset_ == "never"


def test_parameters_of_a_part_need_it_as_an_object():
    with pytest.raises(ValueError, match="reservoir__n_units cannot be set where reservoir=None"):
        LanguageModel().set_params(reservoir__n_units=9)
    with pytest.raises(ValueError, match="where readout='ridge': give readout as an object"):
        LanguageModel().set_params(readout="ridge", readout__alpha=2.0)
    made = LanguageModel().set_params(reservoir=Reservoir(1), reservoir__n_units=9)
    assert made.reservoir.n_units == 9


@pytest.mark.parametrize("kind", [LowRankReadout, TokenGatedReadout])
def test_direct_connections_set_after_fit_wait_for_the_next(kind: Any, tmp_path: Path):
    fitted = LanguageModel(Reservoir(20, random_state=0), kind(n_direct=2), n_tokens=8)
    before = fitted.fit(TRAIN).perplexity(TRAIN)
    fitted.set_params(readout__n_direct=0)
    fitted.readout_.set_params(n_direct=3)
    assert fitted.perplexity(TRAIN) == before
    fitted.save(tmp_path / "model")
    assert LanguageModel.load(tmp_path / "model").perplexity(TRAIN) == before


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("chunk", [1, 7, 200])
def test_partial_fit_in_chunks_is_fit(reset: str, chunk: int):
    whole = model(reset).fit(TRAIN)
    parts = model(reset, n_tokens=6)
    for start in range(0, len(TRAIN), chunk):
        parts.partial_fit(TRAIN[start : start + chunk])
    assert parts.score(TEST) == pytest.approx(whole.score(TEST), abs=1e-4)


@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_every_predicted_token_is_counted_however_a_text_is_cut(chunk: int):
    tokens = np.concatenate(TRAIN[:20])
    parts = model("never", n_tokens=6)
    for start in range(0, len(tokens), chunk):
        parts.partial_fit(tokens[start : start + chunk])
    np.testing.assert_array_equal(parts.token_counts_, np.bincount(tokens[1:], minlength=6))


def test_fitted_parts_must_know_the_same_tokens():
    reservoir = Reservoir(10, random_state=0).fit(n_inputs=6)
    tokens = np.array([0, 1, 2, 4, 5] * 20)  # none of them is 3
    states, following = reservoir.transform(tokens[:-1]), tokens[1:]
    with pytest.raises(ValueError, match="must have the 6 tokens as its classes, got 5 classes"):
        LanguageModel(reservoir, RidgeReadout().fit(states, following), n_tokens=6).sample(1)
    readout = RidgeReadout().partial_fit(states, following, classes=range(6))
    known = LanguageModel(reservoir, readout, n_tokens=6, reset="never")
    assert known.perplexity(tokens) < 2
    wide = RidgeReadout().partial_fit(states, following, classes=range(7))
    with pytest.raises(ValueError, match="a reservoir of 6 inputs does not read 7 tokens"):
        LanguageModel(reservoir, wide).sample(1)


def test_carried_state_survives_chunks_of_one_token():
    tokens = np.concatenate(TRAIN[:10])
    parts = model("never", n_tokens=6)
    for token in tokens:
        parts.partial_fit([[token]])
    whole = model("never", n_tokens=6).fit([tokens])
    np.testing.assert_allclose(
        parts.predict_proba(tokens[:9]), whole.predict_proba(tokens[:9]), atol=1e-4
    )


def test_word_features_drive_the_reservoir():
    fitted = model(features=WordFeatures(n_features=2, n_passes=2, random_state=0)).fit(TRAIN)
    assert fitted.reservoir_.n_inputs_ == 2
    assert fitted.features_.embedding_.shape == (6, 2)
    assert fitted.perplexity(TEST) < 6
    again = model(features=fitted.features_).fit(TRAIN)
    assert again.features_ is fitted.features_


def test_given_parts_are_not_changed():
    readout, reservoir = RidgeReadout(), Reservoir(10, random_state=0)
    LanguageModel(reservoir, readout).fit(TRAIN)
    assert not hasattr(readout, "coef_")
    assert not hasattr(reservoir, "W_")
    drawn = Reservoir(10, random_state=3).fit(n_inputs=6)
    assert LanguageModel(drawn, readout).fit(TRAIN).reservoir_ is drawn


def test_held_out_documents_reach_the_readout():
    fitted = model().fit(TRAIN, held_out=TEST)
    assert np.isfinite(fitted.score(TEST))
    with pytest.raises(CorpusError, match="held_out hold no tokens"):
        model().fit(TRAIN, held_out=[])


def test_sampling_is_seeded_and_follows_the_distribution():
    fitted = model("never").fit(TRAIN)
    drawn = fitted.sample(20, prompt=TEST[0][:2], random_state=0)
    assert drawn.dtype == np.int64
    assert np.array_equal(drawn, fitted.sample(20, prompt=TEST[0][:2], random_state=0))
    first = [fitted.sample(1, prompt=[0, 1, 2], random_state=seed)[0] for seed in range(300)]
    expected = fitted.predict_proba([0, 1, 2])
    np.testing.assert_allclose(np.bincount(first, minlength=6) / 300, expected, atol=0.1)


def test_sampling_at_zero_temperature_is_the_mode():
    fitted = model("never").fit(TRAIN)
    prefix = [0, 1]
    for token in fitted.sample(5, prompt=prefix, temperature=0):
        assert token == fitted.predict_proba(prefix).argmax()
        prefix.append(token)
    top = fitted.sample(5, prompt=[0, 1], top_k=1, random_state=4)
    assert np.array_equal(top, fitted.sample(5, prompt=[0, 1], top_p=1e-6, random_state=5))


def test_sampled_text_has_a_line_for_each_sentence_and_no_boundaries():
    fitted = model(tokenizer="word").fit(spelled(TRAIN))
    text = fitted.sample(60, random_state=0)
    assert "\n" in text
    assert set(text.split()) <= set("abcde")
    continued = fitted.sample(2, prompt="a b", temperature=0)
    assert continued.startswith(" c")
    assert fitted.sample(0) == ""


@pytest.mark.parametrize("name", READOUTS)
@pytest.mark.parametrize("with_features", [False, True])
def test_saved_model_gives_identical_probabilities(tmp_path: Path, name: str, with_features: bool):
    features = WordFeatures(n_features=2, n_passes=1, random_state=0) if with_features else None
    fitted = model(tokenizer="word", readout=READOUTS[name], features=features)
    fitted.fit(spelled(TRAIN[:60]))
    fitted.save(tmp_path / "model")
    files = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert files == ["config.json", "tokenizer.json", "weights.safetensors"]
    loaded = LanguageModel.load(tmp_path / "model")
    docs = spelled(TEST)
    for ours, theirs in zip(fitted.log_likelihood(docs), loaded.log_likelihood(docs), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(fitted.predict_proba("a"), loaded.predict_proba("a"))
    assert loaded.sample(9, random_state=0) == fitted.sample(9, random_state=0)
    assert loaded.n_parameters_ == fitted.n_parameters_


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    leaks = np.linspace(0.2, 1, 10)
    fitted = LanguageModel(Reservoir(10, leak_rate=leaks, random_state=0), RidgeReadout())
    fitted.fit(TRAIN).save(tmp_path / "model")
    return tmp_path / "model"


def test_saving_twice_gives_the_same_bytes_and_leaves_nothing_aside(saved: Path):
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    LanguageModel.load(saved).save(saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    assert sorted(before) == ["config.json", "weights.safetensors"]
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def test_saving_refuses_a_folder_of_something_else(saved: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="is not a model"):
        LanguageModel.load(saved).save(other)
    assert [path.name for path in other.iterdir()] == ["thesis.txt"]


def test_a_failing_save_leaves_the_old_model(saved: Path, monkeypatch: pytest.MonkeyPatch):
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    loaded = LanguageModel.load(saved)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        loaded.save(saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


def edited(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda m: (m / "weights.safetensors").unlink(), "weights.safetensors is missing"),
        (lambda m: (m / "config.json").unlink(), "config.json is missing"),
        (lambda m: (m / "config.json").write_text("{"), "is not JSON"),
        (lambda m: (m / "config.json").write_text("[]"), "does not describe a model"),
        (lambda m: edited(m, version=99), "version 99"),
        (lambda m: edited(m, reservoir={"class": "os.system"}), "was altered"),
    ],
)
def test_damaged_folders_are_named(saved: Path, damage, message: str):
    damage(saved)
    with pytest.raises(ModelFormatError, match=message):
        LanguageModel.load(saved)


@pytest.mark.parametrize("name", ["config.json", "weights.safetensors"])
def test_every_altered_byte_is_noticed(saved: Path, name: str):
    path = saved / name
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 1000):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        with pytest.raises(ModelFormatError):
            LanguageModel.load(saved)
    for length in (0, 7, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFormatError):
            LanguageModel.load(saved)


def test_a_number_written_in_another_way_is_noticed(saved: Path):
    path = saved / "config.json"
    text = path.read_text()
    path.write_text(text.replace("\n  ", "\n\t ", 1))
    assert json.loads(path.read_text()) == json.loads(text)
    with pytest.raises(ModelFormatError, match="was altered"):
        LanguageModel.load(saved)


def test_a_tokenizer_of_another_model_is_noticed(tmp_path: Path):
    for name, text in (("a", "one two three"), ("b", "one two three four")):
        LanguageModel(Reservoir(5), RidgeReadout(), tokenizer="word").fit([text]).save(
            tmp_path / name
        )
    for one, other in (("a", "b"), ("b", "a")):
        folder = tmp_path / f"{one} with the tokenizer of {other}"
        shutil.copytree(tmp_path / one, folder)
        shutil.copy(tmp_path / other / "tokenizer.json", folder / "tokenizer.json")
        with pytest.raises(ModelFormatError, match="does not belong to this model"):
            LanguageModel.load(folder)


def test_a_missing_folder_is_named(tmp_path: Path):
    with pytest.raises(ModelFormatError, match=r"no such model folder: ~/m: only shells know ~"):
        LanguageModel.load("~/m")
    with pytest.raises(ModelFormatError, match="no such model folder"):
        LanguageModel.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: model().fit([]), "corpus is empty"),
        (lambda: model().fit([[]]), "corpus is empty"),
        (lambda: model().fit([[1]]), "no token to predict"),
        (lambda: model().fit([[0, -1]]), "got -1"),
        (lambda: model(n_tokens=3).fit([[0, 3]]), r"lie in \[0, 3\).*got 3"),
        (lambda: model().fit([[0, 1 << 24]]), "n_tokens must be at most 16777216"),
        (lambda: model().fit([[0.0, 1.0]]), "1-D array of integers, got float64"),
        (lambda: model().fit([[0, np.nan]]), "1-D array of integers, got float64"),
        (lambda: model().fit([[0, 1]]).score(["some text"]), "set a tokenizer"),
        (lambda: model().fit(7), "iterable of documents"),
        (lambda: model(tokenizer="syllable").fit(["a"]), "tokenizer must be"),
        (lambda: model(tokenizer="word").fit(["a b", [1, 2]]), "must be strings .* one of list"),
        (lambda: LanguageModel(Reservoir(5), "forest").fit(TRAIN), "readout must be a readout"),
        (lambda: model(n_streams=(1 << 20) + 1).fit(TRAIN), "n_streams must be at most 1048576"),
        (lambda: LanguageModel(RidgeReadout(), None).fit(TRAIN), "reservoir must be a Reservoir"),
        (lambda: LanguageModel(Reservoir, "ridge").fit(TRAIN), r"Reservoir'>: write Reservoir\(\)"),
        (lambda: LanguageModel(None, RidgeReadout).fit(TRAIN), r": write RidgeReadout\(\)"),
        (lambda: LanguageModel(readout=DummyClassifier).fit(TRAIN), r": write DummyClassifier\(\)"),
        (lambda: model(features=WordFeatures).fit(TRAIN), r": write WordFeatures\(\)"),
        (lambda: model(tokenizer="").fit(["a b"]), "tokenizer must be a Tokenizer, .* got ''"),
        (lambda: model(tokenizer=np.eye(2)).fit(["a b"]), "tokenizer must be a Tokenizer"),
        (lambda: model(features=2).fit(TRAIN), "features must be WordFeatures or None, got 2"),
        (lambda: model("daily").fit(TRAIN), "reset must be one of"),
        (lambda: model(n_tokens=0).fit(TRAIN), "n_tokens must be None or an integer of at least 1"),
        (
            lambda: model(tokenizer=Tokenizer.train_words(["a b"]), n_tokens=4).fit(["a", "a"]),
            "n_tokens must be at least 5, the tokenizer's entries, got 4",
        ),
        (lambda: model(n_units=0).fit(TRAIN), "n_units must be an integer of at least 1"),
        (lambda: model().fit(TRAIN).score([[1]]), "no token to predict"),
        (lambda: model().fit(TRAIN).score([[0, 6]]), "got 6"),
        (lambda: model().fit(TRAIN).predict_proba([6]), "got 6"),
        (lambda: model().fit(TRAIN).predict_proba([0.5]), "1-D array of integers"),
        (lambda: model().fit(TRAIN).sample(-1), "n_tokens must be"),
        (lambda: model().fit(TRAIN).sample(1, temperature=-1), "temperature must not be negative"),
        (lambda: model().fit(TRAIN).sample(1, top_k=0), "top_k must be"),
        (lambda: model().fit(TRAIN).sample(1, top_k=1.5), "top_k must be None or an integer"),
        (lambda: model().fit(TRAIN).sample(1, top_p=2), "top_p must lie"),
    ],
)
def test_bad_input_says_what_to_do(make, message: str):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_reservoir_of_another_vocabulary_is_refused():
    reservoir = Reservoir(10, random_state=0).fit(n_inputs=4)
    with pytest.raises(ValueError, match="has 4 inputs, expected 6"):
        LanguageModel(reservoir, RidgeReadout()).fit(TRAIN)


def test_sizes_that_memory_does_not_hold_are_refused_before_the_weights_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
):
    # Two Gram matrices of 30 units, and the sums of their states by token.
    needed = 8 * (2 * 30**2 + 30 * 6)
    monkeypatch.setattr("esnlm.utils.memory.available_memory", lambda: needed - 1)
    with pytest.raises(ValueError, match="a readout of 30 units and 6 tokens would take"):
        model().fit(TRAIN)
    monkeypatch.setattr("esnlm.utils.memory.available_memory", lambda: needed)
    model().fit(TRAIN)


def test_a_tokenizer_given_is_used_as_it_is():
    tokenizer = Tokenizer.train_words(spelled(TRAIN))
    fitted = model(tokenizer=tokenizer, n_tokens=20).fit(spelled(TRAIN))
    assert fitted.tokenizer_ is tokenizer
    assert len(fitted.predict_proba("a")) == 20


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_of_a_prefix_are_those_of_a_document(reset: str, end: str):
    tokenizer = Tokenizer.train_words(["a b"])
    for text in ("a", f"a{end}b", f"a{end}{end}b{end}a"):
        (*_, last) = next(framed([text], tokenizer, reset))
        np.testing.assert_array_equal(framed_prefix(text, tokenizer, reset), last[:-1])
    ended = framed_prefix(f"a{end}", tokenizer, reset)
    assert ended.tolist() == {"sentence": [1], "document": [1, 3, 2], "never": [3, 2]}[reset]


@pytest.mark.parametrize("reset", RESETS)
def test_a_prefix_may_begin_with_the_mark_of_a_sentence(reset: str):
    tokenizer = Tokenizer.train_words(["a b"])
    for marked, text in (
        ("<s> a", "a"), (" <s>", ""), ("<s> b </s>\n<s> a b", "b\na b"), ("a <s> b", "a q b"),
        ("<s>a b", "q b"),
    ):  # fmt: skip
        ids = framed_prefix(marked, tokenizer, reset).tolist()
        assert ids == framed_prefix(text, tokenizer, reset).tolist()
    fitted = model(tokenizer=tokenizer, reset=reset).fit(spelled(TRAIN))
    np.testing.assert_array_equal(fitted.predict_proba("<s> a"), fitted.predict_proba("a"))


def test_a_prefix_without_tokens_is_the_beginning_of_a_text():
    tokenizer = Tokenizer.train_words(["a b"])
    assert framed_prefix([], tokenizer, "sentence").tolist() == [tokenizer.bos_id]
    assert framed_prefix([3, 4], tokenizer, "sentence").tolist() == [3, 4]
    assert framed_prefix([], tokenizer, "never").tolist() == []


def test_a_document_of_one_word_is_a_text():
    fitted = model(tokenizer="word").fit([["the"], ["the", "boy"]])
    assert fitted.score([["the"]]) == fitted.score(["the"])


def test_an_array_of_texts_is_as_many_documents():
    texts = ["the boy walks", "the dog walks", "the boy sees the dog"]
    fitted = model(tokenizer="word").fit(np.array(texts))
    assert fitted.score(np.array(texts)) == fitted.score(texts)


@pytest.mark.parametrize("dtype", [float, np.float64, np.dtype("float64"), "float64"])
def test_every_spelling_of_a_dtype_can_be_saved(tmp_path: Path, dtype: Any):
    fitted = LanguageModel(Reservoir(5, dtype=dtype, random_state=0), RidgeReadout()).fit(TRAIN)
    fitted.save(tmp_path / "model")
    loaded = LanguageModel.load(tmp_path / "model")
    assert loaded.reservoir_.W_.dtype == np.float64
    np.testing.assert_array_equal(loaded.predict_proba([0]), fitted.predict_proba([0]))


def test_leak_rates_in_a_column_of_a_table_can_be_saved(tmp_path: Path):
    rates = pd.Series([0.5, 0.25, 1.0], index=[7, 8, 9])
    fitted = LanguageModel(Reservoir(3, leak_rate=rates, random_state=0), RidgeReadout()).fit(TRAIN)
    fitted.save(tmp_path / "model")
    assert LanguageModel.load(tmp_path / "model").score(TEST) == fitted.score(TEST)


def test_numbers_of_numpy_can_be_saved(tmp_path: Path):
    made = model(n_tokens=np.int64(6), n_streams=np.int32(8)).set_params(random_state=np.int64(3))
    made.fit(TRAIN).save(tmp_path / "model")
    loaded = LanguageModel.load(tmp_path / "model")
    assert (loaded.n_tokens, loaded.n_streams, loaded.random_state) == (6, 8, 3)
    assert loaded.score(TEST) == made.score(TEST)


@pytest.mark.parametrize("integer", [np.uint8, np.int8, np.uint64])
def test_narrow_numbers_of_numpy_are_those_of_python(integer):
    """As tokens.max() + 1 is; their products overflow, and the unsigned have no sign."""
    docs = [np.arange(20) % 6] * 90
    options = {"n_direct": 2, "n_passes": 2}
    made = {number: [
        LanguageModel(
            Reservoir(number(30), degree=number(8), random_state=number(1)),
            readout.set_params(**{name: number(value) for name, value in options.items()}),
            n_tokens=number(6), n_streams=number(9), random_state=number(0),
        ).fit(docs)
        for readout in (TokenGatedReadout(n_gates=number(6)), LowRankReadout(random_state=0))
    ] for number in (int, integer)}  # fmt: skip
    made[int].append(NgramLanguageModel(3, n_tokens=6).fit(docs))
    made[integer].append(NgramLanguageModel(integer(3), n_tokens=integer(6)).fit(docs))
    for ours, theirs in zip(made[integer], made[int], strict=True):
        assert ours.score(docs) == theirs.score(docs)
        assert np.array_equal(
            ours.sample(9, top_k=integer(2), random_state=0),
            theirs.sample(9, top_k=2, random_state=0),
        )
    harvests = [
        made[int][0].reservoir_.harvest(
            np.arange(900) % 6, n_streams=number(9), block_size=number(100), warmup=number(100)
        )
        for number in (int, integer)
    ]
    for ours, theirs in zip(*map(list, harvests), strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])


def test_scores_that_are_no_probabilities_are_refused():
    model = LanguageModel(Reservoir(5, random_state=0), RidgeReadout(), tokenizer="word")
    model.fit(["the boy sees the dog"] * 3)
    model.readout_.coef_[:] = np.nan
    with pytest.raises(ValueError, match="NaN or more than 1"):
        model.score(["the boy"])


def test_a_model_does_not_mind_data_frames():
    expected = reservoir_model().predict_proba("the boy")
    with config_context(transform_output="pandas"):
        model = reservoir_model()
        np.testing.assert_allclose(model.predict_proba("the boy"), expected, atol=1e-6)
        node = model.reservoir_.to_reservoirpy()
        assert np.isfinite(node.run(np.eye(model.n_tokens_))).all()
        states = model.reservoir_.advance(np.zeros(30), 1)
    assert isinstance(states, np.ndarray)


SENTENCES = ["the boy sees the dog", "the dog sees the boy"] * 5


def test_labels_are_refused_in_steps():
    with pytest.raises(ValueError, match="takes no labels y"):
        LanguageModel(Reservoir(20, degree=3, random_state=0), random_state=0).partial_fit(
            SENTENCES, np.arange(10)
        )


def test_a_model_of_no_arguments_reads_text_as_words():
    model = LanguageModel(random_state=0).fit(SENTENCES)
    assert (model.reservoir_.n_units, model.reservoir_.topology) == (1000, "offsets")
    assert isinstance(model.readout_, RidgeReadout)
    assert model.perplexity(SENTENCES) < 2
    assert "boy" in model.tokenizer_.vocabulary
    integers = LanguageModel(Reservoir(10, degree=2)).fit([[0, 1, 2], [0, 2, 1]])
    assert integers.tokenizer_ is None


def test_a_readout_by_its_name():
    softmax = LanguageModel(Reservoir(10, degree=2), "softmax").fit(SENTENCES)
    assert isinstance(softmax.readout_, SoftmaxReadout)
    with pytest.raises(ValueError, match=r"readout must be .* or ridge, softmax, .* got 'tree'"):
        LanguageModel(Reservoir(10), "tree").fit(SENTENCES)


def test_unknown_text_is_scored_with_a_warning():
    model = LanguageModel(Reservoir(20, degree=3, random_state=0), tokenizer="word").fit(SENTENCES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.perplexity(SENTENCES)
    for method in (model.score, model.perplexity, model.partial_fit):
        with pytest.warns(UserWarning, match=r"66\.7% of the tokens are not in the vocabulary"):
            method(["a cat saw her cats"] * 3 + ["cat"])
        # BOS, five words, EOS
    with pytest.warns(UserWarning, match="are not in the vocabulary"):
        NgramLanguageModel(order=2, tokenizer="word").fit(SENTENCES).perplexity(["a cat"])
