"""Training on shards in parts: the same bytes wherever parts are worked on, and what is refused."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from training_in_parts import PLAN, READOUTS, STEPS, model_of, trained

from esnlm import (
    ClassFactoredReadout,
    LanguageModel,
    Reservoir,
    SpectralWordFeatures,
    TokenGatedReadout,
    WordFeatures,
)
from esnlm.__main__ import main
from esnlm.storage.checkpoints import Checkpoints
from esnlm.storage.model_folder import WEIGHTS
from esnlm.text.shard_parts import PartedCorpus
from esnlm.text.shards import Shards
from esnlm.training.parts_trainer import PartsTrainer
from esnlm.training.resumable_run import StoppedError
from esnlm.training.trainer import Trainer


@pytest.mark.parametrize("features", ["one-hot", "spectral"])
def test_ridge_of_parts_is_that_of_all_states(shards: Path, features: str) -> None:
    corpus, stream = PartedCorpus(shards), Shards(shards).stream()
    words = SpectralWordFeatures(n_features=6, random_state=0) if features == "spectral" else None
    model = model_of(corpus, "penalised ridge", words)
    PartsTrainer(model, corpus, None, PLAN, n_parts=7).run()
    if words is not None:
        words.fit(stream.tokens, n_tokens=model.n_tokens_, starts=stream.starts)
        assert np.array_equal(model.features_.embedding_, words.embedding_)
    states, following = [], []
    for sentence in np.split(stream.tokens, stream.starts[1:]):
        inputs = sentence if words is None else words.transform(sentence)
        states.append(model.reservoir_.transform(inputs)[:-1])
        following.append(sentence[1:])
    X, y = np.concatenate(states).astype(np.float64), np.concatenate(following)
    truth = Ridge(alpha=1.0).fit(X, np.eye(model.n_tokens_)[y])
    found = X @ model.readout_.coef_.T + model.readout_.intercept_
    # Products of float32 states are summed: a millionth of the diagonal beside a penalty of 1.
    assert np.abs(found - truth.predict(X)).max() < 1e-3
    assert np.array_equal(model.token_counts_, np.bincount(y, minlength=model.n_tokens_))


def test_as_large_a_share_of_each_part_enters_a_sampled_gram_matrix(shards: Path) -> None:
    corpus = PartedCorpus(shards)
    model = model_of(corpus, "sampled ridge")
    PartsTrainer(model, corpus, None, PLAN, n_parts=9).run()
    moments = model.readout_._moments
    assert moments.n == corpus.n_rows
    assert 900 <= moments.n_gram < 900 + 9


@pytest.mark.parametrize("readout", ["factored ridge", *STEPS])
def test_a_run_that_was_stopped_ends_in_the_same_model(
    shards: Path, tmp_path: Path, readout: str
) -> None:
    store, corpus = Checkpoints(tmp_path / "checkpoints"), PartedCorpus(shards)

    def run(**options: Any) -> dict[str, bytes]:
        model = model_of(corpus, readout)
        PartsTrainer(model, corpus, None, PLAN, n_parts=5).run(**options)
        return {name: array.tobytes() for name, array in model._contents()[1][WEIGHTS].items()}

    with pytest.raises(StoppedError):
        run(checkpoints=store, stop=lambda: True)
    for _ in range(2):
        with suppress(StoppedError):
            run(checkpoints=store, resume=True, stop=lambda: True)
    assert run(checkpoints=store, resume=True) == trained(shards, readout)


@pytest.mark.parametrize("readout", STEPS)
def test_rounds_of_one_part_learn_as_one_process_does(shards: Path, readout: str) -> None:
    corpus, stream = PartedCorpus(shards), Shards(shards).stream()
    alone, *parted = (model_of(corpus, readout) for _ in range(3))
    Trainer(alone, stream, held_out=None, plan=PLAN).run()
    for model, n in zip(parted, (1, 2), strict=True):
        PartsTrainer(model, corpus, None, PLAN, n_parts=n).run()
    of_one, *others = (model.score(stream) for model in (alone, *parted))
    assert others[0] > of_one - 0.01
    assert others[1] > of_one - 0.1


@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_sums_of_parts_maximise_as_rows_at_hand_do(shards: Path, kind: str) -> None:
    corpus, stream = PartedCorpus(shards), Shards(shards).stream()
    # In float32 the rounding of one iteration grows in those after it, past 1e-3 on some machines.
    model = model_of(corpus, f"{kind} experts", dtype=np.float64)
    PartsTrainer(model, corpus, stream, PLAN, n_parts=5).run()
    states = model._states.blocks(stream)
    blocks = [(X.copy(), y.copy()) for X, y in states]
    alone = clone(READOUTS[f"{kind} experts"])
    alone.fit_blocks(blocks, np.arange(model.n_tokens_), held_out=blocks)
    found, expected = model.readout_.monitor_, alone.monitor_
    assert len(found.penalised) == len(expected.penalised) > 3
    assert np.allclose(found.penalised, expected.penalised, rtol=1e-4)
    assert np.allclose(found.held_out, expected.held_out, rtol=1e-4)


@pytest.mark.parametrize(
    "readout",
    [
        "low rank",
        pytest.param("factored ridge", marks=pytest.mark.slow),
        pytest.param("softmax experts", marks=pytest.mark.slow),
    ],
)
def test_the_bytes_do_not_depend_on_workers(shards: Path, cluster: Any, readout: str) -> None:
    from esnlm.runs.workers import workers

    expected = trained(shards, readout)
    assert trained(shards, readout, 6) != expected
    # From the number that is there: a worker takes seconds to start.
    for n in sorted((1, 3), reverse=len(cluster.scheduler_info["workers"]) > 1):
        cluster.scale(n)
        cluster.wait_for_workers(n)
        with workers(cluster.scheduler_address) as reduce:
            assert trained(shards, readout, reduce=reduce) == expected


def test_what_takes_one_step_after_the_other_is_refused(shards: Path) -> None:
    with pytest.raises(ValueError, match=r"^WordFeatures are learned from one token after"):
        trained(shards, features=WordFeatures(n_features=2, random_state=0))
    corpus = PartedCorpus(shards)
    for readout in (
        ClassFactoredReadout(n_classes=3, word_readout="ridge", solver="joint"),
        ClassFactoredReadout(n_classes=3, solver="separate"),
        TokenGatedReadout(),
    ):
        model = LanguageModel(Reservoir(20), readout, tokenizer=corpus.tokenizer)
        model._use_tokenizer(corpus.tokenizer)
        with pytest.raises(ValueError, match=r"Readout is not trained in parts with these param"):
            PartsTrainer(model, corpus, None, PLAN, n_parts=5)


def test_the_command_makes_the_same_model(
    shards: Path, cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(out: str, *more: str) -> int:
        words = f"train {shards} --out {tmp_path / out} --units 20 --readout ridge".split()
        return main([*words, *more])

    held = ["--held-out", str(shards), "--parts", "4"]
    assert train("a", *held) == 0
    assert "held-out perplexity" in capsys.readouterr().out
    assert train("b", *held, "--cluster", cluster.scheduler_address) == 0
    for name in ("config.json", WEIGHTS, "tokenizer.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert train("c", "--parts", "0") == 2
    assert train("c", "--parts", "2", "--model", "esn") == 2
    words = [
        "train",
        str(shards.parent / "text"),
        "--out",
        str(tmp_path / "c"),
        "--parts",
        "2",
    ]
    assert main(words) == 2
    assert "--parts need shards" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()
