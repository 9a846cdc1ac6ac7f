"""Gains on reading times, against regressions computed here and times of known make."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from small_models import DOCS, of_bytes
from small_models import ngrams as ngrams_of
from small_models import reservoir_model as reservoir_of

from esnlm import reading_times
from esnlm.__main__ import main
from esnlm.datasets import DIGESTS, load_natural_stories
from esnlm.evaluation.reading import MEASURES, sentence_numbers
from esnlm.text.corpus import CorpusError

NOISE = 10.0


def ngrams() -> Any:
    return ngrams_of(tokenizer="wordpunct")


def reservoir_model() -> Any:
    return reservoir_of(tokenizer="wordpunct")


def corpus(n_items: int = 4, n_sentences: int = 25) -> pd.DataFrame:
    """Words of the training sentences in random order, times from surprisal, and their noise."""
    rng = np.random.default_rng(0)
    rows = []
    for item in range(1, n_items + 1):
        words = " ".join(rng.choice(DOCS, n_sentences)).replace(" .", ".").split()
        rows += [(item, zone, word) for zone, word in enumerate(words, start=1)]
    table = pd.DataFrame(rows, columns=["item", "zone", "word"])
    lines = [
        "\n".join(" ".join(line) for _, line in part.groupby([*sentence_numbers([*part])]))
        for _, part in table.groupby("item")["word"]
    ]
    bits = ngrams().surprisal(lines)["surprisal_bits"]
    return table.assign(reading_time=300 + 8 * bits + NOISE * rng.standard_normal(len(table)))


def test_the_gain_is_the_difference_of_two_regressions() -> None:
    words = corpus()
    times = reading_times({"n": ngrams()}, words, lags=1)
    table = times.words
    names = [*("length", "log_frequency"), "length_lag1", "log_frequency_lag1", "position"]
    more = ["surprisal_bits", "surprisal_bits_lag1"]
    part = table[table[[*names, *more]].notna().all(axis=1)]
    y, items = part["reading_time"].to_numpy(), part["item"].to_numpy()

    def log_densities(columns: list[str], train: Any, test: Any) -> Any:
        X = np.column_stack([np.ones(len(part)), part[columns].to_numpy()])
        beta = np.linalg.lstsq(X[train], y[train], rcond=None)[0]
        scale = np.sqrt(np.mean((y[train] - X[train] @ beta) ** 2))
        return norm.logpdf(y[test], X[test] @ beta, scale)

    gains = [
        log_densities([*names, *more], items != item, items == item)
        - log_densities(names, items != item, items == item)
        for item in (1, 2, 3, 4)
    ]
    row = times.gains.iloc[0]
    assert row["n_words"] == len(part) == len(words) - 4
    assert row["gain"] == pytest.approx(np.concatenate(gains).mean())
    means = [each.mean() for each in gains]
    assert row["standard_error"] == pytest.approx(np.std(means, ddof=1) / 2)
    whole = np.ones(len(part), dtype=bool)
    inside = log_densities([*names, *more], whole, whole) - log_densities(names, whole, whole)
    assert row["gain_in_sample"] == pytest.approx(inside.mean())


def test_the_model_that_made_the_times_gains_most_and_a_shuffled_one_nothing() -> None:
    words = corpus()
    surprisals = reading_times({"n": ngrams()}, words).words[["item", "zone", "surprisal_bits"]]
    shuffled = surprisals.assign(
        surprisal_bits=surprisals["surprisal_bits"].sample(frac=1, random_state=0).to_numpy()
    )
    models = {"n": ngrams(), "r": reservoir_model(), "table": surprisals, "shuffled": shuffled}
    gains = reading_times(models, words).gains
    assert len(gains) == 2 * 4 + 2 * 2  # tables have no surprisal without marks
    by_model = gains[~gains["controls"] & (gains["measure"] == "surprisal_bits")]
    gain = by_model.set_index("model")["gain"]
    assert gain["n"] == pytest.approx(gain["table"], rel=1e-6)
    assert gain["n"] > gain["r"] > gain["shuffled"]
    assert gain["n"] > 0.1 > 0.01 > gain["shuffled"]


def test_words_after_an_unknown_one_are_left_out() -> None:
    words = corpus()
    words.loc[[10, 50], "word"] = "zebra"
    assert reading_times(ngrams(), corpus(), lags=2).gains["n_words"].unique() == len(words) - 8
    assert reading_times(ngrams(), words, lags=2).gains["n_words"].unique() == len(words) - 14


def test_a_quadratic_baseline_leaves_less_to_gain() -> None:
    words = corpus()
    words["reading_time"] = 300 + 2.0 * words["word"].str.len() ** 2
    words["reading_time"] += np.random.default_rng(1).standard_normal(len(words))
    linear, quadratic = (
        reading_times(ngrams(), words, quadratic=each).gains["gain_in_sample"][0]
        for each in (False, True)
    )
    assert linear > 0.1 > quadratic


def test_marks_and_ends_of_sentences_are_those_of_the_script() -> None:
    words = corpus()
    hindi = [{"the": "जाती", "sees": "है।"}.get(word, word) for word in words["word"]]
    words = words.assign(word=hindi)
    bits = words[["item", "zone"]].assign(surprisal_bits=range(len(words)))
    table = reading_times({"bits": bits}, words, counts={"dog": 9}).words
    assert table.loc[table["word"] == "जाती", "mark_after"].eq(0).all()
    assert table.loc[table["word"] == "है।", ["mark_after", "is_last"]].eq(1).all(axis=None)
    assert [*sentence_numbers(["他来了。", "“你好。”", "好"])] == [1, 2, 3]


def test_sentences_of_ones_own_are_followed() -> None:
    words = corpus().assign(sentence=1)
    model = reservoir_model()
    table = reading_times(model, words).words
    assert table["is_first"].sum() == 4
    texts = [" ".join(part) for _, part in words.groupby("item")["word"]]
    expected = model.surprisal(texts)["surprisal_bits"]
    np.testing.assert_allclose(table["surprisal_bits"], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="reading_time"), "no column 'reading_time': it has item, zone"),
        (
            lambda t: "times.csv",
            r"corpus must be a table, got str: read a file by pandas\.read_csv",
        ),
        (lambda t: pd.concat([t, t["word"]], axis=1), "the corpus has two columns 'word': rename"),
        (lambda t: t.assign(word="the boy"), "row 1 of the corpus holds 'the boy', expected one"),
        (lambda t: t.assign(reading_time="slow"), "reading_time must hold finite numbers"),
        (
            lambda t: t.assign(reading_time=[*map(str, t["reading_time"][:-1]), "301,5"]),
            r"points, and NA where there is none, got '301,5' in row \d+ of the corpus",
        ),
        (lambda t: _of_readers(t, "reader", "zone"), "such as 1, stand there more than once"),
        (lambda t: _of_readers(t, "zone", "reader"), "such as 1, stand there more than once"),
        (
            lambda t: t.assign(reading_time=t["reading_time"].where(t["item"] == 2)),
            "0 words are left without item 2, too few for 13 predictors",
        ),
        (lambda t: t.assign(item=1), "has 1 item, expected two at least"),
        (lambda t: t.assign(reading_time=250.0), "must vary from word to word, got 250 for all"),
        (lambda t: t.sort_values("zone"), "of each item must follow each other in the corpus"),
        (lambda t: t.assign(sentence=t["zone"] % 2), "of each sentence must follow each other"),
        (
            lambda t: t.assign(sentence=[None, *t["zone"][1:]]),
            "row 1 of the corpus has no sentence",
        ),
        (lambda t: t.assign(word=[None, *t["word"][1:]]), "row 1 of the corpus has no word"),
        (lambda t: t.assign(item=["", *t["item"][1:]]), "row 1 of the corpus has no item"),
        (
            lambda t: t.assign(word=t["word"].astype(object).where(t.index > 0, "a\ud83d")),
            r"the text holds half a character, U\+D83D, at place 1",
        ),
        (
            lambda t: t.assign(sentence=1, word=_marked(t)),
            r"model reads \['dog'\] where .* has \['<s>'\], in row 1: leave out the rows of marks",
        ),
        (lambda t: t.assign(reading_time=np.inf), "reading_time must hold finite numbers"),
        (lambda t: t.assign(reading_time=np.nan), "0 words have a reading time and all predictors"),
    ],
)
def test_a_corpus_with_something_wrong_is_refused(change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reading_times(ngrams(), change(corpus()))


def _of_readers(words: pd.DataFrame, *order: str) -> pd.DataFrame:
    """Return times of three readers in some order, of whom one has skipped words."""
    table = pd.concat([words.assign(reader=name) for name in "abc"])
    table = table.drop(table.index[table["reader"].eq("b") & table["zone"].isin([3, 40, 41])])
    return table.sort_values(["item", *order], ignore_index=True)


def test_models_have_names() -> None:
    with pytest.raises(ValueError, match="models must be models or tables by name, got "):
        reading_times([ngrams()], corpus())
    with pytest.raises(ValueError, match="models must hold a model or a table at least, got none"):
        reading_times({}, corpus())
    with pytest.raises(ValueError, match="quadratic must be true or false, got 'no'"):
        reading_times(ngrams(), corpus(), quadratic="no")
    with pytest.raises(ValueError, match="counts must be of one word at least, got none"):
        reading_times(ngrams(), corpus(), counts={})


def _marked(table: pd.DataFrame) -> list[str]:
    """Return the words with <s> and </s> in place of those at the ends of each item."""
    last = table["item"] != table["item"].shift(-1)
    first = table["item"] != table["item"].shift()
    return table["word"].mask(first, "<s>").mask(last, "</s>").tolist()


def test_frequencies_and_keys_are_asked_for() -> None:
    with pytest.raises(ValueError, match="counts must be a text to count frequencies in"):
        reading_times(ngrams_of(tokenizer=of_bytes()), corpus())
    with pytest.raises(ValueError, match=r"^t: a table of surprisals needs surprisal_bits and"):
        reading_times({"n": ngrams(), "t": pd.DataFrame({"item": [1]})}, corpus())
    words = corpus()
    table = words[["item", "zone", "word"]].assign(surprisal_bits=1.0)
    for change, message in (
        ({"zone": words["zone"] + 1}, "^t: the table .* has '.*' where the corpus has '.*'"),
        (
            {"surprisal_bits": np.inf},
            "^t: surprisal_bits must hold finite numbers .* got inf in row 1",
        ),
        (
            {"surprisal_bits": "1,5"},
            "^t: surprisal_bits must hold finite numbers .* '1,5' in row 1 of",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            reading_times({"n": ngrams(), "t": table.assign(**change)}, words)
    table = pd.DataFrame({"item": [1, 1], "position": [1, 2], "surprisal_bits": [1.0, 2.0]})
    message = r"^t: the columns item name a word more than once: .*, not sentence or position"
    with pytest.raises(ValueError, match=message):
        reading_times({"n": ngrams(), "t": table}, corpus())
    with pytest.raises(ValueError, match="lags must be at most 3, got 4"):
        reading_times(ngrams(), corpus(), lags=4)


def test_the_command_writes_tables_and_a_plot(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    ngrams().save("n")
    words = corpus().rename(columns={"item": "story", "reading_time": "ms"})
    words.to_csv("times.csv", index=False)
    columns = "--item-column story --time-column ms"
    score = "evaluate n times.csv --word-column word --group story --surprisal-csv other.csv"
    assert main(score.split()) == 0
    command = f"reading n other.csv --corpus times.csv {columns} --out out"
    assert main(command.split()) == 0
    gains = pd.read_csv("out/reading.csv")
    assert gains["model"].unique().tolist() == ["n", "other.csv"]
    assert len(gains) == 8
    assert len(pd.read_csv("out/words.csv")) == 2 * len(words)
    assert Path("out/reading.png").stat().st_size > 10_000
    expected = reading_times(
        {"n": ngrams()}, words.rename(columns={"story": "item", "ms": "reading_time"})
    )
    assert gains["gain"][0] == pytest.approx(expected.gains["gain"][0], rel=1e-6)
    for name, column in (("times", "ms"), ("other", "surprisal_bits")):  # missing, as R has it
        table = pd.read_csv(f"{name}.csv", dtype={column: object}, keep_default_na=False)
        table.loc[5, column] = "NA"
        table.to_csv(f"{name}.csv", index=False)
        assert main([*command.split(), "--overwrite"]) == 0
        assert (pd.read_csv("out/reading.csv")["n_words"] < gains["n_words"]).all()
    capsys.readouterr()
    assert main(command.split()) == 2
    assert "exists" in capsys.readouterr().err
    for wrong, message in (
        ("none", "expected natural-stories, the folder that holds its files, or a .csv"),
        ("times.csv --item-column x", "no column 'x': it has story, zone, word, ms"),
        (". --time-column ms", "--time-column needs a .csv as --corpus"),
        (f"times.csv {columns} --lags 4", "lags must be at most 3, got 4"),
        (
            "times.csv --item-column zone --word-column story --time-column ms",
            "times.csv has a column 'word' beside the one that stands for it",
        ),
    ):
        assert main(f"reading n --corpus {wrong} --out new".split()) == 2
        assert message in " ".join(capsys.readouterr().err.split())
        assert not Path("new").exists()


def test_words_of_a_column_of_any_name_are_compared(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    words = corpus().rename(columns={"word": "form"})
    words.to_csv("times.csv", index=False)
    table = words[["item", "zone", "form"]].assign(surprisal_bits=range(len(words)))
    table.to_csv("own.csv", index=False)
    table.assign(form=words["form"].tolist()[::-1]).to_csv("other.csv", index=False)
    Path("counts.txt").write_text("the dog sees")
    options = "--corpus times.csv --word-column form --counts counts.txt --out"
    assert main(f"reading own.csv {options} own".split()) == 0
    assert main(f"reading other.csv {options} other".split()) == 2
    assert "the table of surprisals has '" in capsys.readouterr().err


def test_natural_stories_are_checked_and_joined(tmp_path: Path, monkeypatch: Any) -> None:
    from hashlib import sha256

    words = "word\tzone\titem\n'Tis\t1\t1\nnull\t2\t1\n\"So\t1\t2\n"
    times = "word\tzone\titem\tnItem\tmeanItemRT\nnull\t2\t1\t9\t310.5\n'Tis\t1\t1\t9\t290\n"
    (tmp_path / "processed_wordinfo.tsv").write_text(times)
    (tmp_path / "all_stories.tok.gz").write_bytes(gzip.compress(words.encode()))
    with pytest.raises(CorpusError, match="is not the published all_stories"):
        load_natural_stories(tmp_path)
    for name, text in (("all_stories.tok", words), ("processed_wordinfo.tsv", times)):
        monkeypatch.setitem(DIGESTS, name, sha256(text.encode()).hexdigest())
    table = load_natural_stories(tmp_path)
    assert table["word"].tolist() == ["'Tis", "null", '"So']
    assert table["reading_time"].tolist()[:2] == [290, 310.5]
    assert np.isnan(table["reading_time"][2])


@pytest.mark.parametrize("dtype", ["Int64", "string", "category"])
def test_keys_may_have_the_types_of_pandas(dtype: str) -> None:
    words = corpus()
    typed = words.astype({"item": dtype})
    pd.testing.assert_frame_equal(
        reading_times(ngrams(), typed).gains, reading_times(ngrams(), words).gains
    )


def test_keys_of_a_table_may_be_floats_as_where_a_column_has_gaps() -> None:
    words = corpus()
    table = reading_times(ngrams(), words).words[["item", "zone", "surprisal_bits"]]
    gains, of_floats = (
        reading_times({"n": ngrams(), "t": each}, words).gains
        for each in (table, table.astype({"zone": float}))
    )
    pd.testing.assert_frame_equal(gains, of_floats)
    with pytest.raises(ValueError, match=r"^t: .* share no word by item, zone: \['11\\t1'\] and"):
        reading_times({"n": ngrams(), "t": table.assign(item=table["item"] + 10)}, words)


def test_surprisals_of_a_table_may_be_text() -> None:
    words = corpus()
    bits = np.random.default_rng(0).exponential(size=len(words)).round(3)
    bits[::50] = np.nan
    table = words[["item", "zone"]].assign(surprisal_bits=bits)
    texts = table.assign(surprisal_bits=table["surprisal_bits"].astype(str).replace("nan", "NA"))
    of_numbers, of_texts = (
        reading_times({"t": each}, words, counts={"dog": 2}).gains for each in (table, texts)
    )
    pd.testing.assert_frame_equal(of_numbers, of_texts)


def test_unknown_words_of_a_table_are_left_out_as_those_of_a_model() -> None:
    words = corpus()
    words.loc[::9, "word"] = "zebra"
    known = reading_times(ngrams(), words, lags=1)
    table = known.words[["item", "zone", *MEASURES, "n_unknown"]]
    gains = reading_times({"model": table}, words, counts=DOCS, lags=1).gains
    assert gains["n_words"].max() < len(words) * 0.8
    columns = ["n_words", "gain", "standard_error"]
    same = reading_times(ngrams(), words, counts=DOCS, lags=1).gains
    pd.testing.assert_frame_equal(gains[columns], same[columns])


def test_words_that_a_table_has_not_are_left_out(caplog: Any) -> None:
    words = corpus()
    table = reading_times(ngrams(), words).words[["item", "zone", "word", *MEASURES]]
    table.loc[20, MEASURES[1]] = np.nan
    gains = reading_times({"t": table.drop(index=40)}, words, counts=DOCS, lags=0).gains
    assert gains["n_words"].unique() == len(words) - 2
    assert f"t: 1 of {len(words)} words have no row in the table" in caplog.text
