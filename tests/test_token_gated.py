"""A softmax for each token just read: the code in the state, the optimum, resuming, saving."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from esnlm import LanguageModel, Reservoir
from esnlm.readouts.token_gated.sgd import GatedPasses, GateMoments
from esnlm.readouts.token_gated.token_gated import (
    TokenGatedReadout,
    n_code_units,
    token_of,
    with_token_code,
)
from esnlm.reservoir.recurrence import CyclicRecurrence
from esnlm.storage.checkpoints import Checkpoints
from esnlm.training.resumable_run import StoppedError
from esnlm.training.trainer import Trainer, TrainingPlan

N_TOKENS = 5


@pytest.fixture(scope="module")
def tokens() -> np.ndarray:
    """A chain in which the next token depends on the last two."""
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.full(N_TOKENS, 0.4), size=(N_TOKENS, N_TOKENS))
    made = [0, 1]
    for _ in range(12000):
        made.append(int(rng.choice(N_TOKENS, p=table[made[-2], made[-1]])))
    return np.array(made)


def reservoir(n_units: int = 30, **options) -> Reservoir:
    return with_token_code(Reservoir(n_units, random_state=0, **options).fit(n_inputs=N_TOKENS))


def language_model(**options) -> LanguageModel:
    readout = TokenGatedReadout(n_gates=N_TOKENS, **options)
    return LanguageModel(reservoir(), readout, n_tokens=N_TOKENS, reset="never")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("topology", ["random", "offsets"])
def test_last_units_hold_the_token(tokens, dtype, topology):
    leaky = np.full(30, 0.3)
    coded = reservoir(topology=topology, degree=4, dtype=dtype, leak_rate=leaky, bias_scaling=1.0)
    states = coded.transform(tokens[:500])
    assert n_code_units(N_TOKENS) == 3
    np.testing.assert_array_equal(token_of(states, 3), tokens[:500])
    np.testing.assert_allclose(np.abs(states[:, -3:]), 1, atol=1e-6)
    np.testing.assert_allclose(coded.leak_rate_, [0.3] * 27 + [1] * 3)
    assert coded.bias_[:-3].all()
    assert not coded.bias_[-3:].any()
    assert (topology == "offsets") == isinstance(coded._recurrence, CyclicRecurrence)


def test_reservoirs_without_room_or_tanh_are_refused():
    with pytest.raises(ValueError, match="a token code of 3 units needs more units"):
        reservoir(3)
    with pytest.raises(ValueError, match="the activation tanh, got 30 and 'relu'"):
        reservoir(activation="relu")


def test_reaches_the_optimum_of_a_regression_for_each_token(tokens):
    states = reservoir().transform(tokens)[:-1]
    following, last = tokens[1:], tokens[:-1]
    readout = TokenGatedReadout(n_gates=N_TOKENS, alpha=1.0, n_passes=12).fit(states, following)
    ours = readout.predict_log_proba_of(states, following)
    for token in range(N_TOKENS):
        rows = last == token
        peer = LogisticRegression(C=1.0, max_iter=2000).fit(states[rows, :-3], following[rows])
        logs = peer.predict_log_proba(states[rows, :-3])
        codes = np.searchsorted(peer.classes_, following[rows])
        theirs = logs[np.arange(len(logs)), codes]
        assert ours[rows].mean() > theirs.mean() - 0.01
    np.testing.assert_allclose(readout.predict_proba(states[:99]).sum(axis=1), 1, rtol=1e-5)
    logs = readout.predict_log_proba(states)[np.arange(len(following)), following]
    np.testing.assert_allclose(logs, ours, rtol=1e-5)


def test_steps_are_those_of_their_formula_however_rows_are_cut():
    rng = np.random.default_rng(0)
    n_units, alpha, momentum, rate = 5, 2.0, 0.9, 0.3
    mixing = rng.standard_normal((n_units, n_units))
    X = (rng.standard_normal((1200, n_units)) @ mixing + 0.5).astype(np.float32)
    codes, gates = rng.integers(3, size=1200), rng.integers(3, size=1200)
    sampled = np.concatenate([np.flatnonzero(gates == g)[:n] for g, n in enumerate([0, 1, 20])])
    frequencies = np.array([0.6, 0.3, 0.1])
    rows = np.array([100, 4000, 10**6])
    moments = GateMoments(3, n_units)
    moments.add(X[sampled], gates[sampled])
    passes = GatedPasses(moments, rows, frequencies, alpha, momentum)
    for part in np.split(np.arange(1200), [1, 50, 333, 800]):
        passes.learn(X[part], gates[part], codes[part], rate, np.zeros((len(part), 3), "f4"))

    sample = [X[sampled][gates[sampled] == g].astype(float) for g in range(3)]
    centred = [x - x.sum(axis=0) / max(len(x), 1) for x in sample]
    scatter = [x.T @ x for x in centred]
    for gate, batch in enumerate([32, 80, 128]):
        x = sample[gate] if len(sample[gate]) else np.concatenate(sample)
        n = len(sample[gate])
        centre = x.mean(axis=0)
        own = scatter[gate] / max(n, 1) * n / (n + n_units)
        covariance = own + sum(scatter) / len(sampled) * n_units / (n + n_units)
        ridge = alpha / rows[gate] / np.mean(frequencies * (1 - frequencies))
        ridge += 1e-3 * np.trace(covariance) / n_units
        weights, offset = np.zeros((n_units, 3)), np.log(frequencies)
        velocity, offset_velocity, variances = 0.0, 0.0, frequencies * (1 - frequencies)
        mine = np.flatnonzero(gates == gate)
        for step in range(len(mine) // batch):
            part = mine[step * batch : (step + 1) * batch]
            P = softmax((X[part] - centre) @ weights + offset, axis=1)
            wrong = P - np.eye(3)[codes[part]]
            gradient = (X[part] - centre).T @ wrong / batch + alpha / rows[gate] * weights
            memory = max(0.05, 1 / (step + 2))
            variances = (1 - memory) * variances + memory * (P * (1 - P)).mean(axis=0)
            sizes = rate * min(1, (step + 1) / 20) / np.sqrt(variances)
            move = np.linalg.solve(covariance + ridge * np.eye(n_units), gradient) * sizes
            velocity = momentum * velocity - move
            offset_velocity = momentum * offset_velocity - wrong.mean(axis=0) * sizes
            weights, offset = weights + velocity, offset + offset_velocity
        np.testing.assert_allclose(passes.weights[gate], weights, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(
            passes.intercept[gate], offset - centre @ weights, rtol=1e-3, atol=1e-5
        )


def test_saved_and_loaded_it_says_the_same(tokens, tmp_path):
    model = language_model(n_passes=2).fit([tokens])
    model.save(tmp_path / "model")
    loaded = LanguageModel.load(tmp_path / "model")
    np.testing.assert_array_equal(
        loaded.log_likelihood([tokens[:300]])[0], model.log_likelihood([tokens[:300]])[0]
    )
    assert model.n_parameters_ == N_TOKENS * (27 * N_TOKENS + N_TOKENS)


def test_interrupted_anywhere_it_ends_in_the_same_model(tokens, tmp_path):
    plan = TrainingPlan(chunk_tokens=2048)

    def trainer() -> Trainer:
        model = language_model(n_passes=2)
        return Trainer(model, model._read_corpus([tokens]), plan=plan)

    whole = trainer().run()
    checkpoints = Checkpoints(tmp_path / "run")
    for _ in range(100):
        try:
            resumed = trainer().run(checkpoints, resume=True, stop=lambda: True)
            break
        except StoppedError:
            continue
    np.testing.assert_array_equal(resumed.readout_.coef_, whole.readout_.coef_)
    np.testing.assert_array_equal(resumed.readout_.intercept_, whole.readout_.intercept_)


def test_a_loaded_model_refuses_to_learn_on_rather_than_forget(tokens, tmp_path):
    language_model().fit([tokens[:2000]]).save(tmp_path / "model")
    loaded = LanguageModel.load(tmp_path / "model")
    known = loaded.readout_.coef_.copy()
    with pytest.raises(ValueError, match="loaded without its training state"):
        loaded.partial_fit(tokens[2000:])
    with pytest.raises(ValueError, match="loaded without its training state"):
        loaded.save(tmp_path / "again", training=True)
    np.testing.assert_array_equal(loaded.readout_.coef_, known)
    assert not (tmp_path / "again").exists()


def test_learns_on_in_chunks(tokens):
    model = language_model().partial_fit(tokens[:500])
    first = model.perplexity(tokens[8000:])
    for array in model.readout_._passes.state_dict().values():
        array.flags.writeable = False  # as joblib maps it in its workers
    model.partial_fit(tokens[500:8000])
    assert model.perplexity(tokens[8000:]) < first < N_TOKENS


def test_by_name_it_reads_ngrams(tokens):
    model = LanguageModel(Reservoir(20, random_state=0), "gated", n_tokens=N_TOKENS).fit([tokens])
    assert (model.readout_.n_direct, model.readout_.alpha) == (8, 100.0)
    assert model.perplexity([tokens]) < 0.9 * N_TOKENS


def test_units_that_hold_no_digits_are_refused_where_any_number_is_a_token():
    tokens = np.random.default_rng(0).integers(0, 16, 200)
    plain = Reservoir(20, random_state=0).fit(n_inputs=16).transform(tokens)
    with pytest.raises(ValueError, match="last 4 units hold other values than the digits"):
        TokenGatedReadout(n_gates=16).fit_blocks([(plain[:-1], tokens[1:])], np.arange(16))


def test_states_without_a_code_are_refused(tokens):
    plain = Reservoir(20, random_state=0).fit(n_inputs=N_TOKENS).transform(tokens[:200])
    with pytest.raises(ValueError, match="the states must come from with_token_code"):
        TokenGatedReadout(n_gates=N_TOKENS).fit(plain, tokens[:200])
    with pytest.raises(ValueError, match="states beside the 2 columns of last tokens, got 2"):
        TokenGatedReadout(n_direct=2).fit(np.zeros((4, 2)), [0, 1, 2, 0])
    with pytest.raises(ValueError, match="must have more than 3 units"):
        TokenGatedReadout(n_gates=N_TOKENS).fit(plain[:, :3], tokens[:200])


@pytest.mark.parametrize(
    "bad", [{"n_gates": 0}, {"n_passes": 0}, {"alpha": -1.0}, {"learning_rate": 0}, {"momentum": 1}]
)
def test_bad_parameters_are_refused(bad, tokens):
    with pytest.raises(ValueError, match="must"):
        TokenGatedReadout(**({"n_gates": N_TOKENS} | bad)).fit(
            reservoir().transform(tokens[:50]), tokens[:50]
        )
