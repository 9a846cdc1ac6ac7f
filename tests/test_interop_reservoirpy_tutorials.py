"""The calls that the tutorials of reservoirpy 0.4.2 make, with our reservoir in place of its own.

Where the same weights are in both, so are the numbers.
"""

from typing import Any

import numpy as np
import pytest
import reservoirpy
from reservoirpy import ESN
from reservoirpy.datasets import japanese_vowels, mackey_glass, to_forecasting
from reservoirpy.nodes import Input, Output, Ridge, ScikitLearnNode
from reservoirpy.observables import nrmse, rsquare
from sklearn.linear_model import Lasso, RidgeClassifier

from esnlm import Reservoir, RidgeReadout

X = np.sin(np.linspace(0, 6 * np.pi, 150)).reshape(-1, 1)
TRAIN, TARGET = X[:100], X[1:101]


def reservoir(n_units: int = 60, **settings: Any) -> Reservoir:
    options: dict[str, Any] = {"leak_rate": 0.5, "spectral_radius": 0.9, "random_state": 0}
    return Reservoir(n_units, dtype="float64", **options | settings)


def twin(ours: Reservoir, n_inputs: int = 1) -> reservoirpy.nodes.Reservoir:
    """Their node with our weights."""
    return ours.fit(n_inputs=n_inputs).to_reservoirpy()


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def near(found: Any, expected: Any) -> None:
    """A ridge of small penalty amplifies the last bits of its inputs."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


def test_a_call_is_a_step_and_the_state_is_kept() -> None:
    """Tutorial 1: ``reservoir(X[0])``, ``reservoir.state``, a loop, ``run``, ``reset``."""
    ours = reservoir()
    theirs = twin(reservoir())
    close(ours(X[0]), theirs(X[0]))
    assert ours.state["out"].shape == (60,)
    states = np.empty((len(X), ours.output_dim))
    for i in range(len(X)):
        states[i] = ours(X[i])
    close(states, [theirs(x) for x in X])
    close(ours.run(X), theirs.run(X))
    ours.reset()
    close(ours.run(X), ours.transform(X))
    theirs.reset()
    theirs.run(X)
    for found, expected in zip(ours.run([X[:9], X[:20]]), theirs.run([X[:9], X[:20]]), strict=True):
        close(found, expected)
    assert (ours.initialized, ours.input_dim, ours.output_dim) == (True, 1, 60)


def test_states_train_a_readout_and_a_model_both() -> None:
    """Tutorial 1: a readout on states, ``reservoir >> ridge``, ``ESN(reservoir, ridge)``."""
    ours = reservoir()
    readout = Ridge(ridge=1e-7).fit(ours.run(TRAIN), TARGET)
    assert np.abs(readout.run(ours.run(X[50:-1])) - X[51:]).max() < 0.05
    predictions = []
    for build in (
        lambda node, ridge: node >> ridge,
        lambda node, ridge: ESN(node, ridge),
        lambda node, ridge: ESN(reservoir=node, readout=ridge),
    ):
        for node in (reservoir(), twin(reservoir())):
            model = build(node, Ridge(ridge=1e-7)).fit(TRAIN, TARGET, warmup=10)
            predictions.append(model.run(X[50:]))
            assert node.initialized
    for each in predictions[1:]:
        near(each, predictions[0])


@pytest.mark.parametrize("options", [{"input_to_readout": True}, {"feedback": True}])
def test_an_esn_with_inputs_to_the_readout_or_feedback(options: dict[str, Any]) -> None:
    """Tutorial 2."""
    n_inputs = 2 if "feedback" in options else 1
    runs = [
        ESN(reservoir=node, readout=Ridge(ridge=1e-7), **options).fit(TRAIN, TARGET).run(X[100:])
        for node in (reservoir(), twin(reservoir(), n_inputs))
    ]
    near(*runs)


def deep(kind: int, nodes: list[Any], readouts: list[Ridge]) -> Any:
    one, two, three = nodes
    data = Input()
    if kind == 1:
        return one >> readouts[0] >> two >> readouts[1]
    if kind == 2:
        return one >> two >> three & data >> [one, two, three] >> readouts[0]
    if kind == 3:
        return [one, two] >> readouts[0] & [two, three] >> readouts[1]
    if kind == 4:
        return [data, data >> one] >> readouts[0]
    if kind == 5:
        return data >> one >> readouts[0] & data >> readouts[0]
    return [one, two] >> readouts[0]


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("which", ["ours", "to_reservoirpy", "mixed"])
def test_deep_graphs(kind: int, which: str) -> None:
    """Tutorial 2: hierarchical, deep and multi-input models, each node in several places."""
    widths = [(1, 1, 1), (1, 61, 61), (1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1)][kind - 1]
    outputs = []
    for use in (which, "to_reservoirpy"):
        nodes: list[Any] = [reservoir(random_state=i) for i in range(3)]
        for i, width in enumerate(widths):
            nodes[i].name = f"reservoir {i}"
            if use == "to_reservoirpy" or (use == "mixed" and i == 1):
                nodes[i] = twin(nodes[i], width)
                nodes[i].name = f"reservoir {i}"
        model = deep(kind, nodes, [Ridge(ridge=1e-5, name=f"readout {i}") for i in range(2)])
        inputs = {node.name: TRAIN for node in model.inputs} if model.is_multi_input else TRAIN
        several = len(model.trainable_nodes) > 1
        targets = {f"readout {i}": TARGET for i in range(2)} if several else TARGET
        out = model.fit(inputs, targets).run(inputs)
        outputs.append(list(out.values()) if isinstance(out, dict) else [out])
    for found, expected in zip(*outputs, strict=True):
        near(found, expected)


def test_feedback_by_operators_and_generation() -> None:
    """Tutorial 2: ``esn_model &= reservoir << readout``, then a model that feeds itself."""
    runs = []
    for node in (reservoir(), twin(reservoir(), 2)):
        readout = Ridge(ridge=1e-7)
        model = node >> readout
        model &= node << readout
        model = model.fit(TRAIN, TARGET)
        model(X[0])
        assert len(model.feedback_buffers) == 1
        runs.append(model.run(X[100:]))
    near(*runs)
    model = reservoir() >> Ridge(ridge=1e-7)
    model.fit(TRAIN, TARGET, warmup=10)
    x, generated = TARGET[-1], np.empty((20, 1))
    for i in range(20):
        x = model(x)
        generated[i] = x
    assert np.abs(generated - X[102:122]).max() < 0.2


def test_delays_stand_on_either_side() -> None:
    delays = []
    for node in (reservoir(), twin(reservoir())):
        models = Input() >> 3 >> node >> Ridge(), node >> 2 >> Ridge(), Input() >> (4 >> node)
        delays.append([sorted(delay for _, delay, _ in model.edges) for model in models])
    assert delays[0] == delays[1]
    assert [each[-1] for each in delays[0]] == [3, 2, 4]


def test_an_objective_of_a_search() -> None:
    """Tutorial 4: models made and fitted in a loop, scored by its measures."""
    series = mackey_glass(400)
    x_train, x_test, y_train, y_test = to_forecasting(series, forecast=5, test_size=100)
    for seed in range(3):
        node = reservoir(random_state=seed, leak_rate=0.3, spectral_radius=1.25)
        predictions = (node >> Ridge(ridge=1e-6)).fit(x_train, y_train).run(x_test)
        assert nrmse(y_test, predictions, norm_value=np.ptp(x_train)) < 0.05
        assert rsquare(y_test, predictions) > 0.95


@pytest.fixture
def vowels(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Series of twelve coefficients of nine classes, in the shape of japanese_vowels()."""
    assert callable(japanese_vowels)  # it is downloaded, and stood in for here
    rng = np.random.default_rng(0)
    means = rng.standard_normal((9, 12))

    def series(n: int) -> tuple[list[Any], list[Any]]:
        labels = rng.integers(0, 9, n)
        x = [means[k] + 0.5 * rng.standard_normal((rng.integers(7, 20), 12)) for k in labels]
        return x, [np.eye(9)[[k]] for k in labels]

    return *series(120), *series(60)


def test_classification_of_series(vowels: Any) -> None:
    """Tutorial 5: sequence to sequence, then the last state of each series."""
    x_train, y_train, x_test, y_test = vowels
    source, node = Input(), reservoir(spectral_radius=0.05)
    model = [source >> node, source] >> Ridge(ridge=1e-1)
    repeated = [np.repeat(y, len(x), 0) for x, y in zip(x_train, y_train, strict=True)]
    predicted = model.fit(x_train, repeated, warmup=2).run(x_test)
    labels = [out.mean(0).argmax() for out in predicted]
    assert np.mean(labels == np.concatenate(y_test).argmax(1)) > 0.9
    node, readout = reservoir(leak_rate=0.1), Ridge(ridge=1e-6)
    last = []
    for x in x_train:
        states = node.run(x)
        node.reset()
        last.append(states[-1, np.newaxis])
    readout.fit(last, y_train)
    labels = []
    for x in x_test:
        states = node.run(x)
        node.reset()
        labels.append(readout.run(states[-1, np.newaxis]).argmax())
    assert np.mean(labels == np.concatenate(y_test).argmax(1)) > 0.9


@pytest.mark.filterwarnings("ignore:A column-vector y")
def test_nodes_of_scikit_learn(vowels: Any) -> None:
    """Tutorial 6: regressors and classifiers of scikit-learn behind our reservoir."""
    x_train, x_test, y_train, y_test = to_forecasting(X, forecast=3, test_size=40)
    model = reservoir() >> ScikitLearnNode(model=Lasso, alpha=1e-2, max_iter=9000, name="Lasso")
    model.fit(x_train, y_train, warmup=10)
    assert rsquare(y_test, model.run(x_test)) > 0.8
    x, y, *_ = vowels
    labels = [np.full((len(s), 1), t.argmax()) for s, t in zip(x, y, strict=True)]
    model = reservoir() >> ScikitLearnNode(model=RidgeClassifier, name="RidgeClassifier")
    found = model.fit(x, labels).run(x)
    assert np.mean([(a == b).mean() for a, b in zip(found, labels, strict=True)]) > 0.8


def test_our_readout_stands_in_several_places_of_a_graph() -> None:
    rows, labels = np.eye(4)[np.arange(101) % 4], (np.arange(101) + 1) % 4
    source, node, readout = Input(), reservoir(), RidgeReadout()
    model = source >> node >> readout & source >> readout
    assert len(model.nodes) == 3
    out = model.fit(rows, labels[:, None].astype(float)).run(rows)
    assert (out.argmax(1) == labels).mean() > 0.95


def test_outputs_of_a_reservoir_in_a_model() -> None:
    node = reservoir()
    model = ESN(reservoir=node, readout=Ridge(1e-6, name="y"), return_reservoir_activity=True)
    out = model.fit(TRAIN, TARGET).run(X)
    assert out["reservoir"].shape == (150, 60)
    model = node >> Output(name="states")
    assert model.run(X).shape == (150, 60)
