"""N-grams in the ARPA format: scored by hand, by KenLM where it is installed, and read again."""

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from small_models import as_of_gpt2
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from esnlm import NgramLanguageModel, Tokenizer, load_model
from esnlm.__main__ import main
from esnlm.models.arpa import read_arpa, write_arpa
from esnlm.runs.grid import read_rows
from esnlm.text.backends import END_OF_TEXT
from esnlm.text.corpus import CorpusError
from esnlm.text.named_tokenizers import byte_pairs

DOCS = ["the boy sees the dog .", "the dog sees the boys .", "boys see Mary .", "Mary sees"] * 3
TEXTS = ["the boy sees Mary .", "Mary Mary the the dog", "boys", "the unicorn sees dogs ."]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def by_hand(path: str, sentence: str, order: int) -> list[float]:
    """Natural logs of the words of a sentence and its end, by the definition of the format."""
    table: dict[tuple[str, ...], tuple[float, float]] = {}
    for line in Path(path).read_text().splitlines():
        fields = line.split("\t")
        if len(fields) >= 2:
            words = tuple(fields[1].split(" "))
            table[words] = float(fields[0]), float(fields[2]) if len(fields) > 2 else 0.0

    def score(context: tuple[str, ...], word: str) -> float:
        if (*context, word) in table:
            return table[(*context, word)][0]
        return table.get(context, (0.0, 0.0))[1] + score(context[1:], word)

    words = ["<s>", *(w if (w,) in table else "<unk>" for w in sentence.split()), "</s>"]
    return [
        score(tuple(words[max(0, t - order + 1) : t]), words[t]) * math.log(10)
        for t in range(1, len(words))
    ]


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("discounts", ["modified", "single"])
def test_files_hold_the_models_probabilities(order: int, discounts: str):
    model = NgramLanguageModel(order=order, tokenizer="word", discounts=discounts).fit(DOCS)
    write_arpa(model, "m.arpa")
    for text, scores in zip(TEXTS, model.log_likelihood(TEXTS), strict=True):
        assert scores.tolist() == pytest.approx(by_hand("m.arpa", text, order), abs=1e-7)
    again = read_arpa("m.arpa")
    assert again.tokenizer_.vocabulary == model.tokenizer_.vocabulary
    for one, other in zip(again.log_likelihood(TEXTS), model.log_likelihood(TEXTS), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)
    for prefix in ("", *TEXTS):
        found = again.predict_proba(prefix)
        np.testing.assert_allclose(found, model.predict_proba(prefix), rtol=1e-6)
    write_arpa(again, "again.arpa")
    for text in TEXTS:
        assert by_hand("again.arpa", text, order) == pytest.approx(by_hand("m.arpa", text, order))


def test_kenlm_reads_them():
    kenlm = pytest.importorskip("kenlm")
    model = NgramLanguageModel(order=4, tokenizer="word").fit(DOCS)
    write_arpa(model, "m.arpa")
    theirs = kenlm.Model("m.arpa")
    for text, scores in zip(TEXTS, model.log_likelihood(TEXTS), strict=True):
        found = [score * math.log(10) for score, _, _ in theirs.full_scores(text)]
        np.testing.assert_allclose(found, scores, atol=1e-5)


FOREIGN = """\
\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-99\t<s>\t-0.5
-0.7\t</s>
-0.4\ta\t-0.2
-0.6\tb

\\2-grams:
-0.1\t<s> a
-0.3\ta b

\\end\\
"""


def test_a_packed_file_is_a_model_too(capsys):
    model = NgramLanguageModel(order=3, tokenizer="word").fit(DOCS)
    model.save("ngrams")
    for name in ("a.arpa.gz", "b.arpa.gz"):
        assert main(["export", "ngrams", name, "--format", "arpa"]) == 0
    assert Path("a.arpa.gz").read_bytes() == Path("b.arpa.gz").read_bytes()
    write_arpa(model, "a.arpa")
    assert gzip.decompress(Path("a.arpa.gz").read_bytes()) == Path("a.arpa").read_bytes()
    Path("a.LM").write_bytes(Path("a.arpa").read_bytes())  # whatever its name
    for name in ("a.arpa.gz", "a.LM"):
        assert load_model(name).score(DOCS) == load_model("a.arpa").score(DOCS)
    Path("text.txt").write_text("a b\n")
    with pytest.raises(CorpusError, match=r"text\.txt is .* or a model folder"):
        load_model("text.txt")


def test_a_file_of_another_program(capsys):
    Path("f.arpa").write_text(FOREIGN)
    with gzip.open("f.arpa.gz", "wt") as file:
        file.write(FOREIGN)
    expected = np.array([-0.1, -0.3, -0.7]) * math.log(10)
    for name in ("f.arpa", "f.arpa.gz"):
        model = load_model(name)
        np.testing.assert_allclose(model.log_likelihood("a b")[0], expected)
    backed = np.array([-0.5 - 0.6, -0.4, -0.2 - 100, -0.7]) * math.log(10)
    np.testing.assert_allclose(model.log_likelihood("b a c")[0], backed)
    after_a = 10.0 ** np.array([-99.2, -0.9, -0.6, -0.3, -100.2])  # <s> </s> a b <unk>
    np.testing.assert_allclose(model.predict_proba("b a"), after_a)
    model.save("folder")
    np.testing.assert_array_equal(load_model("folder").log_likelihood("a b")[0], expected)
    Path("text").write_text("a b\n")
    assert main(["evaluate", "f.arpa", "text"]) == 0
    assert "n_tokens              3" in capsys.readouterr().out


def test_sub_words_keep_their_tokenizer():
    tokenizer = byte_pairs(DOCS, 270)
    model = NgramLanguageModel(order=3, tokenizer=tokenizer).fit(DOCS)
    write_arpa(model, "m.arpa")
    for again in (read_arpa("m.arpa"), read_arpa("m.arpa", tokenizer)):
        np.testing.assert_allclose(again.score(TEXTS[:3]), model.score(TEXTS[:3]), atol=1e-7)
    model.save("folder")
    Path("text").write_text("\n".join(TEXTS) + "\n")
    assert main(["evaluate", "folder", "text", "--csv", "one.csv"]) == 0
    assert main(["evaluate", "m.arpa", "text", "--csv", "other.csv"]) == 0
    losses = [read_rows(name)[0]["nll_per_token"] for name in ("one.csv", "other.csv")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


@pytest.mark.parametrize("order", [1, 3])
def test_sentences_begin_and_end_as_kenlm_has_them(order: int):
    tokenizer = as_of_gpt2(DOCS)
    model = NgramLanguageModel(order=order, tokenizer=tokenizer).fit(DOCS)
    write_arpa(model, "m.arpa")
    words = [
        line.split("\t")[1] for line in Path("m.arpa").read_text().splitlines() if "\t" in line
    ]
    assert {"<s>", "</s>"} < set(words)
    assert not any(END_OF_TEXT in word for word in words)
    cut = " ".join(tokenizer.vocabulary[i] for i in tokenizer.encode(TEXTS[0]))
    (scores,) = model.log_likelihood(TEXTS[:1])
    assert scores.tolist() == pytest.approx(by_hand("m.arpa", cut, order), abs=1e-7)
    again = read_arpa("m.arpa")
    assert again.tokenizer_.bos_id == again.tokenizer_.eos_id == tokenizer.bos_id
    for one, other in zip(again.log_likelihood(TEXTS), model.log_likelihood(TEXTS), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)
    for prefix in ("", "the"):
        found = again.predict_proba(prefix)
        np.testing.assert_allclose(found, model.predict_proba(prefix), rtol=1e-6)


@pytest.mark.parametrize(
    ("bos", "eos"), [("<s>", None), (None, "</s>"), ("<e>", "<e>"), ("<b>", "<e>"), (None, "<e>")]
)
def test_boundaries_of_any_name_are_read_again(bos: str | None, eos: str | None):
    names = dict.fromkeys(filter(None, ("<unk>", bos, eos, *" ".join(DOCS).split())))
    backend = Backend(models.WordLevel({word: i for i, word in enumerate(names)}, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = Tokenizer(backend, bos=bos, eos=eos)
    tokenizer = tokenizer.prepend_bos() if bos else tokenizer
    model = NgramLanguageModel(order=3, tokenizer=tokenizer).fit(DOCS)
    write_arpa(model, "m.arpa")
    again = read_arpa("m.arpa")
    assert (again.tokenizer_.bos, again.tokenizer_.eos) == (bos, eos)
    for one, other in zip(again.log_likelihood(TEXTS), model.log_likelihood(TEXTS), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7)


def test_numbers_are_words():
    integers = NgramLanguageModel(order=2).fit([[0, 1, 2, 1]])
    write_arpa(integers, "n.arpa")
    assert "\t1 2\n" in Path("n.arpa").read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "no counts of n-grams"),
        (f"iARPA\n\n{FOREIGN}", "IRSTLM's iARPA, .* compile-lm --text=yes converts it"),
        (FOREIGN.replace("ngram 2=2", "ngram 2=3"), "expected 3 2-grams, got 2"),
        (FOREIGN.partition("-0.3")[0], "expected 2 2-grams, got 1"),
        (FOREIGN.replace("\\2-grams", "\\3-grams"), "expected the 2-grams"),
        (FOREIGN.replace("-0.4\ta", "x\ta"), "could not convert"),
        (FOREIGN.replace("a b\n", "a c\n"), "'c' is no token of the vocabulary"),
        (FOREIGN.replace("\tb\n", "\ta\n"), "f.arpa .* 'a' is there twice"),
        (FOREIGN.replace("<s> a", "a b"), "f.arpa .* 'a b' is there twice"),
        (
            FOREIGN.replace("ngram 2=2", "ngram 2=2\nngram 3=1").replace(
                "\n\\end", "\n\\3-grams:\n-0.1\tb a b\n\n\\end"
            ),
            "f.arpa .* context of a 3-gram is in no table",
        ),
    ],
)
def test_damaged_files_are_refused(text: str, message: str):
    Path("f.arpa").write_text(text)
    with pytest.raises(CorpusError, match=message):
        read_arpa("f.arpa")


def test_any_damage_of_a_packed_file_is_named():
    packed = gzip.compress(FOREIGN.encode())
    for place in range(10, len(packed)):  # before that are the time and other notes
        damaged = bytearray(packed)
        damaged[place] ^= 0x55
        Path("f.arpa.GZ").write_bytes(damaged)
        with pytest.raises(CorpusError, match=r"f\.arpa\.GZ is not"):
            read_arpa("f.arpa.GZ")
    write_arpa(NgramLanguageModel(order=2, tokenizer="word").fit(DOCS), "g.arpa.GZ")
    assert read_arpa("g.arpa.GZ").order == 2


def test_a_byte_order_mark_is_no_text():
    Path("f.arpa").write_text(FOREIGN, "utf-8-sig")
    np.testing.assert_allclose(read_arpa("f.arpa").log_likelihood("a")[0][0], -0.1 * math.log(10))


@pytest.mark.parametrize("reset", ["document", "never"])
def test_a_model_that_reads_on_past_a_sentence_is_refused(reset: str):
    model = NgramLanguageModel(order=2, tokenizer="word", reset=reset).fit(DOCS)
    with pytest.raises(ValueError, match=f"trained with reset '{reset}', expected 'sentence'"):
        write_arpa(model, "m.arpa")
    assert not list(Path.cwd().iterdir())


def test_what_cannot_be_written_is_refused(capsys):
    model = NgramLanguageModel(order=2, tokenizer=Tokenizer.train_characters(["a b"])).fit(["a b"])
    with pytest.raises(ValueError, match="the token ' ' holds some"):
        write_arpa(model, "m.arpa")
    assert not Path("m.arpa").exists()
    NgramLanguageModel(order=2, tokenizer="word").fit(DOCS).save("kn")
    assert main(["export", "kn", "kn.arpa", "--format", "arpa"]) == 0
    assert load_model("kn.arpa").score(DOCS) == pytest.approx(load_model("kn").score(DOCS))
    assert main(["export", "kn", "kn.arpa", "--format", "arpa"]) == 2
    assert "kn.arpa exists" in capsys.readouterr().err
    beside = Path("kn.arpa.tokenizer.json").read_bytes()
    Path("kn.arpa").unlink()
    assert main(["export", "kn", "kn.arpa", "--format", "arpa"]) == 2
    assert "kn.arpa.tokenizer.json exists" in capsys.readouterr().err
    assert not Path("kn.arpa").exists()
    assert Path("kn.arpa.tokenizer.json").read_bytes() == beside


SMALL = """\\data\\
ngram 1=5
ngram 2=4

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.3
-0.6\t</s>
-0.5\ta\t-0.2
-0.7\tb\t-0.1

\\2-grams:
-0.2\t<s> a
-0.3\ta b
-0.4\tb </s>
-0.9\ta a

\\end\\
"""


def log10s(text: str, sentence: str) -> list[float]:
    """Base-10 logarithms of a sentence's words and its end under the model of a file."""
    Path("small.arpa").write_text(text)
    (scores,) = load_model("small.arpa").log_likelihood([sentence])
    return (scores / np.log(10)).round(3).tolist()


# The values are KenLM's (0.3.0).
def test_the_unknown_word_may_be_spelled_in_capitals() -> None:
    text = SMALL.replace("<unk>", "<UNK>")
    assert log10s(text, "a b zzz a") == [-0.2, -0.3, -1.1, -0.5, -0.8]


def test_two_unknown_words_are_told_apart() -> None:
    text = SMALL.replace("-0.7\tb", "-0.8\t<UNK>\n-0.7\tb").replace("1=5", "1=6")
    with pytest.warns(UserWarning, match="<unk>, which unknown words are here, and <UNK>"):
        assert log10s(text, "<UNK> zzz") == [-1.1, -1.0, -0.6]


@pytest.mark.parametrize(
    ("line", "other"), [("-99\t<s>", "0\t<s>"), ("a\t-0.2", "a\t-inf"), ("-0.7\tb", "-inf\tb")]
)
def test_distributions_of_a_file_are_none_of_what_is_never_predicted(line: str, other: str) -> None:
    Path("small.arpa").write_text(SMALL.replace(line, other))  # lmplz writes 0 for <s>
    model = load_model("small.arpa")
    for prefix in ("", "a", "b"):
        assert model.predict_proba(prefix)[1] < 1e-90
        assert 0.5 < model.predict_proba(prefix).sum() < 1
    assert "<s>" not in [word for word, _ in model.next_words("b", k=3)]
    assert "<s>" not in model.sample(20, random_state=0)
    table = model.surprisal("a b")
    assert table["rank"].tolist() == [1, 1]
    assert table["surprisal_bits"].tolist() == pytest.approx([0.664386, 0.996578], abs=1e-5)


@pytest.mark.parametrize(
    ("line", "other"), [("-0.9\ta a", "-inf\ta a"), ("-0.5\ta\t-0.2", "-0.5\ta\t-inf")]
)
def test_the_words_after_an_impossible_one_have_a_surprisal(line: str, other: str) -> None:
    Path("small.arpa").write_text(SMALL.replace(line, other))
    model = load_model("small.arpa")
    assert model.surprisal("a a b a")["surprisal_bits"].notna().all()
    model.save("m")
    assert load_model("m").score("a a b a") == model.score("a a b a") < -20


def test_the_unknown_word_of_any_tokenizer_is_unk_to_other_programs() -> None:
    names = {"[UNK]": 0, "a": 1, "b": 2, "c": 3}
    backend = Backend(models.WordLevel(names, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model = NgramLanguageModel(order=2, tokenizer=Tokenizer(backend)).fit(["a b x", "x a b"])
    write_arpa(model, "m.arpa")
    text = Path("m.arpa").read_text()
    assert "\t<unk>\t" in text
    assert "[UNK]" not in text
    for again in (read_arpa("m.arpa"), read_arpa("m.arpa", model.tokenizer_)):
        assert again.tokenizer_.bos is None
        for one, other in zip(
            again.log_likelihood(["a x b", "q a"]),
            model.log_likelihood(["a x b", "q a"]),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, atol=1e-7)


def test_the_highest_order_may_be_empty() -> None:
    text = SMALL.replace("ngram 2=4\n", "ngram 2=4\nngram 3=0\n")
    text = text.replace("\n\\end", "\n\\3-grams:\n\n\\end")
    assert log10s(text, "a b a") == [-0.2, -0.3, -0.6, -0.8]
    with pytest.raises(CorpusError, match="expected 1 3-grams, got 0"):
        log10s(text.replace("ngram 3=0", "ngram 3=1"), "a")


@pytest.mark.parametrize("space", ["\u3000", "\u00a0", "\u2028", "\x0c", "\x1c"])
def test_words_hold_white_space_that_parts_none(space: str) -> None:
    word = f"x{space}y"
    text = SMALL.replace("\tb\t", f"\t{word}\t").replace("a b\n", f"a {word}\n")
    text = text.replace("\tb </s>", f"\t{word} </s>")
    assert log10s(text, f"a {word} a") == [-0.2, -0.3, -0.6, -0.8]
    table = load_model("small.arpa").surprisal(f"a{space}a {word}")
    assert table["word"].tolist() == [f"a{space}a", word]  # the first is unknown
    bits = (table["surprisal_bits"] / math.log2(10)).tolist()
    assert bits == pytest.approx([1.3, 0.7])
    assert table["n_unknown"].tolist() == [1, 0]


def test_comments_before_the_head_and_blank_lines_are_passed_over() -> None:
    text = "It has\n\\1-grams:\nand more.\n" + SMALL.replace("\ta b\n", "\ta b\n\n  \n")
    assert log10s(text, "a b a") == [-0.2, -0.3, -0.6, -0.8]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (SMALL.encode("utf-16"), r"UTF-8 text .* at byte 0: convert it, .*; expected an ARPA file"),
        (b"mmap lm http://kheafield.com/code format version 5\n\0\xff", "KenLM's binary of a"),
        (gzip.compress(SMALL.encode()), "is packed by gzip: let its name end in .gz; expected"),
    ],
)
def test_a_file_of_another_format_is_named_once(data: bytes, message: str) -> None:
    Path("m.arpa").write_bytes(data)
    with pytest.raises(CorpusError, match=message) as caught:
        load_model("m.arpa")
    assert str(caught.value).count("m.arpa") == 1
    assert "encoding=" not in str(caught.value)


def test_sentences_without_an_end_are_warned_of() -> None:
    Path("m.arpa").write_text(SMALL.replace("<s>", "<S>").replace("</s>", "</S>"))
    with pytest.warns(UserWarning, match=r"m.arpa has no </s>, so ends of sentences .* impossible"):
        load_model("m.arpa")


def test_the_command_exports_a_file_for_transformers() -> None:
    Path("m.arpa").write_text(SMALL)
    assert main(["export", "m.arpa", "hf"]) == 0
    assert Path("hf/model.safetensors").is_file()
