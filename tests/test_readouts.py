"""One contract that every readout keeps."""

import pickle
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import StackingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits
from toy_readout import GaussianReadout

import esnlm
from esnlm import (
    ClassFactoredReadout,
    ClassifierReadout,
    LowRankReadout,
    MixtureOfExpertsReadout,
    ReducedRankSoftmaxReadout,
    RidgeReadout,
    RidgeRegressor,
    SoftmaxReadout,
)
from esnlm.readouts import registry
from esnlm.readouts.base.readout import ArrayBlocks, encode_labels
from esnlm.utils.validation import at_fit

#: Every readout on its defaults, and the other ways in which it is fitted.
READOUTS: dict[str, Any] = {
    "ridge": RidgeReadout(),
    "ridge, one penalty": RidgeReadout(alpha=1.0),
    "softmax": SoftmaxReadout(),
    "softmax, incremental": SoftmaxReadout(solver="incremental"),
    "softmax of reduced rank": ReducedRankSoftmaxReadout(rank=2),
    "mixture": MixtureOfExpertsReadout(random_state=0),
    "mixture, linear": MixtureOfExpertsReadout(experts="linear", random_state=0),
    "factored": ClassFactoredReadout(random_state=0),
    "factored, joint": ClassFactoredReadout(solver="joint", random_state=0),
    "factored, joint ridge": ClassFactoredReadout(
        solver="joint", class_readout="ridge", word_readout="ridge", random_state=0
    ),
    "factored, joint mixture": ClassFactoredReadout(
        solver="joint", class_readout="moe", clustering="words", random_state=0
    ),
    "low rank": LowRankReadout(random_state=0),
    "low rank, clustered": LowRankReadout(
        n_components=3, n_frequent=1, n_classes=2, random_state=0
    ),
    "classifier": ClassifierReadout(classifier=LogisticRegression()),
    "added by the recipe": GaussianReadout(),
}

every_readout = pytest.mark.parametrize("readout", READOUTS.values(), ids=READOUTS.keys())


def pairs(
    n: int = 120, n_units: int = 6, n_classes: int = 4, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """States and targets with something to learn; every class occurs."""
    rng = np.random.default_rng(seed)
    X = np.tanh(rng.normal(size=(n, n_units)))
    scores = X @ rng.normal(size=(n_units, n_classes)) + rng.gumbel(size=(n, n_classes))
    y = scores.argmax(axis=1)
    y[:n_classes] = np.arange(n_classes)
    return X, y


#: Other settings of a readout that is checked; its checks take ten seconds more.
REPEATED = ("factored, joint mixture", "low rank, clustered")


@parametrize_with_checks([each for name, each in READOUTS.items() if name not in REPEATED])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(estimator)


@pytest.mark.slow
@parametrize_with_checks([READOUTS[name] for name in REPEATED])
def test_scikit_learn_checks_of_other_settings(estimator: Any, check: Any) -> None:
    test_scikit_learn_checks(estimator, check)


@pytest.mark.parametrize(
    "made",
    [
        *READOUTS.values(),
        esnlm.TokenGatedReadout(n_gates=3),
        esnlm.LanguageModel(),
        esnlm.NgramLanguageModel(),
        esnlm.Reservoir(5),
        esnlm.WordFeatures(n_features=2),
    ],
    ids=repr,
)
def test_an_estimator_equals_itself_alone_and_is_shown_as_those_of_scikit_learn(made: Any) -> None:
    assert len({made, made, clone(made)}) == 2
    assert repr(made) == BaseEstimator.__repr__(made)  # parameters that are not the default


@every_readout
@pytest.mark.parametrize("value", [0.0, 2.5])
def test_states_that_are_all_alike_leave_the_frequencies(readout: Any, value: float) -> None:
    X, y = pairs(n_classes=9)
    fitted = clone(readout).fit(np.full_like(X, value), y)
    shares = np.bincount(y) / len(y)
    loss = -fitted.predict_log_proba_of(np.full_like(X, value), y).mean()
    assert loss == pytest.approx(-(shares @ np.log(shares)), abs=0.02)


@pytest.mark.parametrize("name", sorted(READOUTS.keys() - {"added by the recipe"}))
def test_the_mean_of_the_states_does_not_matter(name: str) -> None:
    X, y = pairs()
    losses = [
        -clone(READOUTS[name]).fit(each, y).predict_log_proba_of(each, y).mean()
        for each in (X, X + np.linspace(-3, 3, X.shape[1]))
    ]
    assert losses[1] == pytest.approx(losses[0], abs=2e-3)


@every_readout
def test_copies_learn_on_as_the_original(readout: Any, tmp_path: Path) -> None:
    X, y = pairs()
    readout = clone(readout)
    if hasattr(readout, "buffer_size"):
        readout.buffer_size = 60
    readout.partial_fit(X, y, classes=np.arange(4))
    joblib.dump(readout, tmp_path / "readout")
    # joblib gives large arrays to its workers as read-only maps
    mapped = joblib.load(tmp_path / "readout", mmap_mode="r")
    solved = pickle.loads(pickle.dumps(readout)).predict_proba(X)
    unsolved = joblib.load(tmp_path / "readout", mmap_mode="r")
    np.testing.assert_array_equal(unsolved.predict_proba(X), solved)
    copies = [readout, pickle.loads(pickle.dumps(readout)), mapped]
    first, *others = [each.partial_fit(X[::-1], y[::-1]).state_dict() for each in copies]
    for other in others:
        assert all(np.array_equal(first[name], other[name]) for name in first)


@every_readout
def test_a_readout_is_equal_to_itself_alone(readout: Any) -> None:
    assert len({readout, readout, clone(readout)}) == 2


@every_readout
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_are_distributions_in_the_dtype_of_the_states(
    readout: Any, dtype: str, order: Any
) -> None:
    X, y = pairs()
    X = np.asarray(X, dtype=dtype, order=order)
    fitted = clone(readout).fit(X, y)
    probabilities = fitted.predict_proba(X)
    assert probabilities.shape == (120, 4)
    assert probabilities.dtype == X.dtype
    assert probabilities.min() >= 0
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(X)), probabilities, atol=1e-6)


@every_readout
@pytest.mark.parametrize("rows_at_once", [None, 7])
def test_log_probability_of_a_label_is_that_of_its_row(
    readout: Any, rows_at_once: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rows_at_once is not None:
        monkeypatch.setattr("esnlm.readouts.base.readout._PREDICTION_BYTES", 8 * 4 * rows_at_once)
    X, y = pairs()
    labels = np.array(["boy", "chases", "dog", "girl"])[y]
    fitted = clone(readout).fit(X, labels)
    expected = fitted.predict_log_proba(X)[np.arange(len(y)), y]
    np.testing.assert_allclose(fitted.predict_log_proba_of(X, labels), expected, atol=1e-9)
    with pytest.raises(ValueError, match="120 rows and y 119: give one label a row"):
        fitted.predict_log_proba_of(X, labels[1:])
    with pytest.raises(ValueError, match="not among the 4 classes"):
        fitted.predict_log_proba_of(X[:1], ["cat"])
    with pytest.raises(ValueError, match="y should be a 1d array"):
        fitted.predict_log_proba_of(X[:2], [["boy", "dog"], ["dog", "boy"]])


@every_readout
def test_order_and_precision_of_the_states_do_not_matter(readout: Any) -> None:
    X, y = pairs()
    truth = clone(readout).fit(X, y).predict_proba(X)
    turned = clone(readout).fit(np.asfortranarray(X), y).predict_proba(np.asfortranarray(X))
    single = clone(readout).fit(X.astype(np.float32), y).predict_proba(X.astype(np.float32))
    np.testing.assert_allclose(turned, truth, atol=1e-6)
    np.testing.assert_allclose(single, truth, atol=5e-3)


@every_readout
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(cuts=st.lists(st.integers(1, 79), max_size=4, unique=True).map(sorted))
def test_chunked_partial_fit_equals_fit(readout: Any, cuts: list[int]) -> None:
    X, y = pairs(80)
    whole = clone(readout).fit(X, y)
    chunked = clone(readout)
    for part in np.split(np.arange(80), cuts):
        chunked.partial_fit(X[part], y[part], classes=np.arange(4))
    np.testing.assert_allclose(chunked.predict_proba(X), whole.predict_proba(X), atol=1e-6)


@every_readout
def test_narrow_numbers_of_numpy_are_those_of_python(readout: Any) -> None:
    X, y = pairs(300)
    numbers = {"n_passes": 3, "max_iter": 3, "n_experts": 2, "rank": 2, "buffer_size": 100}
    numbers |= {"n_components": 3, "n_restarts": 2, "alpha": 0.5, "prior": 2.0, "gate_alpha": 0.5}
    numbers = {name: value for name, value in numbers.items() if name in readout.get_params()}
    if "newton" not in clone(readout).get_params().get("solver", "newton"):
        numbers.pop("max_iter", None)
    narrow = {n: np.float16(v) if isinstance(v, float) else np.uint8(v) for n, v in numbers.items()}
    made = []
    for values in (numbers, narrow):
        fitted = clone(readout).set_params(**values).fit(X, y)
        streamed = clone(readout).set_params(**values)
        streamed.partial_fit(X, y, classes=np.arange(4)).partial_fit(X, y)
        made.append([fitted.predict_proba(X), streamed.predict_proba(X)])
    np.testing.assert_array_equal(*made)


@every_readout
def test_predicting_between_chunks_changes_nothing(readout: Any) -> None:
    X, y = pairs(80)
    watched, unwatched = clone(readout), clone(readout)
    for start in (0, 40):
        part = slice(start, start + 40)
        watched.partial_fit(X[part], y[part], classes=np.arange(4)).predict(X[:3])
        unwatched.partial_fit(X[part], y[part], classes=np.arange(4))
    np.testing.assert_allclose(watched.predict_proba(X), unwatched.predict_proba(X), atol=1e-9)


@every_readout
def test_blocks_in_reused_memory_equal_arrays(readout: Any) -> None:
    X, y = pairs(80)
    lasting = [(X[start : start + 20], y[start : start + 20]) for start in range(0, 80, 20)]

    class Reused:
        def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            memory = np.empty((20, X.shape[1]))
            for states, following in lasting:
                memory[:] = states
                yield memory, following
            memory[:] = np.nan

    reused = clone(readout).fit_blocks(Reused(), np.arange(4)).predict_proba(X)
    kept = clone(readout).fit_blocks(lasting, np.arange(4)).predict_proba(X)
    np.testing.assert_allclose(reused, kept, atol=1e-9)
    if readout.get_params().get("solver") != "incremental":  # its steps are blocks'
        np.testing.assert_allclose(kept, clone(readout).fit(X, y).predict_proba(X), atol=1e-5)


@every_readout
def test_what_is_set_after_fit_waits_for_the_next(readout: Any) -> None:
    X, y = pairs(200)
    fitted = clone(readout).fit(X, y)
    before, parameters = fitted.predict_proba(X), fitted.get_params(deep=False)
    for name in parameters.keys() - {"n_threads"}:
        setattr(fitted, name, "nonsense")
    np.testing.assert_array_equal(fitted.predict_proba(X), before)
    assert at_fit(fitted) == parameters


@pytest.mark.parametrize(
    ("name", "parameter"), [("ridge, one penalty", "alpha"), ("classifier", "share")]
)
def test_what_is_set_after_fit_is_checked_before_more_rows(name: str, parameter: str) -> None:
    X, y = pairs(40)
    fitted = clone(READOUTS[name]).fit(X, y).set_params(**{parameter: -7.0})
    with pytest.raises(ValueError, match=rf"{parameter} must .*, got -7"):
        fitted.partial_fit(X, y)


def test_a_penalty_that_is_set_after_rows_came_is_checked_before_they_are_solved() -> None:
    X, y = pairs(40)
    waiting = RidgeReadout(alpha=1.0).partial_fit(X, y, classes=np.arange(4))
    for each in (waiting, RidgeRegressor().partial_fit(X, y)):
        with pytest.raises(ValueError, match="alpha must not be negative, got -7"):
            each.set_params(alpha=-7.0).predict(X)


@every_readout
def test_held_out_blocks_are_taken(readout: Any) -> None:
    X, y = pairs(400)
    blocks, held_out = ArrayBlocks(X[:300], y[:300], 64), ArrayBlocks(X[300:], y[300:], 64)
    fitted = clone(readout).fit_blocks(blocks, np.arange(4), held_out=held_out)
    frequencies = np.bincount(y[:300]) / 300
    gain = fitted.predict_log_proba_of(X[300:], y[300:]) - np.log(frequencies[y[300:]])
    assert gain.mean() > 0.05
    if repr(readout) == repr(RidgeReadout(alpha=1.0)) or type(readout) is GaussianReadout:
        return  # nothing to choose: held-out rows are not read
    with pytest.raises(ValueError, match="not among the 4 classes"):
        clone(readout).fit_blocks(blocks, np.arange(4), held_out=ArrayBlocks(X, y + 7))
    with pytest.raises(ValueError, match="held_out has no rows: give some, or None"):
        clone(readout).fit_blocks(blocks, np.arange(4), held_out=[])


@every_readout
def test_unseen_classes_keep_their_column(readout: Any) -> None:
    X, y = pairs()
    labels = np.array([1, 3, 4, 8])[y]
    fitted = clone(readout).partial_fit(X, labels, classes=np.arange(10))
    probabilities = fitted.predict_proba(X)
    assert probabilities.shape == (120, 10)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    seen = probabilities[:, [1, 3, 4, 8]].sum(axis=1)
    assert np.all(seen > 0.5)
    assert set(fitted.predict(X)) <= {1, 3, 4, 8}


@every_readout
def test_a_fit_forgets_the_last(readout: Any) -> None:
    X, y = pairs(80)
    fresh = clone(readout).fit(X, y).predict_proba(X)
    again = clone(readout).fit(X[:, :3], y == 0).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(again, fresh, atol=1e-9)


@every_readout
def test_a_fit_that_fails_leaves_nothing_of_the_last(readout: Any) -> None:
    X, y = pairs(80)
    fitted = clone(readout).fit(X, y)
    with pytest.raises(ValueError, match="blocks have no rows"):
        fitted.fit_blocks([], np.arange(5))
    if fitted._reads_once:
        with pytest.raises(ValueError, match="no rows to learn from"):
            fitted.fit_blocks(iter([]), np.arange(5))
    assert not vars(fitted).keys() & set(fitted._parameters)
    with pytest.raises(NotFittedError):
        fitted.predict_proba(X)


@every_readout
def test_a_fit_that_is_interrupted_is_none(readout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = pairs(80)
    interrupted = clone(readout).fit(X, y)
    expected = interrupted.predict_proba(X)

    def stop(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(readout), "_solve", stop)
        for fit in (interrupted.fit, lambda X, y: interrupted.fit_blocks([(X, y)], np.arange(4))):
            with pytest.raises(KeyboardInterrupt):
                fit(X, y)
            with pytest.raises(NotFittedError):
                interrupted.predict_proba(X)
    np.testing.assert_allclose(interrupted.fit(X, y).predict_proba(X), expected, atol=1e-9)


@every_readout
def test_one_thread_solves_and_others_wait(readout: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = pairs(80)
    fitted = clone(readout).partial_fit(X, y, classes=np.arange(4))
    expected = deepcopy(fitted).predict_proba(X)
    settle, inside, together = type(readout)._settle, set[int](), list[int]()

    def watched(self: Any) -> None:
        inside.add(threading.get_ident())
        together.append(len(inside))
        time.sleep(0.01)
        settle(self)
        inside.discard(threading.get_ident())

    monkeypatch.setattr(type(readout), "_settle", watched)
    with ThreadPoolExecutor(3) as pool:
        for probabilities in pool.map(fitted.predict_proba, [X] * 3):
            np.testing.assert_allclose(probabilities, expected, atol=1e-9)
    assert len(together) >= 3
    assert max(together) == 1


@every_readout
def test_arrays_restore_the_readout(readout: Any) -> None:
    X, y = pairs(80)
    fitted = clone(readout).fit(X, y)
    arrays = {name: np.array(value) for name, value in fitted.state_dict().items()}
    assert all(value.dtype != object for value in arrays.values())
    loaded = clone(fitted).load_state_dict(arrays)
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert loaded.n_parameters_ == fitted.n_parameters_ > 0


@every_readout
def test_text_labels_survive_the_arrays(readout: Any) -> None:
    X, y = pairs(80)
    words = np.array(["boy", "chases", "dog", "é"])[y]
    fitted = clone(readout).fit(X, words)
    loaded = clone(fitted).load_state_dict(fitted.state_dict())
    assert loaded.predict(X).tolist() == fitted.predict(X).tolist()


@every_readout
def test_the_number_of_threads_does_not_matter(
    readout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = pairs(2500, n_units=20)  # several tiles of the readout that has threads of its own
    probabilities = []
    for n_threads in (1, 2):
        monkeypatch.setenv("ESNLM_NUM_THREADS", str(n_threads))
        with threadpool_limits(n_threads):
            probabilities.append(clone(readout).fit(X, y).predict_proba(X))
    np.testing.assert_allclose(probabilities[0], probabilities[1], atol=1e-6)


@every_readout
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(n=st.integers(4, 40), n_units=st.integers(1, 9), n_classes=st.integers(1, 5))
def test_any_shape_fits(readout: Any, n: int, n_units: int, n_classes: int) -> None:
    X, y = pairs(max(n, n_classes), n_units, n_classes)
    probabilities = (
        clone(readout).partial_fit(X, y, classes=np.arange(n_classes + 1)).predict_proba(X)
    )
    assert probabilities.shape == (len(X), n_classes + 1)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)


@every_readout
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_states_that_tell_nothing_give_distributions(readout: Any, dtype: Any) -> None:
    X, y = pairs(40)
    X = X.astype(dtype)
    for states in (np.zeros_like(X), np.ones_like(X), np.where(np.arange(6) == 2, X, 0), X[:1]):
        labels = y[: len(states)]
        fitted = clone(readout).partial_fit(states, labels, classes=np.arange(4))
        np.testing.assert_allclose(fitted.predict_proba(states).sum(axis=1), 1, atol=1e-6)


@every_readout
def test_states_that_hardly_vary_give_distributions(readout: Any) -> None:
    rng = np.random.default_rng(0)
    decay = np.exp(-np.arange(2000) / 20)[:, None]  # as of one sentence of one word
    X = np.float32(np.tanh(rng.normal(size=6)) + 1e-3 * decay * rng.normal(size=(2000, 6)))
    for labels in (np.zeros(2000, dtype=int), np.arange(2000) % 2):
        fitted = clone(readout).partial_fit(X, labels, classes=np.arange(5))
        np.testing.assert_allclose(fitted.predict_proba(X[:9]).sum(axis=1), 1, atol=1e-5)


@every_readout
def test_bad_input_is_named(readout: Any) -> None:
    X, y = pairs(40)
    with pytest.raises(ValueError, match="classes must be given at the first call"):
        clone(readout).partial_fit(X, y)
    new = clone(readout)
    with pytest.raises(ValueError, match=r"not among the 3 classes: \[3\]"):
        new.partial_fit(X, y, classes=[0, 1, 2])
    assert len(new.partial_fit(X, y, classes=np.arange(4)).predict(X)) == len(X)
    with pytest.raises(ValueError, match="NaN"):
        clone(readout).fit(np.where(X[0, 0] == X, np.nan, X), y)
    with pytest.raises(ValueError, match="classes differ"):
        clone(readout).partial_fit(X, y, classes=np.arange(4)).partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match="features"):
        clone(readout).fit(X, y).predict(X[:, :2])
    with pytest.raises(ValueError, match="classes is empty"):
        clone(readout).fit_blocks([(X, y)], [])
    with pytest.raises(ValueError, match=r"list of labels, got an array of shape \(2, 2\)"):
        clone(readout).partial_fit(X, y, classes=[[0, 1], [2, 3]])
    with pytest.raises(ValueError, match="row"):
        clone(readout).fit_blocks([], np.arange(4))
    for blocks in ([(X, y, y)], (X, y)):
        with pytest.raises(ValueError, match=r"must be pairs \(X, y\)"):
            clone(readout).fit_blocks(blocks, np.arange(4))


@every_readout
def test_an_unfitted_readout_has_no_number_of_parameters(readout: Any) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        assert clone(readout).n_parameters_
    with pytest.raises(AttributeError, match="object has no attribute 'coefs'"):
        assert clone(readout).coefs


def test_every_readout_is_registered_and_public() -> None:
    for entry in registry.READOUTS:
        assert entry.load() is getattr(esnlm, entry.class_name)
    used = {type(readout).__name__ for readout in READOUTS.values()} - {"GaussianReadout"}
    assert used <= set(registry.BY_CLASS)


def test_classes_may_be_a_set_or_a_generator() -> None:
    X, y = pairs()
    for classes in ({3, 2, 1, 0, 7}, (each for each in (3, 2, 1, 0, 7))):
        fitted = RidgeReadout().partial_fit(X, y, classes=classes)
        assert fitted.classes_.tolist() == [0, 1, 2, 3, 7]


def test_labels_become_columns() -> None:
    codes = encode_labels(np.array(["b", "z"]), np.array(["a", "b", "z"]))
    assert codes.tolist() == [1, 2]
    with pytest.raises(ValueError, match="zz"):
        encode_labels(np.array(["b", "zz"]), np.array(["a", "b", "z"]))


def test_blocks_of_arrays_are_views_and_start_over() -> None:
    X, y = pairs(10)
    blocks = ArrayBlocks(X, y, block_size=4)
    for _ in range(2):
        parts = list(blocks)
        assert [len(codes) for _, codes in parts] == [4, 4, 2]
        assert all(np.shares_memory(part, X) for part, _ in parts)
    with pytest.raises(ValueError, match="one target a row"):
        ArrayBlocks(X, y[:3])
    with pytest.raises(ValueError, match="block_size must be at least 1"):
        ArrayBlocks(X, y, block_size=0)


@pytest.mark.parametrize("readout", READOUTS.values(), ids=READOUTS.keys())
def test_more_rows_change_what_a_fitted_readout_predicts(readout: Any):
    X, y = pairs(400)
    learned = clone(readout).fit(X, y)
    shifted = (y + 1) % 4
    before = learned.predict_log_proba_of(X, shifted).mean()
    for _ in range(3):
        learned.partial_fit(X, shifted)
    assert learned.predict_log_proba_of(X, shifted).mean() > before + 0.05


def test_a_readout_decides_for_a_stack_of_classifiers() -> None:
    X, y = pairs(200)
    stack = StackingClassifier([("one", LogisticRegression())], RidgeReadout(), cv=2).fit(X, y)
    assert stack.score(X, y) > 0.5
