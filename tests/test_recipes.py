"""Recipes: the same model from Python and from the command line, and the files as they are read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esnlm import ElmanGrammar, LanguageModel, NgramLanguageModel, Reservoir, RidgeReadout
from esnlm.__main__ import main
from esnlm.models.recipes import RECIPES, choose_recipe, default_settings, read_recipe

_NOUNS = {"boy", "girl", "cat", "dog", "John", "Mary"}


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def sentences(n: int, n_words: int = 0, seed: int = 0) -> list[str]:
    """Return sentences of Elman's grammar, with ``n_words`` names in place of its nouns."""
    drawn = ElmanGrammar().sample(n, seed)
    rng = np.random.default_rng(seed)
    names = [f"name{i}" for i in range(n_words)]
    return [
        " ".join(str(rng.choice(names)) if names and word in _NOUNS else word for word in words)
        for words in drawn
    ]


def bytes_of(folder: str) -> dict[str, bytes]:
    names = "config.json", "weights.safetensors", "tokenizer.json"
    return {name: Path(folder, name).read_bytes() for name in names}


@pytest.mark.parametrize(
    ("recipe", "options", "parameters"),
    [
        ("grammar", [], {}),
        ("words", [], {}),
        ("characters", ["--tokenizer", "char"], {"tokenizer": "char"}),
        ("characters", ["--recipe", "characters"], {"recipe": "characters"}),
        ("rachez2012", ["--recipe", "rachez2012"], {"recipe": "rachez2012"}),
    ],
)
def test_python_and_the_command_line_make_the_same_bytes(
    recipe: str, options: list[str], parameters: dict[str, Any], capsys
):
    lines = sentences(40 if recipe == "characters" else 110, 200 if recipe == "words" else 0)
    Path("text").write_text("\n".join(lines) + "\n")
    docs = [Path("text").read_text()] if recipe == "characters" else lines
    assert main(["train", "text", *options, "--seed", "3", "--out", "command"]) == 0
    assert f"recipe {recipe}" in capsys.readouterr().out
    model = LanguageModel(random_state=3, **parameters).fit(docs)
    model.save("python")
    assert model.recipe_.startswith(recipe)
    assert bytes_of("python") == bytes_of("command")


def test_held_out_text_chooses_the_same_penalty_from_both(capsys):
    lines, held = sentences(110, 200), sentences(40, 200, seed=1)
    Path("text").write_text("\n".join(lines) + "\n")
    Path("held").write_text("\n".join(held) + "\n")
    assert main(["train", "text", "--held-out", "held", "--out", "command"]) == 0
    assert "chose alpha=" in capsys.readouterr().err
    LanguageModel(random_state=0).fit(lines, held_out=held).save("python")
    assert bytes_of("python") == bytes_of("command")


def test_the_default_model_is_better_than_unigrams_and_near_the_ngrams():
    lines, held = sentences(1000, 150), sentences(300, 150, seed=1)
    model = LanguageModel(random_state=0).fit(lines)
    ngrams = NgramLanguageModel(order=5).fit(lines)
    unigrams = NgramLanguageModel(order=1).fit(lines)
    assert model.perplexity(held) < 1.05 * ngrams.perplexity(held) < unigrams.perplexity(held)


def test_a_model_that_is_worse_than_unigrams_says_so():
    lines, held = sentences(30, 100), sentences(300, 100, seed=1)
    model = LanguageModel(Reservoir(400, random_state=0), RidgeReadout(alpha=1e-9, selection=None))
    with pytest.warns(UserWarning, match="frequencies of the training text alone"):
        model.fit(lines).perplexity(held)


@pytest.mark.parametrize(
    ("n_tokens", "characters", "name"),
    [(99, False, "grammar"), (99, True, "characters"), (100, True, "words"), (100, False, "words")],
)
def test_the_vocabulary_chooses(n_tokens: int, characters: bool, name: str):
    assert choose_recipe(n_tokens, characters=characters)[0] == name


def test_what_is_set_wins_and_tables_go_with_their_value():
    words = default_settings({}, 5000)
    assert (words["topology"], words["spectral_radius"]) == ("diagonal", 0.0)
    assert (words["readout"], words["direct"], words["features"]) == (
        "lowrank", 3, ("spectral", 128),
    )  # fmt: skip
    coupled = default_settings({"topology": "offsets", "readout": "softmax", "n_units": 7}, 5000)
    assert "spectral_radius" not in coupled
    assert "direct" not in coupled
    assert (coupled["n_units"], coupled["leak_rate"]) == (7, ("uniform", 0.0, 1.0))
    assert default_settings({}, 4)["features"] == ("spectral", 4)
    assert default_settings({"features": ("", 0)}, 4)["features"] == ("", 0)


def test_a_reservoir_that_is_given_has_no_features_of_a_recipe():
    model = LanguageModel(Reservoir(20, random_state=0)).fit(sentences(50))
    assert model.features_ is None
    assert type(model.readout_).__name__ == "RidgeReadout"


def test_every_recipe_is_a_file_of_options():
    assert RECIPES == ("characters", "grammar", "koster2025", "rachez2012", "ueda2025", "words")
    for name in RECIPES:
        assert "units" in read_recipe(name)


def test_a_recipe_may_begin_with_a_byte_order_mark(tmp_path: Path):
    (tmp_path / "mine.toml").write_text("units = 9\n", encoding="utf-8-sig")
    assert read_recipe(str(tmp_path / "mine.toml")) == {"units": 9}


def test_recipes_that_python_does_not_follow_are_refused():
    with pytest.raises(ValueError, match="esnlm train --recipe"):
        LanguageModel(recipe="ueda2025").fit(sentences(5))
    with pytest.raises(ValueError, match=r"recipe must be characters, .* or a file, got 'word'"):
        LanguageModel(recipe="word").fit(sentences(5))


def test_a_degree_that_a_topology_does_not_have_is_refused(capsys):
    Path("text").write_text("\n".join(sentences(150, 200)))
    assert main(["train", "text", "--degree", "8", "--out", "m"]) == 2
    assert "leave out --degree, or change --topology" in capsys.readouterr().err
    assert not Path("m").exists()
