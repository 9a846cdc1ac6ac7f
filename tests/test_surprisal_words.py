"""Surprisal of words whose tokens carry the space before them, against enumeration."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_models import as_of_gpt2
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from esnlm import LanguageModel, NgramLanguageModel, Reservoir, SoftmaxReadout, Tokenizer
from esnlm.__main__ import main
from esnlm.models.base import SequenceModel
from esnlm.text.backends import END_OF_TEXT

LETTERS, LONGEST = "ab", 3


def sub_words(space: str, splitter: Any, decoder: Any) -> Tokenizer:
    """A tokenizer of letters, alone and after a space."""
    pieces = ["</s>", "a", "b", space, f"{space}a", f"{space}b"]
    merges = [(space, letter) for letter in LETTERS]
    backend = Backend(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    backend.pre_tokenizer, backend.decoder = splitter, decoder
    return Tokenizer(backend, bos="</s>", eos="</s>").prepend_bos()


def with_marks() -> Tokenizer:
    """`byte_level`, and a full stop."""
    pieces = ["</s>", "a", "b", "Ġ", "Ġa", "Ġb", ".", "Ġ."]
    merges = [("Ġ", letter) for letter in (*LETTERS, ".")]
    backend = Backend(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend, bos="</s>", eos="</s>").prepend_bos()


def byte_level() -> Tokenizer:
    return sub_words("Ġ", pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel())


def byte_level_after_a_space() -> Tokenizer:
    return sub_words("Ġ", pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel())


def metaspace() -> Tokenizer:
    return sub_words("▁", pre_tokenizers.Metaspace(), decoders.Metaspace())


def word_piece() -> Tokenizer:
    pieces = ["[UNK]", "</s>", "a", "b", "##a", "##b"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    backend = Backend(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Whitespace(), decoders.WordPiece()
    return Tokenizer(backend, bos="</s>", eos="</s>").prepend_bos()


TOKENIZERS: list[Callable[[], Tokenizer]] = [
    byte_level, byte_level_after_a_space, metaspace, word_piece
]  # fmt: skip


class ShortWords(SequenceModel):
    """Random probabilities of the next token; no word has more than `LONGEST` letters.

    A space alone and an unknown word are never next. The state is the last token and the number
    of letters of the word so far.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer_, self.n_tokens_, self.reset = tokenizer, len(tokenizer), "sentence"
        rng = np.random.default_rng(0)
        self.weights = rng.gamma(1.0, size=(len(tokenizer), LONGEST + 1, len(tokenizer)))
        self.within = ~tokenizer.begins_word
        for token, piece in enumerate(tokenizer.vocabulary):
            if not any(letter in piece for letter in (*LETTERS, ".")) and piece != "</s>":
                self.weights[:, :, token] = 0
        self.weights[:, LONGEST, self.within] = 0
        self.weights /= self.weights.sum(axis=2, keepdims=True)

    def _read(self, ids: Any, state: Any = None) -> tuple[int, int]:
        last, n_letters = state or (0, 0)
        for token in np.asarray(ids).tolist():
            last, n_letters = token, n_letters if self.within[token] else 0
            n_letters += not (self.tokenizer_.is_mark[token] or token == self.tokenizer_.eos_id)
        return last, n_letters

    def _next_log_probabilities(self, state: Any) -> Any:
        with np.errstate(divide="ignore"):
            return np.log(self.weights[state])

    def _log_probabilities(self, stream: Any) -> Any:
        scores = np.zeros(len(stream.tokens))
        for rows, places in self._distributions(stream):
            scores[places] = np.log(rows[np.arange(len(places)), stream.tokens[places]])
        return scores


@pytest.mark.parametrize("before", ["", "ab", "bb a"])
@pytest.mark.parametrize("make", TOKENIZERS)
def test_words_and_the_end_sum_to_one(make: Any, before: str) -> None:
    model = ShortWords(make())
    words = ["".join(w) for n in range(LONGEST) for w in itertools.product(LETTERS, repeat=n + 1)]
    if make in (byte_level_after_a_space, metaspace, word_piece) or before:
        texts = [f"{before} {word}".strip() for word in words]
    else:
        texts = words
    table = model.surprisal(texts).groupby("document")["surprisal_bits"].last()
    total = (2.0**-table).sum()
    eos = model.tokenizer_.eos_id
    shares = model.weights[model._read([eos, *model.tokenizer_.encode(before)])]
    begins = model.tokenizer_.begins_word
    if not before and make is byte_level:  # a text begins without a space
        begins = ~begins
        begins[eos] = True
    end = shares[eos] / shares[begins].sum()
    assert total + end == pytest.approx(1, abs=1e-6)
    plain = (
        model.surprisal(texts, correct_boundaries=False)
        .groupby("document")["surprisal_bits"]
        .last()
    )
    assert abs((2.0**-plain).sum() + shares[eos] - 1) > 1e-3


@pytest.mark.parametrize("mark", ["", "."])
@pytest.mark.parametrize("opening", ["", "."])
def test_words_without_marks_sum_to_one(opening: str, mark: str) -> None:
    """Of all words of letters after the same words and opening mark, whatever follows them."""
    model = ShortWords(with_marks())
    tokenizer = model.tokenizer_
    # After the letters comes one mark at most, and no word has a mark inside.
    marks = [tokenizer.vocabulary.index(piece) for piece in (".", "Ġ.")]
    model.weights[:, LONGEST, marks[0]] = 0.1
    model.weights[marks[0], 1:, 1:3] = 0
    model.weights[np.ix_(marks, range(LONGEST + 1), marks[:1])] = 0
    model.weights /= model.weights.sum(axis=2, keepdims=True)
    words = ["".join(w) for n in range(LONGEST) for w in itertools.product(LETTERS, repeat=n + 1)]
    texts = [f"ab {opening}{word}{mark} b" for word in words]
    table = model.surprisal(texts).groupby("document").nth(1)
    assert table["word"].tolist() == [f"{opening}{word}{mark}" for word in words]
    assert table["length"].tolist() == [len(word) for word in words]
    total = (2.0 ** -table["surprisal_bits_without_marks"]).sum()
    shares = model.weights[model._read([0, *tokenizer.encode("ab")])]
    begins = tokenizer.begins_word
    others = 0.0 if opening else (shares[0] + shares[marks[1]]) / shares[begins].sum()
    assert total + others == pytest.approx(1, abs=1e-6)
    if mark or opening:
        assert not np.allclose(table["surprisal_bits"], table["surprisal_bits_without_marks"])


def test_a_quote_of_several_tokens_is_a_mark() -> None:
    """GPT-2 cuts curly quotes in two: bytes that only marks begin with, and the last byte."""
    pieces = ["</s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "âĢ"]
    backend = Backend(models.BPE({piece: i for i, piece in enumerate(pieces)}, [("â", "Ģ")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = Tokenizer(backend, bos="</s>", eos="</s>").prepend_bos()
    assert tokenizer.is_mark[-1]
    assert not tokenizer.is_mark[[pieces.index("â"), pieces.index("Ŀ")]].any()
    model = NgramLanguageModel(order=3, tokenizer=tokenizer).fit(["a “b.” é", "a b", "“a b”"] * 3)
    row = model.surprisal("a “b.” é").iloc[1]
    assert (row["word"], row["n_tokens"]) == ("“b.”", 7)
    *before, letter = [0, *tokenizer.encode("a “b")]
    first, after = model.predict_proba(before), model.predict_proba([*before, letter])
    begins, marks = tokenizer.begins_word, tokenizer.is_mark
    share = first[letter] / first[~begins & ~marks].sum() * after[begins | marks].sum()
    assert row["surprisal_bits_without_marks"] == pytest.approx(-np.log2(share), rel=1e-6)


def test_of_characters_an_opening_mark_is_no_part_of_a_word_without_marks() -> None:
    texts = ["a (b) c", "a b -- c", "(a) b"] * 3
    model = NgramLanguageModel(order=3, tokenizer="char", reset="sentence").fit(texts)
    rows = model.surprisal("a (b) -- c").set_index("word")
    *before, letter = [model.tokenizer_.bos_id, *model.tokenizer_.encode("a (b")]
    first, after = model.predict_proba(before), model.predict_proba([*before, letter])
    begins, marks = model.tokenizer_.begins_word, model.tokenizer_.is_mark
    share = first[letter] / first[~begins & ~marks].sum() * after[begins | marks].sum()
    assert rows["surprisal_bits_without_marks"]["(b)"] == pytest.approx(-np.log2(share), rel=1e-6)
    assert rows["surprisal_bits_without_marks"]["--"] == rows["surprisal_bits"]["--"]
    spaced = model.surprisal("a -- ").iloc[1]  # the last space is of the last word
    assert spaced["surprisal_bits_without_marks"] == spaced["surprisal_bits"]


@pytest.mark.parametrize("make", TOKENIZERS)
def test_a_correction_moves_bits_between_neighbours_only(make: Any, tmp_path: Any) -> None:
    texts = ["ab ba a b", "b a ab", "aa b ba ab a"] * 5
    for model in (
        NgramLanguageModel(order=3, tokenizer=make()).fit(texts),
        LanguageModel(Reservoir(20, random_state=0), SoftmaxReadout(), tokenizer=make()).fit(texts),
    ):
        corrected, plain = (
            model.surprisal(texts, correct_boundaries=each)["surprisal_bits"]
            for each in (True, False)
        )
        assert np.abs(corrected - plain).max() > 0.01
        model.save(tmp_path / "model")
        (tmp_path / "text").write_text("\n\n".join(texts) + "\n")
        for bits, option in ((corrected, []), (plain, ["--uncorrected"])):
            csv = str(tmp_path / "words.csv")
            command = ["evaluate", str(tmp_path / "model"), str(tmp_path / "text"), *option]
            assert main([*command, "--surprisal-csv", csv, "--overwrite"]) == 0
            rows = pd.read_csv(csv)
            words = rows[rows["word"] != "</s>"]
            np.testing.assert_allclose(words["surprisal_bits"], bits, rtol=1e-5, atol=1e-6)
        # What the words and ends of a sentence have in all does not change, its spelling apart.
        whole = -np.concatenate(model.log_likelihood(texts)).sum() / np.log(2)
        assert pd.read_csv(csv)["surprisal_bits"].sum() == pytest.approx(whole, rel=1e-6)


def test_words_that_are_tokens_need_no_correction() -> None:
    texts = ["the boy sees the dog", "the dog sees"] * 3
    model = NgramLanguageModel(order=2, tokenizer="word").fit(texts)
    assert model.tokenizer_.begins_word is None
    assert model.surprisal(texts).equals(model.surprisal(texts, correct_boundaries=False))


def test_words_whose_last_token_is_spelled_as_such_need_no_correction() -> None:
    pieces = ["<unk>", "<s>", "</s>", "a", "b", "a</w>", "b</w>", "ab</w>"]
    parts = models.BPE(
        {piece: i for i, piece in enumerate(pieces)},
        [("a", "b</w>")],
        unk_token="<unk>",
        end_of_word_suffix="</w>",
    )
    backend = Backend(parts)
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.BPEDecoder("</w>")
    tokenizer = Tokenizer(backend, bos="<s>", eos="</s>").prepend_bos()
    assert tokenizer.decode(tokenizer.encode("ba ab a")) == "ba ab a"
    model = NgramLanguageModel(order=3, tokenizer=tokenizer).fit(["ba ab a", "ab b ba"] * 3)
    table = model.surprisal("ba ab a")
    assert (table["surprisal_bits"] > 0).all()
    assert table.equals(model.surprisal("ba ab a", correct_boundaries=False))


def test_counts_of_a_file_are_those_of_its_text(tmp_path: Any) -> None:
    model = NgramLanguageModel(order=2, tokenizer="word").fit(["the boy sees the dog"])
    path = tmp_path / "counts.txt"
    path.write_text("the the boy\n")
    expected = model.surprisal("the boy", counts=["the the boy"])
    for name in (path, str(path)):
        assert model.surprisal("the boy", counts=name).equals(expected)
    with pytest.raises(ValueError, match="no such file"):
        model.surprisal("the boy", counts="counts.txt.gz")


@pytest.mark.parametrize("reset", ["never", "document"])
def test_a_document_of_white_space_has_tokens_and_no_words(reset: str) -> None:
    model = NgramLanguageModel(order=2, tokenizer="char", reset=reset).fit(["the boy\nsees it"])
    table = model.surprisal(["the boy", " \n ", "it"])
    assert table["word"].tolist() == ["the", "boy", "it"]
    assert table["document"].tolist() == [1, 1, 3]
    assert model.surprisal(" \n ").empty


@pytest.mark.parametrize("make", [Tokenizer.train_words, as_of_gpt2])
def test_the_words_of_one_token_are_one_row(make: Any) -> None:
    docs = ["I saw New  York .", "New  York is big ."] * 4
    backend = make(docs).backend
    backend.add_tokens([AddedToken("New  York", normalized=False)])
    boundaries = [END_OF_TEXT] * 2 if make is as_of_gpt2 else ["<s>", "</s>"]
    tokenizer = Tokenizer(backend, bos=boundaries[0], eos=boundaries[1])
    model = NgramLanguageModel(2, tokenizer).fit(docs)
    table = model.surprisal("I saw New  York\nNew  York is big")
    assert table["word"].tolist() == ["I", "saw", "New  York", "New  York", "is", "big"]
    assert (table["surprisal_bits"] > 0).all()
    assert (table["n_tokens"] > 0).all()
    assert table["sentence"].tolist() == [1] * 3 + [2] * 3
