"""Penalties by held-out text, losses of n-grams beside the model's, and what is not finite."""

from pathlib import Path

import numpy as np
import pytest

from esnlm import LanguageModel, LowRankReadout, NgramLanguageModel, Reservoir, SoftmaxReadout
from esnlm.__main__ import main
from esnlm.models.parts import chosen_penalty
from esnlm.storage.tensor_file import write_tensors
from esnlm.training.baselines import baselines
from esnlm.training.trainer import Trainer, TrainingPlan
from esnlm.utils.validation import DivergenceError

WORDS = [f"w{k}" for k in range(40)]


def sentences(n: int, seed: int) -> list[str]:
    """Words of which nine tenths are followed by the next but two, the others by chance."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(n):
        word, line = int(rng.integers(40)), []
        for _ in range(8):
            line.append(WORDS[word])
            word = (word + 3) % 40 if rng.random() < 0.9 else int(rng.integers(40))
        lines.append(" ".join(line))
    return lines


TEXT, HELD_OUT = sentences(150, 0), sentences(60, 1)


def overfitting() -> LanguageModel:
    readout = SoftmaxReadout(alpha=0.01, solver="incremental", n_passes=4)
    return LanguageModel(Reservoir(100, random_state=0), readout, tokenizer="word", random_state=0)


def test_baselines_are_those_of_counts_and_of_the_ngram_model() -> None:
    ngram = NgramLanguageModel(order=5, tokenizer="word").fit(TEXT)
    text, held_out = ngram.tokenize(TEXT), ngram.tokenize(HELD_OUT)
    found = baselines(text, held_out, ngram.n_tokens_)
    assert found.ngrams == pytest.approx(-ngram.score(HELD_OUT))
    counts = dict.fromkeys(range(ngram.n_tokens_), 0.5)
    for token in text.tokens[text.predicted()]:
        counts[int(token)] += 1
    total = sum(counts.values())
    targets = held_out.tokens[held_out.predicted()]
    expected = -np.mean([np.log(counts[int(token)] / total) for token in targets])
    assert found.unigrams == pytest.approx(expected)


def test_held_out_text_chooses_the_penalty_that_is_best_on_it() -> None:
    model = overfitting()
    stream = model._read_corpus(TEXT)
    held_out = model.tokenize(HELD_OUT)
    losses = chosen_penalty(model, stream, held_out)
    best = next(iter(losses))
    assert best > 0.01 == min(losses)
    assert losses[best] == min(losses.values())
    assert model.readout.alpha == 0.01
    other = overfitting()
    other._read_corpus(TEXT)
    whole = Trainer(other, stream, held_out=held_out, plan=TrainingPlan(score_every=0))
    whole.run()
    assert losses[0.01] == pytest.approx(
        whole.last_score, rel=0.05
    )  # a short text is read whole in every trial
    weak = -model.fit(TEXT).score(HELD_OUT)
    model.readout.set_params(alpha=best)
    assert -model.fit(TEXT).score(HELD_OUT) < weak


def test_less_of_a_penalty_is_tried_where_more_is_worse() -> None:
    model = overfitting()
    model.readout.set_params(alpha=1e6)
    losses = chosen_penalty(model, model._read_corpus(TEXT), model.tokenize(HELD_OUT))
    assert {1e5, 1e6, 1e7} <= set(losses)
    assert losses[1e7] >= losses[1e6] > losses[1e5]
    assert next(iter(losses)) < 1e6


def train(folder: Path, *options: str) -> int:
    for name, lines in (("text.txt", TEXT), ("dev.txt", HELD_OUT)):
        (folder / name).write_text("\n".join(lines))
    given = ["--units", "50", "--held-out", str(folder / "dev.txt"), "--out", str(folder / "m")]
    return main(["train", str(folder / "text.txt"), *given, *options])


def test_train_chooses_the_penalty_and_compares_with_ngrams(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, "--readout", "softmax") == 0
    out, err = capsys.readouterr()
    assert "chose alpha=" in err
    assert "held-out perplexity" in out
    assert "Kneser-Ney 5-grams" in out
    chosen = float(err.partition("alpha=")[2].split()[0])
    assert LanguageModel.load(tmp_path / "m").readout_.alpha == pytest.approx(chosen)


@pytest.mark.parametrize("readout", ["lowrank", "softmax"])
def test_a_text_that_trials_read_in_part_keeps_the_readouts_penalty(
    readout: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kind = {"lowrank": LowRankReadout, "softmax": SoftmaxReadout}[readout]
    n_tokens = len(overfitting()._read_corpus(TEXT).tokens)
    for longest, is_tried in ((n_tokens, True), (n_tokens - 1, False)):
        monkeypatch.setattr("esnlm.models.parts._MOST_TOKENS", {kind.__name__: longest})
        assert train(tmp_path, "--readout", readout, "--overwrite") == 0
        assert ("chose alpha=" in capsys.readouterr().err) == is_tried


def test_held_out_text_chooses_the_penalty_of_ridge(tmp_path: Path) -> None:
    assert train(tmp_path, "--readout", "ridge") == 0
    given = ["--units", "50", "--out", str(tmp_path / "without"), "--readout", "ridge"]
    assert main(["train", str(tmp_path / "text.txt"), *given]) == 0
    chosen, own = (LanguageModel.load(tmp_path / m).readout_.alpha_ for m in ("m", "without"))
    assert chosen != own


def test_softmax_within_a_factored_readout_keeps_its_penalty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, "--readout", "factored", "--option", "solver=joint") == 0
    assert "by the held-out text" not in capsys.readouterr().err
    readout = LanguageModel.load(tmp_path / "m").readout_
    assert readout.class_readout == readout.word_readout == "softmax"


def test_train_says_when_the_words_frequencies_alone_are_better(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--alpha", "0", "--passes", "30", "--option", "learning_rate=999"]
    settings += ["--features", "0", "--spectral-radius", "0.97"]
    assert train(tmp_path, "--readout", "softmax", "--option", "solver=incremental", *settings) == 0
    assert "worse than the words' frequencies alone" in capsys.readouterr().err


def test_a_readout_that_diverges_says_so(tmp_path: Path) -> None:
    model = overfitting()
    model.readout.set_params(learning_rate=1e30)
    with (
        np.errstate(all="ignore"),
        pytest.raises(DivergenceError, match="lower learning_rate"),
    ):
        model.fit(TEXT)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nothing_that_is_not_finite_is_saved(tmp_path: Path, bad: float) -> None:
    model = overfitting().fit(TEXT)
    model.save(tmp_path / "m")
    before = (tmp_path / "m" / "weights.safetensors").read_bytes()
    model.readout_.coef_[3, 4] = bad
    with pytest.raises(ValueError, match=r"'readout.coef_' holds numbers that are not finite"):
        model.save(tmp_path / "m")
    assert (tmp_path / "m" / "weights.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    with pytest.raises(ValueError, match="not finite"):
        write_tensors(tmp_path / "x", {"a": np.array([bad], dtype=np.float16)})


def test_rows_that_make_a_readout_diverge_later_say_so() -> None:
    X = np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32)
    y = np.arange(200) % 2
    readout = LowRankReadout(n_components=2, buffer_size=50, random_state=0)
    readout.partial_fit(X[:100], y[:100], classes=[0, 1])
    readout.class_coef_[...] = np.nan
    with np.errstate(all="ignore"), pytest.raises(DivergenceError, match="not finite"):
        readout.partial_fit(X[100:], y[100:]).predict(X)
