"""Drawing against the whole distribution, and streamed text against text decoded at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esnlm.__main__ import main
from esnlm.models.ngram import NgramLanguageModel
from esnlm.models.sampling import SamplingOptions, text_pieces
from esnlm.text.named_tokenizers import byte_pairs
from esnlm.text.tokenizers import Tokenizer

TEXT = "the naïve dog — 日本語 👩‍🚀 walks"
BYTES = byte_pairs([TEXT, "the boy sees the dog"], 290)
TOKENIZERS = {
    "bytes": BYTES,
    "word": Tokenizer.train_words([TEXT]),
    "char": Tokenizer.train_characters([TEXT], boundaries=True),
}


def brute_force(weights, top_k, top_p):
    """Tokens that may be drawn: sorted by weight, then number."""
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    order = order[:top_k]
    if top_p is not None:
        mass, kept = 0.0, []
        for token in order:
            kept.append(token)
            mass += weights[token]
            if mass >= top_p * sum(weights[i] for i in order) - 1e-12:
                break
        order = kept
    return order


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    top_k=st.none() | st.integers(1, 14),
    top_p=st.none() | st.sampled_from([0.1, 0.35, 0.77, 1.0]),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_what_may_be_drawn(counts, top_k, top_p, temperature):
    logs = np.log(counts)
    choice = SamplingOptions(temperature, top_k, top_p, random_state=0)
    weights = np.exp((logs - logs.max()) / temperature)
    allowed = set(brute_force(weights, top_k, top_p))
    assert {choice.draw(logs) for _ in range(100)} <= allowed
    assert set(choice._candidates(weights).tolist()) == allowed


@pytest.mark.parametrize(("top_k", "top_p"), [(None, None), (3, None), (None, 0.8), (3, 0.9)])
def test_frequencies_are_the_renormalised_probabilities(top_k, top_p):
    probabilities = np.array([0.05, 0.4, 0.25, 0.2, 0.1])
    choice = SamplingOptions(1.0, top_k, top_p, random_state=0)
    drawn = np.bincount([choice.draw(np.log(probabilities)) for _ in range(20_000)], minlength=5)
    kept = brute_force(probabilities, top_k, top_p)
    expected = np.zeros(5)
    expected[kept] = probabilities[kept] / probabilities[kept].sum()
    np.testing.assert_allclose(drawn / 20_000, expected, atol=0.012)


def test_an_impossible_or_forbidden_token_is_never_drawn():
    logs = np.array([0.0, -np.inf, -0.1])
    assert {SamplingOptions(random_state=seed).draw(logs, forbidden=[0]) for seed in range(50)} == {
        2
    }
    assert SamplingOptions(temperature=0).draw(logs, forbidden=[0]) == 2
    assert SamplingOptions(temperature=5e-324).draw(logs, forbidden=[0]) == 2


@pytest.mark.parametrize("name", TOKENIZERS)
@given(cut=st.integers(0, 40), text=st.sampled_from([TEXT, "walks the dog", "日本語 the 👩‍🚀"]))
def test_pieces_are_the_text_whatever_was_shown_before(name, cut, text):
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text).tolist()
    cut = min(cut, len(ids))
    while "\ufffd" in tokenizer.decode(ids[:cut]):  # a prompt holds whole characters
        cut -= 1
    pieces = list(text_pieces(tokenizer, ids[:cut], ids[cut:]))
    assert tokenizer.decode(ids[:cut]) + "".join(pieces) == tokenizer.decode(ids) == text
    assert not any("\ufffd" in piece for piece in pieces)


@given(tokens=st.lists(st.integers(0, len(BYTES) - 1), max_size=40))
def test_any_tokens_stream_as_they_decode(tokens):
    """Bytes that are no character show as one where they stand, and hold up nothing else."""
    tokens = [token for token in tokens if token not in (BYTES.bos_id, BYTES.eos_id)]
    assert "".join(text_pieces(BYTES, [], tokens)) == BYTES.decode(tokens)


def test_an_end_inside_a_character():
    broken = BYTES.encode("日").tolist()[:2]
    pieces = list(text_pieces(BYTES, [], [*broken, BYTES.eos_id, *BYTES.encode("dog")]))
    assert "".join(pieces) == BYTES.decode(broken) + "\ndog"


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = NgramLanguageModel(order=3, tokenizer=BYTES).fit(
        [TEXT, "the boy sees the dog\nthe dog walks"] * 3
    )
    model.save("model")
    return model


@pytest.mark.parametrize("prompt", ["", "the", "the boy sees\nthe", "the dog\n", "日本", "the "])
def test_prompts_on_the_command_line(model, prompt, capsys):
    command = ["generate", "model", "--prompt", prompt, "--tokens", "30", "--seed", "3"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert shown == prompt + model.sample(30, prompt=prompt, random_state=3) + "\n"


def test_only_the_last_line_of_a_prompt_is_read_where_sentences_reset(model):
    after = model.predict_proba("anything\nthe")
    np.testing.assert_array_equal(after, model.predict_proba("the"))
    np.testing.assert_array_equal(model.predict_proba("the\n"), model.predict_proba(""))


def test_the_likeliest_continuation(model):
    assert model.sample(6, prompt="the boy", temperature=0).startswith(" sees")
    assert model.sample(6, prompt="the boy", top_k=1) == model.sample(
        6, prompt="the boy", temperature=0
    )


def test_a_model_of_integers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    NgramLanguageModel(order=2).fit([[0, 1, 2], [0, 1, 2]]).save("numbers")
    command = ["generate", "numbers", "--tokens", "1", "--temperature", "0", "--prompt"]
    assert main([*command, "0 1"]) == 0
    assert capsys.readouterr().out == "0 1 2\n"
    assert main([*command, "the boy"]) == 2
    assert "--prompt must be integers, got 'the boy'" in capsys.readouterr().err


def test_the_unknown_token_is_drawn_only_if_asked_for():
    docs = ["a a b b c d e f g"] * 5
    model = NgramLanguageModel(order=2, tokenizer=Tokenizer.train_words(docs, vocab_size=6)).fit(
        docs
    )
    assert "<unk>" not in model.sample(200, random_state=0)
    assert "<unk>" in model.sample(200, random_state=0, unknown=True)
    assert "<unk>" not in model.sample(50, temperature=0)
