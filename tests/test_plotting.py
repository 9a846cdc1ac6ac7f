"""Plots of surprisal, states, perplexity and minimal pairs."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from small_models import ngrams, reservoir_model

import esnlm
from esnlm.__main__ import main

mpl.use("agg")


def test_plots_return_axes():
    model = reservoir_model()
    given = Figure().add_subplot()
    axis = esnlm.plot_surprisal(
        {"a": model.surprisal("the boy"), "b": ngrams().surprisal("the boy")}
    )
    assert [text.get_text() for text in axis.get_xticklabels()] == ["the", "boy"]
    assert [line.get_label() for line in axis.lines] == ["a", "b"]
    bits = model.surprisal("the boy")["surprisal_bits"].tolist()
    assert axis.lines[0].get_ydata().tolist() == bits
    assert esnlm.plot_surprisal(model.surprisal("the boy\nthe dog"), ax=given) is given
    with pytest.raises(ValueError, match="of the same words, got others for 'b'"):
        esnlm.plot_surprisal({"a": model.surprisal("the boy"), "b": model.surprisal("the")})
    with pytest.raises(ValueError, match=r"got a list of DataFrame: .* by the name of the model"):
        esnlm.plot_surprisal([model.surprisal("the boy")] * 2)
    states = model.reservoir_.transform([1, 3, 4, 5])
    esnlm.plot_states(states, words=list("abcd"), groups=[0, 0, 1, 1])
    with pytest.raises(ValueError, match="words must be one for each of 4 states, got 3"):
        esnlm.plot_states(states, words=list("abc"))
    rows = pd.DataFrame(
        {"readout": ["ridge", "ridge", "moe"], "n_units": [25, 50, 25], "perplexity": [9.0, 8, 7]}
    )
    axis = esnlm.plot_perplexity_by_size(rows, reference={"oracle": 4.6})
    assert [line.get_ydata().tolist() for line in axis.lines[:2]] == [[9, 8], [7]]
    rows["nll_per_token"] = np.log(rows.pop("perplexity"))
    axis = esnlm.plot_perplexity_by_size(rows, by=None)
    np.testing.assert_allclose(axis.lines[0].get_ydata(), [8, 8])  # mean of two runs
    with pytest.raises(ValueError, match="rows must have a column n_units, got x"):
        esnlm.plot_perplexity_by_size([{"x": 1}])
    with pytest.raises(ValueError, match="at least one row"):
        esnlm.plot_blimp([])
    plt.close("all")


def test_surprisal_has_a_row_of_axes_a_sentence_and_a_line_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "the boy sees\n" + "the dog " * 10 + "\n\nnull boys"
    (tmp_path / "text").write_text(text)
    for name, model in (("r", reservoir_model()), ("n", ngrams())):
        model.save(name)
        assert main(["evaluate", name, "text", "--surprisal-csv", "w.csv"]) == 0
    for tables in ("w.csv", pd.read_csv("w.csv", keep_default_na=False)):
        axis = esnlm.plot_surprisal(tables)
        rows = [[t.get_text() for t in each.get_xticklabels()] for each in axis.figure.axes]
        assert [word for row in rows for word in row] == text.split()
        assert [len(row) for row in rows] == [3, 10, 10, 2]
        assert [line.get_label() for line in axis.lines] == ["r", "n"]
    plt.close("all")


def test_words_with_dollars_are_no_formulas():
    words = ["US$5-$10", "$\\foo$"]
    table = pd.DataFrame({"word": words, "surprisal_bits": [1.0, 2.0]})
    for axis in (esnlm.plot_surprisal(table), esnlm.plot_states(np.eye(2), words=words)):
        axis.figure.canvas.draw()
        texts = [*axis.texts, *axis.get_xticklabels()]
        assert {text.get_parse_math() for text in texts if "$" in text.get_text()} == {False}
    plt.close("all")


def test_models_of_one_table_of_pairs_are_told_apart(tmp_path):
    rows = [
        {"model": model, "level": level, "phenomenon": name, "accuracy": share,
         "lower": share - 0.01, "upper": share + 0.01}
        for model, shares in (("NA", (0.6, 0.7, 0.65)), ("null", (0.5, 0.4, 0.45)))
        for (level, name), share in zip(
            (("phenomenon", "x"), ("phenomenon", "y"), ("overall", "overall")), shares, strict=True
        )
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(tmp_path / "blimp.csv", index=False)
    for given in (rows, tmp_path / "blimp.csv"):
        axis = esnlm.plot_blimp(given, others={"C": {"x": 0.9}})
        drawn = {line.get_label(): line.get_xdata() for line in axis.get_lines()}
        np.testing.assert_allclose(drawn["NA"], [70, 60, 65])
        np.testing.assert_allclose(drawn["null"], [40, 50, 45])
        np.testing.assert_allclose(drawn["C"], [np.nan, 90, np.nan])
    with pytest.raises(ValueError, match="rows hold x of the model NA twice"):
        esnlm.plot_blimp([*rows, rows[0]])
    plt.close("all")


def test_signs_of_components_do_not_depend_on_those_of_the_states():
    from esnlm.plots.plotting import principal_components

    states = np.random.default_rng(0).normal(size=(50, 7))
    points, _ = principal_components(states)
    flipped, _ = principal_components(states[::-1])
    np.testing.assert_allclose(flipped[::-1], points)
    found = np.linalg.svd(states - states.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(np.abs(points), np.abs(found[0] * found[1])[:, :2])
