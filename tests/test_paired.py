"""Paired differences of trained models: values by hand, intervals that leave out what is shared."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from benchmark_cases import BENCHMARKS, make_corpus

from esnlm.__main__ import main as esnlm
from esnlm.evaluation.minimal_pairs.pairs import read_pairs
from esnlm.evaluation.minimal_pairs.scores import score_pairs
from esnlm.loading import load_model
from esnlm.text.shards import Shards


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return make_corpus(tmp_path)


@pytest.fixture
def paired(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return pytest.importorskip("paired")


def run(paired: Any, at: Path, monkeypatch: pytest.MonkeyPatch, *models: str) -> pd.DataFrame:
    given = [str(at / "train"), "--held-out", str(at / "dev"), "--blimp", str(at / "pairs")]
    given += ["--models", *models, "--out", str(at / "out"), "--resamples", "200"]
    monkeypatch.setattr("sys.argv", ["paired.py", *given])
    paired.main()
    return pd.read_csv(at / "out" / "paired.csv")


def test_differences_are_those_of_the_models(
    paired: Any,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for order in ("1", "3"):
        out = ["--out", str(corpus / order), "--order", order]
        assert esnlm(["ngram", str(corpus / "train"), *out]) == 0
    named = [f"unigrams={corpus / '1'}", f"trigrams={corpus / '3'}", f"again={corpus / '3'}"]
    table = run(paired, corpus, monkeypatch, *named)
    whole = table[table["by"] == "all"].set_index(["measure", "model"])
    stream = Shards(corpus / "dev").stream()
    docs = np.split(np.asarray(stream.tokens), stream.starts[1:])
    losses, accuracies = [], []
    for order in ("1", "3"):
        model = load_model(corpus / order)
        losses.append(-np.concatenate(model.log_likelihood(docs)).mean())
        accuracies.append(score_pairs(model, read_pairs(corpus / "pairs")).credit.mean())
    for measure, values in (("nats", losses), ("accuracy", accuracies)):
        of = whole.loc[measure]
        assert of["value"].tolist() == pytest.approx([*values, values[1]], abs=1e-6)
        assert of["difference"].tolist()[1:] == pytest.approx([values[1] - values[0]] * 2, abs=1e-6)
        assert np.isnan(of.loc["unigrams", "difference"])
    for column in ("difference", "least", "most"):  # the same draws for all
        ours, again = (table[table["model"] == name][column] for name in ("trigrams", "again"))
        assert ours.tolist() == again.tolist()
    (corpus / "1").rename(corpus / "gone")  # scored once
    pd.testing.assert_frame_equal(run(paired, corpus, monkeypatch, *named), table)


def test_a_model_less_itself_is_zero(
    paired: Any,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert esnlm(["ngram", str(corpus / "train"), "--out", str(corpus / "kn")]) == 0
    table = run(paired, corpus, monkeypatch, f"one={corpus / 'kn'}", f"two={corpus / 'kn'}")
    again = table[table["model"] == "two"]
    assert (again[["difference", "least", "most"]] == 0).all(axis=None)


def test_a_model_alone_has_values(
    paired: Any,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert esnlm(["ngram", str(corpus / "train"), "--out", str(corpus / "kn")]) == 0
    table = run(paired, corpus, monkeypatch, f"one={corpus / 'kn'}")
    assert (table["lower"] < table["upper"]).any()
    assert table[["less", "difference", "least", "most"]].isna().all(axis=None)


def test_kept_scores_of_another_text_are_refused(
    paired: Any,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert esnlm(["ngram", str(corpus / "train"), "--out", str(corpus / "kn")]) == 0
    run(paired, corpus, monkeypatch, f"one={corpus / 'kn'}")
    (corpus / "dev").rename(corpus / "other")
    (corpus / "train").rename(corpus / "dev")
    (corpus / "other").rename(corpus / "train")
    with pytest.raises(SystemExit, match=r"must hold scores of .* got .*: remove it"):
        run(paired, corpus, monkeypatch, f"one={corpus / 'kn'}")


@pytest.mark.parametrize("models", [["one"], ["=folder"], ["one=a", "one=b"]])
def test_models_are_named_and_names_differ(
    paired: Any,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    models: list[str],
) -> None:
    with pytest.raises(SystemExit):
        run(paired, corpus, monkeypatch, *models)
    assert "must" in capsys.readouterr().err
