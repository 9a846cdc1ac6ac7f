"""What the page of ``esnlm serve`` shows, beside the model's own numbers."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from esnlm import (
    InterpolatedModel,
    LanguageModel,
    NgramLanguageModel,
    Reservoir,
    RidgeReadout,
    SoftmaxReadout,
)
from esnlm.__main__ import main
from esnlm.app.answers import MOST_CHARACTERS, MOST_TOKENS, ShownModel, principal_components
from esnlm.evaluation.minimal_pairs.scores import sentence_log_likelihoods
from esnlm.text.named_tokenizers import byte_pairs
from esnlm.text.tokenizers import Tokenizer

DOCS = ["the boy sees the dog", "the dog sees the boy", "a boy walks", "Mary sees a dog"] * 10
TEXT = "the boy walks\nthe zebra  sees the"
EXACT = {"rtol": 1e-12, "atol": 1e-12}
TOKENIZERS = {
    "word": lambda: Tokenizer.train_words(DOCS),
    "char": lambda: Tokenizer.train_characters(["\n".join(DOCS)], boundaries=True),
    "bpe": lambda: byte_pairs(DOCS, 280),
}


def fitted(kind: str, tokenizer: str, reset: str) -> ShownModel:
    made = TOKENIZERS[tokenizer]()
    if kind == "ngrams":
        return ShownModel(
            "counts", NgramLanguageModel(order=3, tokenizer=made, reset=reset).fit(DOCS)
        )
    reservoir = Reservoir(30, leak_rate=0.7, dtype="float64", random_state=0)
    model = LanguageModel(reservoir, RidgeReadout(), tokenizer=made, reset=reset)
    return ShownModel("reservoir", model.fit(DOCS))


@pytest.fixture(
    scope="module",
    params=[
        (kind, tokenizer, reset)
        for kind in ("reservoir", "ngrams")
        for tokenizer in TOKENIZERS
        for reset in ("sentence", "document", "never")
    ],
    ids="-".join,
)
def shown(request: pytest.FixtureRequest) -> ShownModel:
    return fitted(*request.param)


@pytest.fixture(scope="module")
def words() -> ShownModel:
    return fitted("reservoir", "word", "sentence")


def test_a_character_of_several_bytes_is_shown_as_it_is() -> None:
    docs = ["the boy — who sees — walks", "un café — naïve"] * 20
    tokenizer = byte_pairs(docs, 262)
    reservoir = Reservoir(20, random_state=0)
    shown = ShownModel("r", LanguageModel(reservoir, RidgeReadout(), tokenizer=tokenizer).fit(docs))
    strings = [step.string for step in shown.state_path("boy — café ☃").steps]
    assert strings[1:-1] == [*"boy", " —", *" caf", "\ufffd", "é", " ", "\ufffd", "\ufffd", "☃"]
    candidates = shown.next_tokens("the boy", len(tokenizer)).candidates
    assert not {"Ġ", "Ã", "â"} & set("".join(each.string for each in candidates))


def test_surprisal_sums_to_the_log_likelihood(shown: ShownModel) -> None:
    found = shown.surprisal(TEXT)
    (scores,) = shown.model.log_likelihood([TEXT])
    bits = [token.bits for word in found.words for token in word.tokens]
    np.testing.assert_allclose(bits, -scores / np.log(2), **EXACT)
    for word in found.words if shown.tokenizer.begins_word is None else ():
        assert word.bits == pytest.approx(sum(token.bits for token in word.tokens), abs=1e-12)
    assert found.n_tokens == len(scores)
    np.testing.assert_allclose(found.bits, -scores.sum() / np.log(2), **EXACT)
    np.testing.assert_allclose(found.perplexity, np.exp(-scores.mean()), **EXACT)


def test_surprisal_is_that_of_the_command(
    shown: ShownModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text(TEXT)
    shown.model.save("model")
    assert main(["evaluate", "model", "text", "--surprisal-csv", "w.csv", "--documents=file"]) == 0
    with open("w.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    found = shown.surprisal(TEXT).words
    assert [(int(r["sentence"]), int(r["position"]), r["word"]) for r in rows] == [
        (word.line, word.place, word.string) for word in found
    ]
    assert [int(row["n_unknown"]) for row in rows] == [word.n_unknown for word in found]
    expected = [float(row["surprisal_bits"]) for row in rows]
    np.testing.assert_allclose([word.bits for word in found], expected, **EXACT)


@pytest.mark.parametrize("text", ["", "the boy", "the boy ", "the boy\n", "the zebra"])
def test_next_tokens_are_the_largest_of_the_distribution(shown: ShownModel, text: str) -> None:
    found = shown.next_tokens(text, 5)
    bare = text.rstrip(" ")
    kept = len(shown.tokenizer.encode(bare)) < len(shown.tokenizer.encode(text))
    assert found.text == (text if kept else bare)
    expected = shown.model.predict_proba(found.text)
    got = [each.probability for each in found.candidates]
    np.testing.assert_allclose(got, np.sort(expected)[::-1][:5], **EXACT)
    np.testing.assert_allclose(sum(got) + found.rest_probability, expected.sum(), **EXACT)
    assert found.n_rest == len(expected) - 5
    entropy = -np.sum(np.where(expected > 0, expected * np.log2(expected + (expected == 0)), 0))
    np.testing.assert_allclose(found.entropy_bits, entropy, **EXACT)


def test_a_continuation_appends_its_token(shown: ShownModel) -> None:
    found = shown.next_tokens("the boy", shown.model.n_tokens_)
    assert (found.n_rest, found.rest_probability) == (0, 0)
    encode, order = shown.tokenizer.encode, np.argsort(-shown.model.predict_proba("the boy"))
    probabilities = {int(token): place for place, token in enumerate(order)}
    token = int(encode("the boy sees")[len(encode("the boy"))])
    candidate = found.candidates[probabilities[token]]
    after = encode(found.text + candidate.continuation).tolist()
    assert after == [*encode("the boy").tolist(), token]


def test_the_path_is_of_the_reservoir_states(words: ShownModel) -> None:
    found = words.state_path("the boy walks\na dog sees")
    model, encode = words.model, words.tokenizer.encode
    sequences = [[1, *encode(line).tolist(), 2] for line in ("the boy walks", "a dog sees")]
    states = np.concatenate([model.reservoir_.transform(np.array(ids)) for ids in sequences])
    u, s, _ = np.linalg.svd(states - states.mean(axis=0), full_matrices=False)
    got = np.array([(step.x, step.y) for step in found.steps])
    np.testing.assert_allclose(np.abs(got), np.abs((u * s)[:, :2]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.explained, (s**2 / np.sum(s**2))[:2], **EXACT)
    strings = ["<s>", "the", "boy", "walks", "</s>", "<s>", "a", "dog", "sees", "</s>"]
    assert [step.string for step in found.steps] == strings
    assert [step.line for step in found.steps] == [1] * 5 + [2] * 5
    assert found.n_units == 30


def test_the_path_of_a_reservoir_with_features_and_direct_connections(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("\n".join(DOCS))
    options = ["--units", "20", "--features", "spectral:4", "--readout", "lowrank", "--direct", "2"]
    assert main(["train", str(tmp_path / "text"), "--out", str(tmp_path / "m"), *options]) == 0
    model = LanguageModel.load(tmp_path / "m")
    shown = ShownModel("m", model)
    inputs = model.features_.transform(np.array([1, *shown.tokenizer.encode("the boy"), 2]))
    states = model.reservoir_.transform(inputs).astype(np.float64)
    expected, shares = principal_components(states)
    found = shown.state_path("the boy")
    np.testing.assert_allclose([(step.x, step.y) for step in found.steps], expected, **EXACT)
    np.testing.assert_allclose(found.explained, shares, **EXACT)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_components_of_few_or_equal_states(n: int) -> None:
    places, explained = principal_components(np.ones((n, 4)))
    np.testing.assert_array_equal(places, np.zeros((n, 2)))
    np.testing.assert_array_equal(explained, 0)
    places, explained = principal_components(np.arange(n, dtype=float)[:, None])
    assert places.shape == (n, 2)
    assert explained[0] == pytest.approx(float(n > 1))


def test_n_grams_have_no_path() -> None:
    with pytest.raises(ValueError, match="counts has no reservoir"):
        fitted("ngrams", "word", "sentence").state_path("the boy")


@given(text=st.text([*"abe \n\r\t.'\0\x0b\x0c\x1c\x85\u2028\u200b\xa0\ufeff\U0001f600é\u0301İß中"]))
@example(text="\ufeff\ufeffthe boy")
def test_any_text_is_scored_whole_or_refused(shown: ShownModel, text: str) -> None:
    try:
        found = shown.surprisal(text)
    except ValueError as error:
        assert not text.removeprefix("\ufeff").strip(), error  # noqa: PT017
        return
    (scores,) = shown.model.log_likelihood([text])
    np.testing.assert_allclose(found.bits, -scores.sum() / np.log(2), rtol=1e-12)
    if shown.about().n_units is not None:
        path = shown.state_path(text)
        assert np.isfinite([(step.x, step.y) for step in path.steps]).all()
    assert sum(c.probability for c in shown.next_tokens(text, 9).candidates) < 1 + 1e-6


def test_a_pair_is_judged_by_the_scores_of_blimp(shown: ShownModel) -> None:
    sentences = ["the boy sees", "the boy dog"]
    one, two = sentence_log_likelihoods(shown.model, sentences) / -np.log(2)
    found = shown.pair(*sentences)
    got = (found.first_bits, found.second_bits, found.difference_bits)
    np.testing.assert_allclose(got, (one, two, abs(one - two)), **EXACT)
    assert found.likelier == ("first" if one < two else "second")
    assert shown.pair(*sentences[::-1]).likelier != found.likelier
    same = shown.pair("the boy", "the boy")
    assert (same.likelier, same.difference_bits) == ("neither", 0)


def test_what_a_model_is() -> None:
    about = fitted("reservoir", "word", "sentence").about()
    assert (about.kind, about.unit, about.n_units, about.end) == ("reservoir", "word", 30, "</s>")
    about = fitted("ngrams", "char", "document").about()
    assert (about.kind, about.unit, about.n_units) == ("n-grams", "character", None)
    assert fitted("ngrams", "bpe", "never").about().unit == "sub-word"
    both = [fitted(kind, "word", "sentence").model for kind in ("reservoir", "ngrams")]
    about = ShownModel("both", InterpolatedModel(both)).about()
    assert (about.kind, about.n_units) == ("interpolated", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "text must hold a word, got ''"),
        (" \n", "text must hold a word"),
        ("a" * (MOST_CHARACTERS + 1), f"at most {MOST_CHARACTERS} characters, got 2001"),
        ("a " * (MOST_TOKENS + 1), f"at most {MOST_TOKENS} tokens, got 257 of reservoir"),
    ],
)
def test_texts_out_of_bounds(words: ShownModel, text: str, message: str) -> None:
    for ask in (words.surprisal, words.state_path):
        with pytest.raises(ValueError, match=message):
            ask(text)
    if text.strip():
        with pytest.raises(ValueError, match=message):
            words.next_tokens(text, 3)


def test_the_longest_texts_are_answered(words: ShownModel) -> None:
    text = "a " * MOST_TOKENS
    assert len(words.surprisal(text).words) == MOST_TOKENS + 1
    assert len(words.state_path(text).steps) == MOST_TOKENS + 2
    assert words.next_tokens("a" * MOST_CHARACTERS, 1).n_rest == words.model.n_tokens_ - 1


def test_sentences_of_a_pair_hold_words(words: ShownModel) -> None:
    verdict = words.pair("the boy\nwalks", "the boy walks")  # a space to a tokenizer of words
    assert verdict.likelier == "neither"
    with pytest.raises(ValueError, match="second must hold a word"):
        words.pair("the boy", "")


def test_models_of_integers_are_refused() -> None:
    model = LanguageModel(Reservoir(9, random_state=0), SoftmaxReadout()).fit([[0, 1, 2, 1] * 9])
    with pytest.raises(ValueError, match="m was trained on integers: expected a model with a tok"):
        ShownModel("m", model)


@pytest.mark.torch
def test_a_network_answers_too() -> None:
    pytest.importorskip("torch", reason="needs the torch extra")
    from esnlm.torch.language_model import TorchLanguageModel
    from esnlm.torch.networks.registry import network_class

    tokenizer = Tokenizer.train_words(DOCS)
    network = network_class("lstm")(n_tokens=len(tokenizer))
    shown = ShownModel("lstm", TorchLanguageModel(network.eval(), tokenizer))
    assert (shown.about().kind, shown.about().n_units) == ("network", None)
    (scores,) = shown.model.log_likelihood([TEXT])
    np.testing.assert_allclose(shown.surprisal(TEXT).bits, -scores.sum() / np.log(2), **EXACT)
    assert sum(c.probability for c in shown.next_tokens("the", 3).candidates) < 1
