"""Tokenizers: vocabularies, boundaries, standard files, agreement with the backend."""

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from command_line import refused
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors

from esnlm import NgramLanguageModel
from esnlm.__main__ import main
from esnlm.text.backends import TokenizerError
from esnlm.text.boundaries import framed
from esnlm.text.named_tokenizers import trained
from esnlm.text.shards import Shards
from esnlm.text.tokenizers import Tokenizer

TEXT = "the boy sees the dog\nthe dog sees Mary\n"


def byte_level() -> Backend:
    """A small tokenizer built as GPT-2's is."""
    letters = {token: i for i, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary = {**letters, "th": 256, "the": 257, "<|endoftext|>": 258}
    backend = Backend(models.BPE(vocabulary, [("t", "h"), ("th", "e")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    backend.add_special_tokens(["<|endoftext|>"])
    return backend


def test_words_are_ranked_by_frequency_then_alphabet():
    tokenizer = Tokenizer.train_words([TEXT])
    assert tokenizer.vocabulary == ["<unk>", "<s>", "</s>", "the", "dog", "sees", "Mary", "boy"]


def test_vocabulary_size_counts_special_tokens_and_cuts_the_rarest():
    tokenizer = Tokenizer.train_words([TEXT], vocab_size=5)
    assert tokenizer.vocabulary == ["<unk>", "<s>", "</s>", "the", "dog"]
    assert tokenizer.encode("the boy").tolist() == [3, 0]


def test_vocabulary_comes_from_a_stream_that_is_read_once():
    assert len(Tokenizer.train_words(iter([TEXT, TEXT]))) == 8


def test_unknown_word_in_the_text_is_the_unknown_token():
    tokenizer = Tokenizer.train_words(["a <unk> b"])
    assert tokenizer.encode("<unk> zebra").tolist() == [tokenizer.unk_id] * 2


@pytest.mark.parametrize("train", [Tokenizer.train_words, Tokenizer.train_characters])
def test_lower_case_applies_to_training_and_encoding(train):
    tokenizer = train([TEXT.upper()], lower=True)
    assert np.array_equal(tokenizer.encode("THE DOG"), tokenizer.encode("the dog"))
    assert tokenizer.unk_id not in tokenizer.encode("The Dog")


def test_characters_keep_line_ends_and_decode_exactly():
    tokenizer = Tokenizer.train_characters([TEXT])
    assert tokenizer.keeps_newlines
    assert tokenizer.bos_id is None
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    assert not Tokenizer.train_words([TEXT]).keeps_newlines


@given(st.text(alphabet="abc \nÄß\U0001f600xyz", max_size=30), st.booleans())
def test_fast_characters_agree_with_the_backend(text, lower):
    tokenizer = Tokenizer.train_characters(["abc \nÄß\U0001f600"], lower=lower)
    expected = tokenizer.backend.encode(text, add_special_tokens=False).ids
    assert tokenizer.encode(text).tolist() == expected


def test_rare_characters_become_unknown_where_the_size_is_given():
    tokenizer = Tokenizer.train_characters(["abbbcc"], vocab_size=3)
    assert tokenizer.vocabulary == ["<unk>", "b", "c"]
    assert tokenizer.encode("abc").tolist() == [0, 1, 2]
    whole = Tokenizer.train_characters(["cabbbcc"])
    assert whole.vocabulary == ["<unk>", "a", "b", "c"]


def test_lines_get_both_boundaries_and_batches_none():
    tokenizer = Tokenizer.train_words([TEXT])
    lines = [ids.tolist() for (ids,) in framed(["the dog", "Mary"], tokenizer, "sentence")]
    assert lines == [[1, 3, 4, 2], [1, 6, 2]]
    assert [b.tolist() for b in tokenizer.encode_batches(["the dog"])] == [[3, 4]]


def test_saved_tokenizer_prepends_bos_by_itself():
    tokenizer = Tokenizer.train_words([TEXT])
    outside = Backend.from_str(tokenizer.to_json())
    assert outside.encode("the dog").ids == [1, 3, 4]
    again = Tokenizer.from_json(tokenizer.to_json(), bos="<s>", eos="</s>")
    assert again.encode("the dog").tolist() == [3, 4]
    assert again.to_json() == tokenizer.to_json()


def test_boundary_tokens_are_not_decoded():
    tokenizer = Tokenizer.train_words([TEXT])
    assert tokenizer.decode([1, 3, 4, 2]) == "the dog"


def test_reads_a_byte_level_file_with_one_token_for_both_boundaries(tmp_path: Path):
    byte_level().save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert tokenizer.bos_id == tokenizer.eos_id == 258
    assert tokenizer.unk_id is None
    assert tokenizer.keeps_newlines
    text = "the thé\n\U0001f600"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.backend.encode("the").ids == [258, 257]
    once_more = Tokenizer.from_json(tokenizer.to_json(), bos=tokenizer.bos, eos=tokenizer.eos)
    assert once_more.prepend_bos().backend.encode("the").ids == [258, 257]


def template(text: str) -> processors.TemplateProcessing:
    special = [("<|endoftext|>", 258), ("th", 256)]
    return processors.TemplateProcessing(single=text, special_tokens=special)


def test_reads_a_file_that_does_not_cut_text_before_its_pairs(tmp_path: Path):
    model = models.BPE({"a": 0, "b": 1, "ab": 2, "?": 3}, [("a", "b")], unk_token="?")
    Backend(model).save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert tokenizer.encode("abba c").tolist() == [2, 1, 0, 3, 3]
    assert tokenizer.unk_id == 3
    assert tokenizer.bos is tokenizer.eos is None


@pytest.mark.parametrize(
    ("file", "names", "ids"),
    [
        # Gemma's vocabulary has <s> and </s>, which are HTML's.
        ("tokenizer_config.json", {"bos_token": "<bos>", "eos_token": "<eos>"}, (0, 1)),
        ("special_tokens_map.json", {"bos_token": {"content": "<bos>"}}, (0, 3)),
        ("tokenizer_config.json", {"bos_token": None, "add_bos_token": True}, (2, 3)),
        ("other.json", {"bos_token": "<bos>"}, (2, 3)),
    ],
)
def test_boundaries_are_those_that_files_beside_it_name(tmp_path: Path, file, names, ids):
    vocabulary = {"<bos>": 0, "<eos>": 1, "<s>": 2, "</s>": 3, "a": 4, "?": 5}
    backend = Backend(models.BPE(vocabulary, [], unk_token="?"))
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / file).write_text(json.dumps(names))
    tokenizer = Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert (tokenizer.bos_id, tokenizer.eos_id) == ids
    assert tokenizer.backend.encode("aa").ids == [ids[0], 4, 4]
    backend.save(str(tmp_path / "mine.json"))
    assert Tokenizer.from_file(tmp_path / "mine.json").bos_id == 2


def test_a_tokenizer_that_only_names_an_end_begins_with_it_as_well(tmp_path: Path):
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0), ("a", -3.0)]
    backend = Backend(models.Unigram(pieces, unk_id=2))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "</s>", "pad_token": "<pad>"}')
    tokenizer = Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert tokenizer.bos_id == tokenizer.eos_id == 1
    assert tokenizer.backend.encode("a").ids == [1, 3, 4]
    assert 1 not in tokenizer.encode("a </s> a</s>a")
    model = NgramLanguageModel(2, tokenizer).fit(["a a", "a"])
    assert model.predict_proba("a a")[1] > 0.2
    assert model.surprisal("a a")["n_tokens"].tolist() == [2, 2]
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')
    with pytest.raises(TokenizerError, match="'<end>' is not in the vocabulary"):
        Tokenizer.from_file(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": 3}')
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json cannot be read"):
        Tokenizer.from_file(tmp_path / "tokenizer.json")


def test_a_tokenizer_without_boundaries_is_told(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("ab a\nb ab\n")
    Backend(models.BPE({"a": 0, "b": 1, "?": 2}, [], unk_token="?")).save("t.json")
    command = ["ngram", "text", "--order", "1", "--tokenizer"]
    assert main([*command, "t.json", "--out", "m"]) == 0
    assert "t.json names no tokens that begin and end sentences" in capsys.readouterr().err
    assert main([*command, "word", "--out", "other"]) == 0
    assert "begin and end" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "steps",
    [
        None,
        template("<|endoftext|> $A"),
        template("$A <|endoftext|>"),
        template("<|endoftext|> $A <|endoftext|>"),
        processors.Sequence([processors.ByteLevel(trim_offsets=True)]),
        processors.Sequence([processors.ByteLevel(), template("th $A <|endoftext|>")]),
    ],
)
def test_whatever_a_file_adds_it_prepends_bos_alone_afterwards(tmp_path: Path, steps):
    backend = byte_level()
    if steps is not None:
        backend.post_processor = steps
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert tokenizer.encode("the").tolist() == [257]
    outside = Backend.from_str(tokenizer.to_json())
    assert outside.encode("the").ids == [258, 257]


def test_padding_and_truncation_of_a_file_are_undone(tmp_path: Path):
    backend = byte_level()
    backend.enable_truncation(2)
    backend.enable_padding(length=8)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert len(Tokenizer.from_file(tmp_path / "tokenizer.json").encode("abcd")) == 4


def test_tokenizer_pickles_for_worker_processes():
    tokenizer = pickle.loads(pickle.dumps(Tokenizer.train_words([TEXT])))
    assert tokenizer.encode("the dog").tolist() == [3, 4]
    assert tokenizer.bos_id == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tokenizer.train_words([]), "training text is empty"),
        (lambda: Tokenizer.train_words(["a"], vocab_size=3), "vocab_size must be larger"),
        (lambda: Tokenizer.train_characters(["a"], vocab_size=0), "vocab_size must be larger"),
        (lambda: Tokenizer(byte_level(), bos="<bos>"), "bos='<bos>' is not in the vocabulary"),
        (lambda: Tokenizer.train_words(["a"]).decode([4]), r"must lie in \[0, 4\), got 4, 4"),
        (lambda: Tokenizer.train_words(["a"]).decode([3, -1]), "must lie in .*, got -1, 3"),
        (lambda: Tokenizer.train_words(["a"]).decode("a"), "must be integers, got 'a'"),
        (lambda: Tokenizer.train_words(["a"]).decode([1.5]), r"must be integers, got \[1.5\]"),
        (lambda: Tokenizer.train_words(["a"]).decode(None), "must be integers, got None"),
        (lambda: Tokenizer("gpt2"), "must be a tokenizers.Tokenizer, got 'gpt2': Tokenizer.from_"),
        (lambda: Tokenizer.from_json("{}", bos=None, eos=None), "not a tokenizer.json"),
    ],
)
def test_errors_say_what_is_wrong(make, message):
    with pytest.raises(TokenizerError, match=message):
        make()


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\xfe", b"plain text"])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path, content: bytes):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json is not a tokenizer"):
        Tokenizer.from_file(path)


def test_a_missing_file_is_an_os_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        Tokenizer.from_file(tmp_path / "none.json")


PROSE = ["Well, don't! He said:", "the end (3.14), <unk> and so on; no?"] * 5


def test_punctuation_hangs_on_words_or_stands_apart():
    glued = Tokenizer.train_words(PROSE)
    apart = Tokenizer.train_words(PROSE, punctuation="apart")
    auto = Tokenizer.train_words(PROSE, punctuation="auto")
    assert auto.to_json() == apart.to_json() != glued.to_json()
    assert "Well," in glued.vocabulary
    assert auto.parts_punctuation
    marked = Tokenizer.train_words([f"<s> {text} </s>" for text in PROSE], punctuation="auto")
    assert marked.vocabulary == auto.vocabulary
    assert not glued.parts_punctuation
    assert {"Well", ",", "don't", "!", "3.14", "<unk>", "(", "?"} <= set(auto.vocabulary)
    again = Tokenizer.from_json(auto.to_json(), bos=auto.bos, eos=auto.eos)
    for text in PROSE:
        words = re.findall(r"<unk>|[\w']+(?:\.\d+)?|[^\w\s]", text)
        assert [again.vocabulary[i] for i in again.encode(text)] == words
    assert auto.decode(auto.encode("Well, don't!")) == "Well, don't!"


@pytest.mark.parametrize("text", ["the boy , who sees .", "mr. <unk> of the u.s. said n't"])
def test_text_whose_marks_stand_apart_is_left_as_it_is(text: str):
    auto = Tokenizer.train_words([text] * 9, punctuation="auto")
    assert auto.to_json() == Tokenizer.train_words([text] * 9).to_json()
    assert auto.to_json() == trained("auto", [text] * 9).to_json()


@pytest.mark.parametrize("text", ["ذهب الولد، وجاء", "لماذا جاء الرجل؟", "他 说\uff0c 好"])
def test_marks_of_other_scripts_are_parted_too(text: str):
    auto = Tokenizer.train_words([text] * 9, punctuation="auto")
    assert auto.parts_punctuation
    assert {"الولد", "الرجل", "说"} & {*auto.vocabulary}


def test_names_of_tokenizers_of_words():
    assert trained("wordpunct:6", PROSE).parts_punctuation
    assert len(trained("wordpunct:6", PROSE)) == 6
    assert not trained("word", PROSE).parts_punctuation
    assert trained("auto", PROSE).parts_punctuation


@pytest.mark.parametrize(
    "text",
    [
        # Hindi; accents as characters of their own; a letter that lower case makes two.
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902, \u0905\u091a\u094d\u091b\u093e!",
        "Le the\u0301 est prêt, voila\u0300 !",
        "\u0130stanbul \u0130le, d'accord.",
    ],
)
@pytest.mark.parametrize("lower", [False, True])
def test_words_with_combining_marks_are_known(text: str, lower: bool):
    tokenizer = Tokenizer.train_words([text], punctuation="apart", lower=lower)
    assert tokenizer.unk_id not in tokenizer.encode(text)
    assert tokenizer.parts_punctuation


def layout(**vocab: int) -> dict:
    tokenizer = json.loads(Tokenizer.train_words(["a b"], boundaries=False).to_json())
    tokenizer["model"]["vocab"] = {"<unk>": 0, "a": 1, "b": 2} | vocab
    return tokenizer


def broken_merges(parts: str) -> dict:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [parts]}
    return layout() | {"model": model}


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (layout(c=10**9), "id of 'c' must lie in"),
        (layout(c=-1), "id of 'c' must lie in"),
        (layout(c=2), "the same id, 2"),
        (broken_merges("a c"), "needs 'c'"),
        (broken_merges("b a"), "needs 'ba'"),
        (broken_merges("ab"), "of two parts"),
        (layout() | {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}}, "'?'"),
        ([], "no model"),
        (layout() | {"added_tokens": [{"content": "a", "id": 2}]}, "'a' has two ids, 1 and 2"),
        (layout(c=5) | {"added_tokens": [{"content": "c", "id": 3}]}, "'c' has two ids, 5 and 3"),
        (layout() | {"added_tokens": [{"id": 3}]}, "objects with a content"),
        (layout() | {"added_tokens": [{"content": "c", "id": 3}, "d"]}, "objects with a content"),
        (layout() | {"added_tokens": {"content": "c"}}, "objects with a content"),
    ],
)
def test_tokenizers_that_the_library_trusts_are_refused(tokenizer, message, tmp_path, text, capsys):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tokenizer))
    out = tmp_path / "out"
    assert message in refused(capsys, "prepare", text, "--tokenizer", path, "--out", out)
    assert not out.exists()


def test_padding_takes_no_memory(tmp_path):
    path = tmp_path / "tokenizer.json"
    padding = {"strategy": {"Fixed": 10**8}, "direction": "Right", "pad_to_multiple_of": None,
               "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}  # fmt: skip
    path.write_text(json.dumps(layout() | {"padding": padding}))
    for tokenizer in (
        Tokenizer.from_file(path),
        Tokenizer.from_json(path.read_text(), bos=None, eos=None),
    ):
        assert tokenizer.encode("a b").tolist() == [1, 2]


def test_the_type_of_tokens_follows_the_largest_id(tmp_path):
    path, out = tmp_path / "tokenizer.json", tmp_path / "shards"
    path.write_text(json.dumps(layout(dog=65_539)))
    (tmp_path / "text.txt").write_text("a dog\n")
    command = ["prepare", str(tmp_path / "text.txt"), "--tokenizer", str(path), "--out", str(out)]
    assert main(command) == 0
    shards = Shards(out)
    assert shards.stream().tokens.tolist() == [1, 65_539]
    assert shards.n_tokens_vocab == len(shards.tokenizer) == 65_540
    assert shards.tokenizer.vocabulary[65_538:] == ["", "dog"]


def test_text_that_a_tokenizer_cannot_read_says_so():
    tokenizer = Tokenizer.train_words(["a b"])
    with pytest.raises(TokenizerError, match="a text must be a string, got int"):
        tokenizer.encode(1)  # type: ignore[arg-type]
