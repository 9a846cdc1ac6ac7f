"""Files of other tools, and text that holds what tokenizers and tools read in other ways."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from esnlm import LanguageModel, NgramLanguageModel, Reservoir, RidgeReadout
from esnlm.evaluation.minimal_pairs.scores import sentence_log_likelihoods
from esnlm.text.backends import TokenizerError
from esnlm.text.boundaries import framed, framed_prefix
from esnlm.text.corpus import TextCorpus
from esnlm.text.named_tokenizers import trained
from esnlm.text.sentences import SentenceStream
from esnlm.text.tokenizers import Tokenizer

TEXT = ["the dog saw the cat", "the cat knows that", "you know that the dog is here"] * 9
SPECIAL = ["<unk>", "<s>", "</s>"]
#: What str.splitlines cuts at, and files, R and KenLM do not.
SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def unigram() -> Backend:
    """SentencePiece's kind, which names the unknown token by its number."""
    backend = Backend(models.Unigram())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    options: dict[str, Any] = {"unk_token": "<unk>", "special_tokens": SPECIAL}
    trainer = trainers.UnigramTrainer(vocab_size=60, show_progress=False, **options)
    backend.train_from_iterator(TEXT, trainer)
    return backend


def pieces() -> Backend:
    backend = Backend(models.WordPiece(unk_token="<unk>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.WhitespaceSplit(), decoders.WordPiece()
    options: dict[str, Any] = {"special_tokens": SPECIAL, "show_progress": False}
    backend.train_from_iterator(TEXT, trainers.WordPieceTrainer(vocab_size=60, **options))
    return backend


def pairs() -> Backend:
    """Pairs of characters, as SentencePiece's, which have an unknown token."""
    backend = Backend(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    options: dict[str, Any] = {"special_tokens": SPECIAL, "show_progress": False}
    backend.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=60, **options))
    return backend


def words() -> Backend:
    return Tokenizer.train_words(TEXT).backend


def read(make: Any, tmp_path: Path) -> Tokenizer:
    make().save(str(tmp_path / "tokenizer.json"))
    return Tokenizer.from_file(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("make", [unigram, pieces, pairs, words])
def test_unknown_tokens_of_every_kind_are_counted(make: Any, tmp_path: Path) -> None:
    tokenizer = read(make, tmp_path)
    assert tokenizer.unk_id == 0
    model = NgramLanguageModel(3, tokenizer).fit(TEXT)
    unknown = model.surprisal("the \u5317\u4eac dog saw \u0416\u0416")["n_unknown"] > 0
    assert unknown.tolist() == [False, True, False, False, True]


def test_a_number_of_an_unknown_token_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(unigram().to_str().replace('"unk_id":0', '"unk_id":999'))
    with pytest.raises(TokenizerError, match="its unknown token 999 is not in the vocabulary"):
        Tokenizer.from_file(path)


@pytest.mark.parametrize("make", [unigram, pieces, pairs, words])
@pytest.mark.parametrize("text", ["the <s> dog </s> saw", "the<s>dog", "</s>", "<S> the"])
def test_boundaries_in_a_text_are_text(make: Any, text: str, tmp_path: Path) -> None:
    tokenizer = read(make, tmp_path)
    boundaries = {tokenizer.bos_id, tokenizer.eos_id}
    again = Tokenizer.from_json(tokenizer.to_json(), bos="<s>", eos="</s>").prepend_bos()
    assert again.to_json() == tokenizer.to_json()
    for each in (tokenizer, again, pickle.loads(pickle.dumps(tokenizer)), tokenizer.lowered()):
        ids = each.encode(text).tolist()
        assert ids
        assert not boundaries.intersection(ids)
        assert [batch.tolist() for batch in each.encode_batches([text])] == [ids]
        assert each.backend.encode(text).ids == [each.bos_id, *ids]


@pytest.mark.parametrize("name", ["word", "wordpunct", "char", "bpe:300"])
def test_boundaries_in_a_text_are_text_to_trained_tokenizers(name: str) -> None:
    tokenizer = trained(name, TEXT)
    ids = tokenizer.encode("the <s> dog </s> saw").tolist()
    assert not {tokenizer.bos_id, tokenizer.eos_id}.intersection(ids)
    assert tokenizer.backend.encode("the <s> dog </s> saw", add_special_tokens=False).ids == ids
    if name == "bpe:300":
        assert tokenizer.decode(ids) == "the <s> dog </s> saw"


def test_a_word_that_holds_a_boundary_is_a_word() -> None:
    text = "the <s>dog</s> saw it</s>"
    tokenizer = trained("word", [text])
    assert [tokenizer.spelling(i) for i in tokenizer.encode(text)] == text.split()
    assert tokenizer.encode("<s>\u00a0dog </s>").tolist() == [tokenizer.unk_id] * 3


def test_tokenizers_of_earlier_versions_are_read_as_they_are(tmp_path: Path) -> None:
    layout = json.loads(trained("word", TEXT).to_json())
    for step, token in zip(layout["normalizer"]["normalizers"], ("</s>", "<s>"), strict=True):
        step["pattern"] = {"String": token}
    (tmp_path / "tokenizer.json").write_text(json.dumps(layout))
    assert json.loads(Tokenizer.from_file(tmp_path / "tokenizer.json").to_json()) == layout


@pytest.mark.parametrize("name", ["word", "char", "bpe:300"])
def test_lines_with_marks_around_them_are_the_lines(name: str) -> None:
    tokenizer, marked = trained(name, TEXT), [f"<s> {line} </s>" for line in TEXT]
    plain = NgramLanguageModel(2, tokenizer).fit(TEXT)
    other = NgramLanguageModel(2, tokenizer).fit(marked)
    assert other.score(marked) == plain.score(TEXT) == plain.score("\n".join(marked))


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("name", ["word", "wordpunct", "char", "bpe:300"])
def test_lines_end_where_those_of_a_file_do(name: str, separator: str, tmp_path: Path) -> None:
    text = f"the dog saw{separator}the cat\nyou know that\r\nthe man\n"
    path = tmp_path / "text.txt"
    path.write_bytes(text.encode())
    tokenizer = trained(name, [text])
    (arrays,) = framed([text], tokenizer, "sentence")
    assert len(arrays) == 3
    assert tokenizer.unk_id not in np.concatenate(arrays)
    (batch,) = SentenceStream(TextCorpus(path)).batches()
    of_file = [array.tolist() for (array,) in framed(batch.texts, tokenizer, "sentence")]
    assert of_file == [array.tolist() for array in arrays]
    before = framed_prefix(f"you know\nthe{separator}dog", tokenizer, "sentence").tolist()
    assert before == [tokenizer.bos_id, *tokenizer.encode(f"the{separator}dog")]
    table = NgramLanguageModel(2, tokenizer).fit([text] * 3).surprisal(text)
    assert table[table["word"] == "man"]["sentence"].tolist() == [3]


HALF = "the \ud83d dog"


@pytest.mark.parametrize("name", ["word", "wordpunct", "auto", "char"])
def test_half_a_character_is_named_wherever_text_enters(name: str) -> None:
    message = r"the text holds half a character, U\+D83D, at place 4: 'the .ud83d dog'"
    for kind in (NgramLanguageModel(2), LanguageModel(Reservoir(9), RidgeReadout())):
        with pytest.raises(ValueError, match=message):
            kind.set_params(tokenizer=name).fit([HALF])
    model = LanguageModel(Reservoir(9, random_state=0), RidgeReadout(), tokenizer=name).fit(TEXT)
    tokenizer = model.tokenizer_
    assert tokenizer is not None
    for enter in (
        model.score, model.perplexity, model.log_likelihood, model.surprisal, model.predict_proba,
        model.next_words, model.partial_fit, tokenizer.encode,
        lambda text: model.sample(3, prompt=text),
        lambda text: list(tokenizer.encode_batches([text])),
        lambda text: sentence_log_likelihoods(model, [text]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="half a character"):
            enter(HALF)


def test_half_a_character_is_named_by_pairs_of_bytes() -> None:
    with pytest.raises(TokenizerError, match="half a character"):
        trained("bpe:300", [*TEXT, HALF])
    with pytest.raises(TokenizerError, match="half a character"):
        trained("bpe:300", TEXT).encode(HALF)


@pytest.mark.filterwarnings("error")
def test_pairs_that_drop_characters_are_warned_of(tmp_path: Path) -> None:
    entries = {"a": 0, "b": 1, "[UNK]": 2}
    for unknown, warns in ((None, True), ("[UNK]", False)):
        backend = Backend(models.BPE(entries, [], unk_token=unknown))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        backend.save(str(tmp_path / "t.json"))
        if warns:
            with pytest.warns(UserWarning, match="it drops characters that are not in its"):
                Tokenizer.from_file(tmp_path / "t.json")
        else:
            assert Tokenizer.from_file(tmp_path / "t.json").encode("\u00e9").tolist() == [2]
    of_bytes = Backend(
        models.BPE({c: i for i, c in enumerate(pre_tokenizers.ByteLevel.alphabet())}, [])
    )
    of_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    of_bytes.save(str(tmp_path / "b.json"))
    Tokenizer.from_file(tmp_path / "b.json")


def test_pieces_are_not_dropped_at_random(tmp_path: Path) -> None:
    backend = pairs()
    backend.model.dropout = 0.5
    tokenizer = read(lambda: backend, tmp_path)
    (expected,) = {tuple(tokenizer.encode(TEXT[0])) for _ in range(20)}
    assert tuple(read(pairs, tmp_path).encode(TEXT[0])) == expected
    assert tuple(pickle.loads(pickle.dumps(tokenizer)).encode(TEXT[0])) == expected


def test_a_byte_order_mark_is_no_part_of_a_tokenizer(tmp_path: Path) -> None:
    expected = read(words, tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert Tokenizer.from_file(path).vocabulary == expected.vocabulary


def test_a_unigram_model_without_unknown_token_is_refused(tmp_path: Path) -> None:
    layout = json.loads(unigram().to_str())
    layout["model"]["unk_id"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(layout))
    with pytest.raises(TokenizerError, match=r"no unk_id, .* cannot be read: set it to the place"):
        Tokenizer.from_file(tmp_path / "tokenizer.json")
