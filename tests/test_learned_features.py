"""Features learned beside a readout: their gradient, what it reaches, seeds, and refusals."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from esnlm import LanguageModel, LowRankReadout, Reservoir, SpectralWordFeatures
from esnlm.__main__ import main
from esnlm.kernels.features import through_units
from esnlm.models.learned_features import LearnedWordFeatures
from esnlm.models.resumable_run import StoppedError
from esnlm.models.training import Trainer, TrainingPlan
from esnlm.reservoir.recurrence import ACTIVATIONS
from esnlm.storage.checkpoints import Checkpoints
from esnlm.text.corpus import TokenStream

N_UNITS, N_FEATURES, V = 7, 3, 6
STARTS = np.array([0, 5, 6])


def drawn(activation="tanh", **options) -> Reservoir:
    settings = {"leak_rate": ("uniform", 0.1, 0.9), "dtype": "float64", "bias_scaling": 0.3}
    made = Reservoir(N_UNITS, activation=activation, random_state=3, **(settings | options))
    return made.fit(n_inputs=N_FEATURES)


def states_of(reservoir, vectors) -> np.ndarray:
    """States (T, n_units) of input vectors (T, F), from zero at each of the starts."""
    return np.concatenate([reservoir.transform(part) for part in np.split(vectors, STARTS[1:])])


def by_inputs(reservoir, vectors, gradient, traces) -> np.ndarray:
    """Gradient (T, F) by the input vectors of a loss whose gradient by the states is given."""
    states, moved = states_of(reservoir, vectors), gradient.copy()
    begins = np.isin(np.arange(len(vectors)), STARTS)
    code = ACTIVATIONS[reservoir.activation]
    through_units(states, moved, begins, reservoir.leak_rate_, code, traces)
    return moved @ reservoir.W_in_


@pytest.mark.parametrize("activation", ["tanh", "relu", "identity"])
def test_without_coupling_traces_give_the_whole_gradient(activation):
    reservoir = drawn(activation, spectral_radius=0)
    random = np.random.default_rng(4)
    vectors = random.standard_normal((12, N_FEATURES))
    gradient = random.standard_normal((12, N_UNITS))

    def loss(given):
        return np.sum(gradient * states_of(reservoir, given))

    found = by_inputs(reservoir, vectors, gradient, True)
    np.testing.assert_allclose(found, slopes(loss, vectors), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("activation", ["tanh", "relu", "identity"])
def test_without_traces_the_gradient_is_that_of_one_step(activation):
    reservoir = drawn(activation, spectral_radius=0.9)
    random = np.random.default_rng(5)
    vectors = random.standard_normal((12, N_FEATURES))
    gradient = random.standard_normal((12, N_UNITS))
    before = np.vstack([np.zeros(N_UNITS), states_of(reservoir, vectors)[:-1]])
    before[STARTS] = 0

    def loss(given):
        after = [
            reservoir.transform(row[None], initial_state=state)[0]
            for row, state in zip(given, before, strict=True)
        ]
        return np.sum(gradient * after)

    found = by_inputs(reservoir, vectors, gradient, False)
    np.testing.assert_allclose(found, slopes(loss, vectors), rtol=1e-6, atol=1e-8)


def slopes(loss, at) -> np.ndarray:
    """Central differences."""
    found, h = np.empty_like(at), 1e-6
    for index in np.ndindex(at.shape):
        around = []
        for sign in (1, -1):
            moved = at.copy()
            moved[index] += sign * h
            around.append(loss(moved))
        found[index] = (around[0] - around[1]) / (2 * h)
    return found


def far_agreement(n_sentences: int, seed: int = 0) -> TokenStream:
    """Sentences 'noun x x x x verb': nouns 0-3 take verb 8, nouns 4-7 take verb 9; x is 10 or 11.

    A noun has the same neighbours whatever its verb, which is out of reach of the last tokens.
    """
    random = np.random.default_rng(seed)
    kind = random.integers(0, 2, n_sentences)
    noun, verb = random.integers(0, 4, n_sentences) + 4 * kind, 8 + kind
    fillers = random.integers(10, 12, (n_sentences, 4))
    tokens = np.column_stack([noun, fillers, verb]).ravel()
    return TokenStream(tokens, np.arange(n_sentences) * 6, np.array([0, len(tokens)]))


@pytest.fixture(scope="module")
def sentences() -> TokenStream:
    return far_agreement(3000)


def separation(features, stream) -> float:
    """Distance between the two kinds of nouns over the spread within them."""
    reservoir = Reservoir(
        60, leak_rate=("uniform", 0.1, 0.5), spectral_radius=0.5, random_state=0
    ).fit(n_inputs=4)
    rows = features.fit(stream.tokens, reservoir=reservoir, starts=stream.starts).embedding_
    kinds = rows[:4], rows[4:8]
    between = np.linalg.norm(kinds[0].mean(axis=0) - kinds[1].mean(axis=0))
    within = np.mean([np.linalg.norm(kind - kind.mean(axis=0), axis=1).mean() for kind in kinds])
    return float(between / within)


def test_traces_teach_what_a_later_word_asks(sentences):
    options = {"n_rounds": 2, "learning_rate": 0.1, "random_state": 0}
    reached = separation(LearnedWordFeatures(n_features=4, **options), sentences)
    one_step = separation(LearnedWordFeatures(n_features=4, traces=False, **options), sentences)
    counted = separation(SpectralWordFeatures(n_features=4, random_state=0), sentences)
    assert reached > 3
    assert reached > 2 * max(one_step, counted)


def small(**options) -> LearnedWordFeatures:
    return LearnedWordFeatures(n_features=N_FEATURES, random_state=0, **options)


def test_a_seed_gives_the_same_bytes_on_any_number_of_threads(sentences, tmp_path: Path):
    stored = np.memmap(tmp_path / "tokens", dtype=np.uint16, mode="w+", shape=6000)
    stored[:] = sentences.tokens[:6000]
    given = {"reservoir": drawn(), "n_tokens": 12, "starts": sentences.starts[:1000]}
    made = []
    for n, tokens in ((1, stored[:]), (2, np.array(stored)), (2, stored.astype(np.int64))):
        with threadpool_limits(n):
            made.append(small().fit(tokens, **given).embedding_.tobytes())
    assert len({*made}) == 1
    other = clone(small()).set_params(random_state=1).fit(stored, **given).embedding_
    assert other.tobytes() != made[0]


def test_the_reservoir_stays_as_it_is_and_one_without_weights_is_drawn(sentences):
    reservoir = drawn()
    before = reservoir.W_.toarray(), np.array(reservoir.W_in_)
    small().fit(sentences.tokens[:600], reservoir=reservoir, starts=sentences.starts[:100])
    np.testing.assert_array_equal(reservoir.W_.toarray(), before[0])
    np.testing.assert_array_equal(reservoir.W_in_, before[1])
    fresh = Reservoir(N_UNITS, random_state=0)
    small().fit(sentences.tokens[:600], reservoir=fresh)
    assert fresh.n_inputs_ == N_FEATURES


def test_long_sequences_are_cut_and_all_their_words_learned():
    tokens = np.random.default_rng(0).choice(V, 3000)
    tokens[2500:] = np.arange(500) % 2 + V  # words of the end of one sequence alone
    first = SpectralWordFeatures(n_features=N_FEATURES, random_state=0)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    first.set_params(random_state=seed).fit(tokens)
    moved = small().fit(tokens, reservoir=drawn()).embedding_ - first.embedding_
    assert np.abs(moved).max(axis=1).min() > 0


def low_rank() -> LowRankReadout:
    return LowRankReadout(n_components=4, n_frequent=2, n_classes=2, random_state=0)


def test_they_drive_a_model_that_is_saved_and_resumed_to_the_same_bytes(sentences, tmp_path: Path):
    def trainer() -> Trainer:
        reservoir = Reservoir(N_UNITS, leak_rate=0.5, random_state=1)
        model = LanguageModel(reservoir, low_rank(), features=small(), n_tokens=12)
        model._read_corpus(sentences)
        return Trainer(model, sentences, held_out=None, plan=TrainingPlan(chunk_tokens=4000))

    def saved(model: LanguageModel, name: str) -> dict[str, bytes]:
        model.save(tmp_path / name)
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    whole = trainer().run()
    store, asked = Checkpoints(tmp_path / "checkpoints"), iter([False, True])
    with pytest.raises(StoppedError):
        trainer().run(store, stop=lambda: next(asked))
    assert saved(trainer().run(store, resume=True), "resumed") == saved(whole, "whole")
    again = LanguageModel.load(tmp_path / "whole")
    np.testing.assert_array_equal(again.predict_proba([3, 10]), whole.predict_proba([3, 10]))
    assert again.features_.get_params() == small().get_params()


def test_train_takes_them_by_name(tmp_path: Path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"the {w} sees the {v} ." for w in "abcdef" for v in "ghijkl"))
    model = tmp_path / "model"
    options = ["--tokenizer", "word", "--units", "10", "--features", "learned:3"]
    assert main(["train", str(text), *options, "--out", str(model)]) == 0
    features = LanguageModel.load(model).features_
    assert isinstance(features, LearnedWordFeatures)
    assert features.embedding_.shape[1] == 3


@pytest.mark.parametrize(
    ("tokens", "options", "message"),
    [
        ([0, 1, 2], {"n_features": 4}, "at most the 3 words of the vocabulary, got 4"),
        ([0, 1], {"n_features": 0}, "n_features must"),
        ([0, 1], {"n_rounds": 0}, "n_rounds must"),
        ([0, 1], {"learning_rate": 0.0}, "learning_rate must"),
        ([0, 1], {"traces": "yes"}, "traces must"),
        ([1], {"n_features": 1}, "no token follows another"),
        ([0, 5], {"n_features": 1, "n_tokens": 3}, "5"),
        ([0.5, 1], {"n_features": 1}, "integer"),
        ([0, 1, 2] * 5, {"n_features": 2}, "3 inputs for 2 features"),
    ],
)
def test_bad_input_is_named(tokens, options, message):
    n_tokens = options.pop("n_tokens", None)
    with pytest.raises(ValueError, match=message):
        LearnedWordFeatures(**options).fit(tokens, reservoir=drawn(), n_tokens=n_tokens)
