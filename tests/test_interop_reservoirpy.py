from typing import Any

import numpy as np
import pytest
import reservoirpy.nodes
from reservoirpy.model import Model
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge

from esnlm import Reservoir, RidgeReadout, RidgeRegressor
from esnlm.utils.reservoirpy import ReadoutNode, RegressorNode, ReservoirNode

V = 4


def series(length=300, seed=0):
    """A token repeats with a period of three except for noise: (x, next) one-hot."""
    rng = np.random.default_rng(seed)
    tokens = np.arange(length) % 3
    noisy = rng.random(length) < 0.1
    tokens[noisy] = rng.integers(0, V, noisy.sum())
    one_hot = np.eye(V)[tokens]
    return one_hot[:-1], one_hot[1:]


def reservoir():
    return Reservoir(40, degree=5, dtype="float64", random_state=0)


def test_reservoir_into_readout_end_to_end():
    x, y = series()
    model = reservoir() >> RidgeReadout()
    assert isinstance(model, Model)
    model.fit(x, y, warmup=10)
    fresh, following = series(seed=1)
    model.nodes[0].reset()
    probabilities = model.run(fresh)
    assert probabilities.shape == (299, V)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    assert (probabilities.argmax(1) == following.argmax(1)).mean() > 0.75

    ours = reservoir().fit(n_inputs=V)
    readout = RidgeReadout().fit(ours.transform(x)[10:], y[10:].argmax(1))
    expected = readout.predict_proba(ours.transform(fresh))
    np.testing.assert_allclose(probabilities, expected, atol=1e-8)


def test_step_equals_run():
    x, y = series(60)
    model = reservoir() >> RidgeReadout()
    model.fit(x, y)
    model.nodes[0].reset()
    whole = model.run(x[:5])
    model.nodes[0].reset()
    np.testing.assert_allclose([model.step(row) for row in x[:5]], whole, atol=1e-10)


def test_several_series_and_class_numbers():
    first, second = series(80), series(50, seed=3)
    model = reservoir() >> LogisticRegression(max_iter=500)
    model.fit(
        [first[0], second[0]],
        [first[1].argmax(1)[:, None].astype(float), second[1].argmax(1)[:, None].astype(float)],
    )
    assert [out.shape for out in model.run([first[0], second[0]])] == [(79, V), (49, V)]


def test_into_reservoirpy_nodes():
    x, y = series()
    model = reservoir() >> reservoirpy.nodes.Ridge(ridge=1e-3)
    assert model.fit(x, y).run(x).shape == y.shape


@pytest.mark.parametrize("width", [1, 3])
def test_a_regressor_is_the_ridge_of_scikit_learn(width):
    x = np.random.default_rng(0).normal(size=(2, 80, width))
    y = np.cumsum(x, axis=1)
    states = [reservoir().fit(n_inputs=width).transform(part) for part in x]
    rows = np.concatenate([part[10:] for part in states])
    fitted = Ridge(1e-2).fit(rows, np.concatenate([*y[:, 10:]]))
    expected = fitted.predict(states[0]).reshape(80, width)
    model = reservoir() >> RidgeRegressor(alpha=1e-2)
    model.fit([*x], [*y], warmup=10)
    model.nodes[0].reset()
    np.testing.assert_allclose(model.run(x[0]), expected, atol=1e-7)
    model = reservoir() >> fitted
    np.testing.assert_allclose(model.run(x[0]), expected, atol=1e-12)
    online = RegressorNode(RidgeRegressor(alpha=1e-2))
    for part, targets in zip(states, y, strict=True):
        online.partial_fit(part[10:], targets[10:])
    np.testing.assert_allclose(online.run(states[0]), expected, atol=1e-7)


def test_readout_after_a_reservoirpy_node():
    x, y = series()
    model = reservoirpy.nodes.Reservoir(40, seed=0) >> ReadoutNode(RidgeReadout())
    assert model.fit(x, y).run(x).shape == y.shape


def test_an_unseen_class_keeps_its_column():
    node = ReadoutNode(LogisticRegression())
    x = np.random.default_rng(0).standard_normal((20, 3))
    node.fit(x, np.eye(V)[np.arange(20) % 2 * 3])
    out = node.run(x)
    assert out.shape == (20, V)
    assert (out[:, 1:3] == 0).all()


def test_state_is_kept_between_runs():
    x, _ = series()
    node = ReservoirNode(reservoir())
    whole = np.concatenate([node.run(x[:100]), node.run(x[100:])])
    np.testing.assert_allclose(whole, reservoir().fit(n_inputs=V).transform(x), atol=1e-12)


def test_a_reservoir_of_another_size_begins_at_zero():
    x, _ = series(20)
    ours = reservoir()
    ours.run(x)
    ours.set_params(n_units=30).fit(n_inputs=V)
    np.testing.assert_array_equal(ours.run(x), ours.transform(x))


def ready(**settings):
    node = reservoirpy.nodes.Reservoir(10, seed=0, **settings)
    node.run(np.ones((3, 2)))
    return node


@pytest.mark.parametrize("activation", ["tanh", "relu", "identity"])
def test_from_node(activation):
    node = ready(activation=activation, sr=0.5, lr=0.5, W=reservoirpy.mat_gen.uniform)
    x = np.random.default_rng(0).standard_normal((30, 2))
    node.reset()
    expected = node.run(x)
    ours = Reservoir.from_reservoirpy(node)
    np.testing.assert_allclose(ours.transform(x), expected, atol=1e-10)
    assert ours.spectral_radius_ == pytest.approx(0.5, rel=1e-6)
    assert (ours.activation, ours.leak_rate, ours.dtype) == (activation, 0.5, "float64")


def test_fit_keeps_weights_that_were_imported():
    x = np.random.default_rng(0).standard_normal((30, 2))
    ours = Reservoir.from_reservoirpy(ready())
    weights, states = ours.W_.toarray(), ours.transform(x)
    np.testing.assert_array_equal(ours.fit(x).W_.toarray(), weights)
    np.testing.assert_array_equal(ours.fit_transform(x), states)
    with pytest.raises(ValueError, match=r"n_inputs must be at most 2, .*, got 3: draw others"):
        ours.fit(n_inputs=3)
    copy = clone(ours)
    np.testing.assert_array_equal(copy.fit_transform(x), states)
    assert copy.set_params(activation="relu").fit_transform(x).min() == 0
    for name, value in {"n_units": 9, "spectral_radius": 0.1, "leak_rate": [0.5] * 10}.items():
        with pytest.raises(ValueError, match=f"{name}=.* has no effect, as weights were set with"):
            clone(ours).set_params(**{name: value}).fit(x)
    assert Reservoir(**ours.get_params()).fit(n_inputs=3).n_inputs_ == 3


def test_to_node_and_back():
    ours = reservoir().fit(n_inputs=V)
    x, _ = series(30)
    again = Reservoir.from_reservoirpy(ours.to_reservoirpy())
    np.testing.assert_allclose(ours.to_reservoirpy().run(x), ours.transform(x), atol=1e-10)
    np.testing.assert_allclose(again.transform(x), ours.transform(x), atol=1e-12)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (reservoirpy.nodes.Reservoir(5), "no weights yet: run or initialize it"),
        (reservoirpy.nodes.Ridge(), "needs a reservoirpy.nodes.Reservoir, got Ridge"),
    ],
)
def test_nodes_that_cannot_be_taken(node, message):
    with pytest.raises(ValueError, match=message):
        Reservoir.from_reservoirpy(node)


def test_unsupported_activation():
    with pytest.raises(ValueError, match="must be tanh, relu or identity, got sigmoid"):
        Reservoir.from_reservoirpy(ready(activation="sigmoid"))


def test_unlinkable():
    with pytest.raises(TypeError, match="a reservoirpy node or a model, got str"):
        reservoir() >> "readout"
    with pytest.raises(ValueError, match="needs targets y"):
        ReadoutNode(RidgeReadout()).fit(np.ones((3, 2)))


@pytest.mark.parametrize("columns", [1, 3])
def test_real_targets_are_refused(columns):
    x, _ = series()
    real = np.random.default_rng(0).standard_normal((len(x), columns))
    model = reservoir() >> RidgeReadout()
    with pytest.raises(ValueError, match="a readout predicts classes"):
        model.fit(x, real)
    with pytest.raises(ValueError, match="a readout predicts classes"):
        ReadoutNode(RidgeReadout()).fit(x, real)
    with pytest.raises(ValueError, match=r"got <U1: np.unique\(y, return_inverse=True\) numbers"):
        model.fit(x, np.where(real > 0, "a", "b"))


def built(left, middle, right):
    return left >> middle >> right


@pytest.mark.parametrize(
    "make",
    [
        lambda: built(reservoirpy.nodes.Input(), reservoir(), RidgeReadout()),
        lambda: built(reservoirpy.nodes.Reservoir(20, seed=0), reservoir(), RidgeReadout()),
        lambda: reservoirpy.nodes.Reservoir(20, seed=0) >> RidgeReadout(),
        lambda: built(
            reservoirpy.nodes.Input(),
            [reservoirpy.nodes.Reservoir(20, seed=0), ReservoirNode(reservoir())],
            RidgeReadout(),
        ),
        lambda: reservoir() >> reservoir() >> RidgeReadout(),
        lambda: reservoirpy.ops.link(reservoirpy.nodes.Input(), reservoir()) >> RidgeReadout(),
    ],
)
def test_estimators_stand_on_either_side(make):
    x, y = series()
    model = make()
    assert isinstance(model, Model)
    out = model.fit(x, y, warmup=10).run(x)
    assert out.shape == y.shape
    assert (out.argmax(1) == y.argmax(1)).mean() > 0.7


def test_labels_of_one_axis():
    x, y = series()
    expected = (reservoir() >> RidgeReadout()).fit(x, y).run(x)
    found = (reservoir() >> RidgeReadout()).fit(x, y.argmax(1)).run(x)
    np.testing.assert_allclose(found, expected)
    node = ReadoutNode(RidgeReadout())
    np.testing.assert_allclose(
        node.fit(x, y.argmax(1)).run(x), ReadoutNode(RidgeReadout()).fit(x, y).run(x)
    )
    node.fit([x, x], [y.argmax(1), y.argmax(1)])
    assert node.run(x).shape == y.shape


def test_partial_fit_of_the_node():
    x, y = series()
    whole = ReadoutNode(RidgeReadout(alpha=1.0)).fit(x, y).run(x)
    node = ReadoutNode(RidgeReadout(alpha=1.0))
    node.partial_fit(x[:100], y[:100])
    assert node.partial_fit(x[100:], y[100:].argmax(1)).shape == (len(x) - 100, V)
    np.testing.assert_allclose(node.run(x), whole, atol=1e-8)
    with pytest.raises(ValueError, match="must be one-hot rows"):
        ReadoutNode(RidgeReadout()).partial_fit(x, y.argmax(1))
    model = reservoir() >> RidgeReadout(alpha=1.0)
    assert model.partial_fit(x[:20], y[:20]).shape == (20, V)


def test_a_node_of_equal_leak_rates_can_be_shown():
    node = Reservoir(10, degree=3, leak_rate=0.3, random_state=0).fit(n_inputs=2).to_reservoirpy()
    assert "lr=0.3" in repr(node)


def drawn_once() -> Reservoir:
    return Reservoir(20, degree=3, random_state=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: drawn_once() >> RidgeReadout() >> reservoirpy.nodes.Output(),
        lambda: drawn_once() >> (RidgeReadout() >> reservoirpy.nodes.Output()),
        lambda: ReservoirNode(drawn_once()) >> ReadoutNode(RidgeReadout()),
    ],
)
def test_labels_of_one_axis_wherever_the_readout_stands_in_a_reservoirpy_model(make: Any):
    tokens = np.random.default_rng(0).integers(0, 4, 100)
    rows, labels = np.eye(4)[tokens[:-1]], tokens[1:]
    expected = make().fit(rows, np.eye(4)[labels]).run(rows)
    np.testing.assert_allclose(make().fit(rows, labels).run(rows), expected)
