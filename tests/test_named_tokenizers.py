"""Tokenizers by name, and GPT-2's from its files."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Outside
from tokenizers import pre_tokenizers

from esnlm.text import named_tokenizers
from esnlm.text.backends import END_OF_TEXT, TokenizerError
from esnlm.text.named_tokenizers import byte_pairs, gpt2, is_gpt2, parsed, trained
from esnlm.text.tokenizers import Tokenizer

SENTENCES = ["the boy sees the dog", "the dog sees Mary", "Mary walks"]
SMALL = byte_pairs(SENTENCES, 270)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_byte_pairs_are_lossless(text: str):
    assert SMALL.decode(SMALL.encode(text)) == text


def test_byte_pairs_learn_merges_and_prepend_bos():
    assert SMALL.vocabulary[:2] == ["<s>", "</s>"]
    assert len(SMALL) == 270
    assert len(SMALL.encode("the boy sees")) < len("the boy sees")
    assert Outside.from_str(SMALL.to_json()).encode("the").ids[0] == SMALL.bos_id
    assert SMALL.bos_id not in SMALL.encode("the")


def test_byte_pairs_are_the_same_in_another_process():
    code = (
        "import sys\nfrom esnlm.text.named_tokenizers import byte_pairs\n"
        "sys.stdout.write(byte_pairs(sys.argv[1:], 270).to_json())"
    )
    run = [sys.executable, "-c", code, *SENTENCES]
    assert subprocess.run(run, capture_output=True, text=True).stdout == SMALL.to_json()


def test_small_text_gives_a_smaller_vocabulary():
    assert len(byte_pairs(["ab"], 9000)) == 258


def test_lower_case():
    tokenizer = byte_pairs([s.upper() for s in SENTENCES], 280, lower=True)
    assert tokenizer.encode("THE DOG").tolist() == tokenizer.encode("the dog").tolist()


@pytest.mark.parametrize("name", ["word", "wordpunct", "char", "bpe:300"])
def test_capitals_of_greek_have_two_small_letters_at_the_end_of_a_word(name: str):
    small, capitals = "λεξεις της γλωσσης, φως. \u03c3' ολους", "ΛΕΞΕΙΣ ΤΗΣ ΓΛΩΣΣΗΣ, ΦΩΣ. Σ' ΟΛΟΥΣ"
    tokenizer = trained(name, [small], lower=True)
    assert tokenizer.encode(capitals).tolist() == tokenizer.encode(small).tolist()
    same = trained(name, [capitals], lower=True)
    assert same.encode(small).tolist() == tokenizer.encode(small).tolist()
    lowered = byte_pairs([small], 300).lowered()
    assert lowered.decode(lowered.encode(capitals)) == small


def test_names():
    names = "bpe:258", "bpe:260", "word:5", "char:9"
    assert [len(trained(name, iter(SENTENCES))) for name in names] == [258, 260, 5, 9]
    assert trained("word", SENTENCES).bos == trained("char", SENTENCES).bos == "<s>"


@pytest.mark.parametrize("name", ["", "bpe", "bpe:257", "word:x", "sub:9", "word:-3"])
def test_names_that_mean_nothing(name: str):
    with pytest.raises(TokenizerError, match=r"write bpe:8000|bpe:N"):
        parsed(name)


def test_no_text_is_told():
    with pytest.raises(TokenizerError, match="training text is empty"):
        byte_pairs([], 300)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, int], str]:
    """A small vocabulary and merges that stand for the published ones."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*letters, "th", "the", END_OF_TEXT])}
    merges = "#version: 0.2\nt h\nth e\n"
    digests = [hashlib.sha256(x.encode()).hexdigest() for x in (json.dumps(vocabulary), merges)]
    monkeypatch.setattr(named_tokenizers, "GPT2_VOCABULARY", digests[0])
    monkeypatch.setattr(named_tokenizers, "GPT2_MERGES", digests[1])
    return vocabulary, merges


def write_gpt2(folder: Path, vocabulary: dict[str, int], merges: str, form: str) -> None:
    if form == "tokenizer.json":
        pairs = [line.split(" ") for line in merges.split("\n")[1:] if line]
        whole = {"model": {"vocab": vocabulary, "merges": pairs}}
        (folder / form).write_text(json.dumps(whole))
        return
    first, second = form.split()
    entries = sorted(vocabulary.items())
    (folder / first).write_text(json.dumps(dict(entries), ensure_ascii=False), encoding="utf-8")
    (folder / second).write_text(merges, encoding="utf-8")


@pytest.mark.parametrize(
    "form", ["tokenizer.json", "vocab.json merges.txt", "encoder.json vocab.bpe"]
)
def test_gpt2_from_any_form_of_its_files(tmp_path: Path, published, form: str):
    write_gpt2(tmp_path, *published, form)
    tokenizer = gpt2(tmp_path)
    assert tokenizer.encode("the theé").tolist()[0] == published[0]["the"]
    assert tokenizer.bos_id == tokenizer.eos_id == 258
    assert tokenizer.decode(tokenizer.encode(" the\n\té")) == " the\n\té"
    assert Outside.from_str(tokenizer.to_json()).encode("the").ids == [258, 257]
    assert (
        tokenizer.to_json()
        == Tokenizer.from_json(tokenizer.to_json(), bos=END_OF_TEXT, eos=END_OF_TEXT).to_json()
    )


def test_gpt2_is_known_from_other_tokenizers(tmp_path: Path, published):
    write_gpt2(tmp_path, *published, "tokenizer.json")
    tokenizer = gpt2(tmp_path)
    again = Tokenizer.from_json(tokenizer.to_json(), bos=END_OF_TEXT, eos=END_OF_TEXT)
    assert is_gpt2(tokenizer)
    assert is_gpt2(again)
    spaced = json.loads(tokenizer.to_json())
    spaced["pre_tokenizer"]["add_prefix_space"] = True
    others = [SMALL, tokenizer.lowered(), Tokenizer.train_words(["a"]),
              Tokenizer.train_characters(["a"]),
              Tokenizer.from_json(json.dumps(spaced), bos=None, eos=None)]  # fmt: skip
    assert not any(map(is_gpt2, others))


@pytest.mark.parametrize("lone", ["vocab.json", "merges.txt", "encoder.json", "vocab.bpe"])
def test_gpt2_needs_both_of_its_files(tmp_path: Path, published, lone: str):
    pairs = ("vocab.json merges.txt", "encoder.json vocab.bpe")
    form = next(pair for pair in pairs if lone in pair)
    write_gpt2(tmp_path, *published, form)
    for name in {*form.split()} - {lone}:
        (tmp_path / name).unlink()
    with pytest.raises(TokenizerError, match=r"neither tokenizer\.json, nor vocab\.json"):
        gpt2(tmp_path)
    for other in {*pairs} - {form}:
        write_gpt2(tmp_path, *published, other)
    assert len(gpt2(tmp_path)) == 259


def test_files_that_are_not_gpt2s(tmp_path: Path, published):
    with pytest.raises(TokenizerError, match=r"neither tokenizer\.json, nor vocab\.json"):
        gpt2(tmp_path)
    vocabulary, merges = published
    for wrong in ((vocabulary, merges + "a b\n"), (vocabulary | {"the": 258}, merges)):
        write_gpt2(tmp_path, *wrong, "vocab.json merges.txt")
        with pytest.raises(TokenizerError, match="does not hold the vocabulary and merges of GPT"):
            gpt2(tmp_path)
    for content in ("", "{}", "[]", '{"model": {"vocab": {}, "merges": ["a"]}}', '{"model": 1}'):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(TokenizerError, match="does not hold"):
            gpt2(tmp_path)


def test_lowered_copy_leaves_the_first_as_it_is():
    lowered = SMALL.lowered()
    assert lowered.encode("THE").tolist() == SMALL.encode("the").tolist()
    assert SMALL.encode("THE").tolist() != SMALL.encode("the").tolist()
    assert lowered.fingerprint() != SMALL.fingerprint()
    assert SMALL.fingerprint() == byte_pairs(SENTENCES, 270).fingerprint()
