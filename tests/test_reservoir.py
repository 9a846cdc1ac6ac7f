import itertools
import json

import numpy as np
import pandas as pd
import pytest
import reservoirpy.nodes
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from esnlm import LanguageModel, Reservoir, RidgeReadout
from esnlm.reservoir.recurrence import cyclic_offsets
from esnlm.reservoir.weights import TOPOLOGIES, WITH_DEGREE
from esnlm.utils.validation import DivergenceError

FUNCTIONS = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0), "identity": lambda x: x}
V = 7


def small(topology="random", dtype="float64", n_units=37, **settings):
    degree = {"degree": 5} if topology in WITH_DEGREE else {}
    settings = {"random_state": 1, "bias_scaling": 0.3} | degree | settings
    return Reservoir(n_units, topology=topology, dtype=dtype, **settings).fit(n_inputs=V)


def text(length=200, seed=0):
    return np.random.default_rng(seed).integers(0, V, length)


def by_hand(reservoir, inputs, starts=(), state=None):
    """The equation of the docstring, in float64."""
    W = reservoir.W_.toarray().astype(np.float64)
    a, f = reservoir.leak_rate_.astype(np.float64), FUNCTIONS[reservoir.activation]
    h = np.zeros(reservoir.n_units) if state is None else state
    W_in = reservoir.W_in_.toarray() if hasattr(reservoir.W_in_, "toarray") else reservoir.W_in_
    states = []
    for t, u in enumerate(inputs):
        if t in starts:
            h = np.zeros(reservoir.n_units)
        drive = (W_in[:, u] if np.ndim(u) == 0 else W_in @ u) + reservoir.bias_
        h = (1 - a) * h + a * f(W @ h + drive)
        states.append(h)
    return np.array(states)


@pytest.mark.parametrize("n_units", [5, 4095, 4096, 4097, 8192, 10_000])
def test_cyclic_connections_are_recognised_in_matrices_of_any_size(n_units):
    units, shifts = np.arange(n_units)[:, None], np.array([0, 2, 3])
    columns = np.sort((units + shifts) % n_units, axis=1).ravel()
    ends = np.arange(0, 3 * n_units + 1, 3)
    W = scipy.sparse.csr_matrix((np.ones(3 * n_units), columns, ends), (n_units, n_units))
    assert cyclic_offsets(W).tolist() == shifts.tolist()
    for row in {1, n_units // 2, n_units - 1}:
        other = W.copy()
        free = set(range(n_units)) - set(W[[row]].indices.tolist())
        other.indices[3 * row] = min(free)
        other.sort_indices()
        assert cyclic_offsets(other) is None


def gathered(blocks):
    """Blocks sorted by position: states, next tokens, positions."""
    copies = [(states.copy(), y, positions) for states, y, positions in blocks]
    states, y, positions = (np.concatenate(part) for part in zip(*copies, strict=True))
    order = np.argsort(positions)
    return states[order], y[order], positions[order]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_transform_follows_the_equation(topology, dtype):
    reservoir = small(topology, dtype, leak_rate=("uniform", 0, 1))
    states = reservoir.transform(text())
    assert states.dtype == dtype
    assert states.shape == (200, 37)
    tolerance = 2e-6 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(states, by_hand(reservoir, text()), atol=tolerance)


@pytest.mark.parametrize("topology", ["random", "offsets"])
@pytest.mark.parametrize("activation", ["relu", "identity"])
def test_other_activations(topology, activation):
    reservoir = small(topology, activation=activation, spectral_radius=0.5, leak_rate=0.7)
    expected = by_hand(reservoir, text())
    np.testing.assert_allclose(reservoir.transform(text()), expected, atol=1e-12)
    states, _, positions = gathered(reservoir.harvest(text(), return_positions=True, warmup=50))
    np.testing.assert_allclose(states, expected[positions], atol=1e-8)


@pytest.mark.parametrize("n_units", [1, 3, 16, 64, 129])
@pytest.mark.parametrize("topology", ["random", "offsets", "ring"])
def test_any_number_of_units(topology, n_units):
    reservoir = small(topology, n_units=n_units)
    np.testing.assert_allclose(
        reservoir.transform(text(20)), by_hand(reservoir, text(20)), atol=1e-12
    )
    states, _, positions = gathered(
        reservoir.harvest(text(20), starts=[5, 11], return_positions=True)
    )
    expected = by_hand(reservoir, text(20), starts=(5, 11))
    np.testing.assert_allclose(states, expected[positions], atol=1e-12)


@pytest.mark.parametrize("leak", ["number", "array"])
def test_states_of_reservoirpy(leak):
    rates = 0.3 if leak == "number" else np.random.default_rng(0).uniform(0.1, 1, 50)
    node = reservoirpy.nodes.Reservoir(
        50, lr=rates, sr=0.9, bias=reservoirpy.mat_gen.normal, seed=2
    )
    one_hot = np.eye(V)[text()]
    expected = node.run(one_hot)
    ours = Reservoir.from_reservoirpy(node)
    np.testing.assert_allclose(ours.transform(text()), expected, atol=1e-6)
    np.testing.assert_allclose(ours.transform(one_hot), expected, atol=1e-6)


def test_vectors_features_and_sparse_inputs():
    rng = np.random.default_rng(0)
    reservoir = Reservoir(30, degree=4, dtype="float64", random_state=0).fit(n_inputs=3)
    vectors = rng.standard_normal((50, 3))
    np.testing.assert_allclose(
        reservoir.transform(vectors), by_hand(reservoir, vectors), atol=1e-12
    )
    features = rng.standard_normal((V, 3))
    expected = by_hand(reservoir, features[text()])
    np.testing.assert_allclose(reservoir.transform(text(), features=features), expected, atol=1e-12)
    states, _, positions = gathered(
        reservoir.harvest(text(), features=features, n_streams=1, return_positions=True)
    )
    np.testing.assert_allclose(states, expected[positions], atol=1e-12)
    sparse = small(input_degree=4)
    np.testing.assert_allclose(sparse.transform(text()), by_hand(sparse, text()), atol=1e-12)


def test_drives_too_large_for_a_table_are_made_block_by_block(monkeypatch):
    expected = small(input_degree=4).transform(text())
    monkeypatch.setattr("esnlm.reservoir.recurrence._TABLE_BYTES", 0)
    np.testing.assert_allclose(small(input_degree=4).transform(text()), expected, atol=1e-13)
    np.testing.assert_allclose(small().transform(text()), by_hand(small(), text()), atol=1e-12)


@pytest.mark.parametrize("topology", ["random", "offsets"])
def test_one_step_and_a_given_state(topology):
    reservoir = small(topology)
    states = reservoir.transform(text())
    half = reservoir.transform(text()[120:], initial_state=states[119])
    np.testing.assert_allclose(half, states[120:], atol=1e-13)
    np.testing.assert_allclose(reservoir.advance(states[9], text()[10]), states[10], atol=1e-13)
    later = gathered(
        reservoir.harvest(
            text()[120:], initial_state=states[119], n_streams=1, return_positions=True
        )
    )[0]
    np.testing.assert_allclose(later, states[120:-1], atol=1e-13)


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("topology", ["random", "offsets"])
def test_a_given_state_is_that_of_the_first_sequence_alone(topology, first):
    """Also where that is one token, which no pair is read of."""
    reservoir, tokens = small(topology), text()[:40]
    given_state = reservoir.transform(text())[-1]
    states = gathered(
        reservoir.harvest(
            tokens, starts=[0, first], initial_state=given_state, return_positions=True
        )
    )[0]
    parts = [reservoir.transform(tokens[:first], initial_state=given_state)[:-1]]
    parts.append(reservoir.transform(tokens[first:])[:-1])
    np.testing.assert_allclose(states, np.concatenate(parts), atol=1e-13)


@settings(max_examples=25, deadline=None)
@given(
    data=st.data(),
    length=st.integers(1, 90),
    n_streams=st.integers(1, 40),
    block_size=st.integers(1, 300),
    washout=st.integers(0, 4),
    threads=st.integers(1, 3),
    topology=st.sampled_from(["random", "offsets"]),
)
def test_streams_of_sequences_are_exact(
    data, length, n_streams, block_size, washout, threads, topology
):
    starts = sorted(data.draw(st.sets(st.integers(0, length - 1), max_size=12)))
    reservoir, tokens = small(topology), text(length, seed=length)
    blocks = [
        (states.copy(), y, positions)
        for states, y, positions in reservoir.harvest(
            tokens,
            starts=starts,
            n_streams=n_streams,
            block_size=block_size,
            washout=washout,
            n_threads=threads,
            return_positions=True,
        )
    ]
    bounds = sorted({0, *starts, length})
    expected = [t for a, b in itertools.pairwise(bounds) for t in range(a + washout, b - 1)]
    if not expected:
        assert not blocks
        return
    assert max(len(y) for _, y, _ in blocks) <= max(block_size, n_streams)
    states, y, positions = gathered(blocks)
    np.testing.assert_array_equal(positions, expected)
    np.testing.assert_array_equal(y, tokens[positions + 1])
    exact = by_hand(reservoir, tokens, starts=starts)
    np.testing.assert_allclose(states, exact[positions], atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("topology", ["random", "offsets"])
def test_bitwise_the_same_for_any_threads_streams_and_blocks(topology, dtype):
    reservoir, starts = small(topology, dtype), np.arange(0, 2000, 13)
    runs = [
        gathered(
            reservoir.harvest(
                text(2000),
                starts=starts,
                n_threads=t,
                n_streams=s,
                block_size=b,
                return_positions=True,
            )
        )[0]
        for t, s, b in ((1, 64, None), (2, 64, None), (2, 7, 100), (1, 1, 50))
    ]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0], other)


def test_one_long_sequence_within_tolerance():
    reservoir = small("random", "float32", n_units=200, degree=16, leak_rate=0.8)
    tokens = text(20000)
    exact = reservoir.transform(tokens)
    states, y, positions = gathered(reservoir.harvest(tokens, return_positions=True))
    np.testing.assert_array_equal(positions, np.arange(19999))
    np.testing.assert_array_equal(y, tokens[1:])
    np.testing.assert_allclose(states, exact[:-1], atol=1e-5)


def test_blocks_are_copies_unless_their_memory_is_to_be_used_again():
    reservoir, tokens = small(), text(900)
    options = {"starts": [0, 300], "n_streams": 1, "block_size": 100, "return_positions": True}
    blocks = list(reservoir.harvest(tokens, **options))
    assert len(blocks) > 5
    states, _, positions = map(np.concatenate, zip(*blocks, strict=True))
    parts = reservoir.transform(tokens[:300])[:-1], reservoir.transform(tokens[300:])[:-1]
    exact = np.concatenate(parts)
    np.testing.assert_allclose(states[np.argsort(positions)], exact, atol=1e-12)
    first, second, *_ = (each[0] for each in reservoir.harvest(tokens, **options, reuse=True))
    assert np.shares_memory(first, second)


def test_the_washout_of_the_reservoir_is_that_of_its_harvest_alone():
    tokens, starts = text(300), [0, 100, 130]
    plain, washed = small(), small(washout=20)
    options = {"starts": starts, "return_positions": True}
    expected = gathered(plain.harvest(tokens, washout=20, **options))
    for got, want in zip(gathered(washed.harvest(tokens, **options)), expected, strict=True):
        np.testing.assert_array_equal(got, want)
    assert sum(len(y) for _, y in washed.harvest(tokens, starts=starts, washout=0)) == 297
    np.testing.assert_array_equal(washed.transform(tokens), plain.transform(tokens))
    with pytest.raises(ValueError, match="washout must be an integer of at least 0, got -1"):
        small(washout=-1)


@pytest.mark.parametrize("reset", ["sentence", "never"])
def test_a_language_model_trains_and_scores_on_every_token_whatever_the_washout(reset):
    docs = [text(50, seed=seed) for seed in range(9)]
    models = [
        LanguageModel(small(washout=washout), RidgeReadout(), reset=reset).fit(docs)
        for washout in (0, 30)
    ]
    plain, washed = (np.concatenate(model.log_likelihood(docs)) for model in models)
    np.testing.assert_allclose(plain, washed, rtol=1e-12)  # alignment in memory rounds


def test_washout_of_one_long_sequence():
    counted = sum(len(y) for _, y in small().harvest(text(5000), washout=100, warmup=50))
    assert counted == 4999 - 100


def test_memory_maps_and_other_integer_types(tmp_path):
    reservoir = small()
    tokens = np.memmap(tmp_path / "tokens", dtype=np.uint16, mode="w+", shape=(300,))
    tokens[:] = text(300)
    ((states, y),) = reservoir.harvest(tokens, n_streams=1)
    np.testing.assert_allclose(states, by_hand(reservoir, text(300))[:-1], atol=1e-12)
    assert y.dtype == np.int64


@pytest.mark.parametrize("tokens", [[], [3]])
def test_too_few_tokens_for_a_pair(tokens):
    reservoir = small()
    assert list(reservoir.harvest(np.array(tokens, dtype=int))) == []
    assert list(reservoir.harvest(np.array(tokens, dtype=int), starts=[])) == []
    assert reservoir.transform(np.array(tokens, dtype=int)).shape == (len(tokens), 37)


@pytest.mark.parametrize("topology", ["random", "offsets"])
def test_diverging_states_are_named(topology):
    reservoir = small(topology, "float32", activation="relu", spectral_radius=3.0)
    message = "diverge with spectral_radius=3.0, activation='relu' and leak_rate=1.0: lower"
    with np.errstate(all="ignore"):
        with pytest.raises(DivergenceError, match=message):
            reservoir.transform(text(500))
        with pytest.raises(DivergenceError, match=message):
            list(reservoir.harvest(text(5000)))


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([0, V], f"below {V}, the size of the vocabulary, got {V}"),
        ([0, -1], "tokens must be at least 0 .* got -1"),
        ([0.5, 1.0], "tokens must be integers, got float64"),
        ([0.0, np.nan], "tokens must be integers, got float64"),
        (["a", "b"], "tokens must be integers, got <U1"),
        (np.zeros((2, 2, 2), int), r"1-D array of integers, got shape \(2, 2, 2\)"),
        (3, "1-D array of integers, got int64"),
        (scipy.sparse.csr_matrix(np.eye(V)), r"got csr_matrix: a sparse .* X.toarray\(\)"),
    ],
)
def test_bad_tokens(tokens, message):
    with pytest.raises(ValueError, match=message):
        small().transform(tokens)
    with pytest.raises(ValueError, match=message):
        small().harvest(tokens)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda r: r.transform(np.zeros((4, V + 1))),
            rf"X must have {V} columns.* got shape \(4, {V + 1}\)",
        ),
        (lambda r: r.transform(np.full((4, V), np.nan)), "finite numbers, got NaN"),
        (
            lambda r: small(dtype="float32").transform(np.full((1, V), 1e300)),
            r"too large for float32.* 1e\+300",
        ),
        (lambda r: r.transform(np.full((4, V), 1j)), "must hold real numbers, got complex128"),
        (lambda r: r.transform(np.zeros((4, V), "M8[s]")), r"real numbers, got datetime64\[s\]"),
        (lambda r: r.transform(np.full((4, V), pd.NA)), "must hold real numbers: .*NAType"),
        (lambda r: r.transform(np.zeros((2, 4, V))), r"shape \(2, 4, 7\): .* as list\(X\)"),
        (lambda r: r.transform([0], initial_state=[1.0]), r"shape \(37,\), got \(1,\)"),
        (lambda r: r.transform([0], initial_state=np.full(37, np.nan)), "finite numbers, got NaN"),
        (lambda r: r.transform([0], features=np.zeros((3, 2))), r"7 columns.* got shape \(3, 2\)"),
        (lambda r: r.transform([0], features=np.full((3, V), np.inf)), "finite numbers, got NaN"),
        (
            lambda _: Reservoir(5).transform([0], features=np.zeros(3)),
            r"columns.* got shape \(3,\)",
        ),
        (lambda r: r.harvest([0, 1], starts=[1, 1]), "starts must increase strictly"),
        (lambda r: r.harvest([0, 1], starts=[5]), r"lie in \[0, 2\), got \[5\]"),
        (lambda r: r.harvest([0, 1], starts=[0.5]), "1-D array of integers, got float64"),
        (lambda r: r.harvest([0, 1], n_streams=0), "n_streams must be an integer of at least 1"),
        (lambda r: r.harvest([0, 1], washout=-1), "washout must be an integer of at least 0"),
        (lambda r: list(r.harvest([0, 1], n_threads=0)), "n_threads must be an integer"),
    ],
)
def test_bad_calls(call, message):
    with pytest.raises(ValueError, match=message):
        call(small())


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_units": 0}, "n_units must be an integer of at least 1, got 0"),
        ({"n_units": 2.5}, "n_units must be an integer of at least 1, got 2.5"),
        ({"n_units": 10**10}, "n_units must be at most 2147483647, got 10000000000"),
        ({"degree": 0}, "degree must be an integer of at least 1"),
        ({"random_state": -1}, "random_state must be None or an integer of at least 0, got -1"),
        ({"spectral_radius": -1}, r"spectral_radius must lie in \[0, 1e\+30\], got -1"),
        ({"spectral_radius": 1e300}, r"spectral_radius must lie in \[0, 1e\+30\], got 1e\+300"),
        ({"spectral_radius": np.nan}, "spectral_radius must be a finite number"),
        ({"input_scaling": "big"}, "input_scaling must be a finite number, got 'big'"),
        ({"activation": "sine"}, "activation must be one of tanh, relu, identity, got 'sine'"),
        ({"topology": "star"}, "topology must be one of random, bernoulli, offsets, .* got 'star'"),
        ({"dtype": ">f4"}, "dtype must be one of float32, float64, got '[<>]f4'"),
        ({"dtype": "int32"}, "dtype must be one of float32, float64, got 'int32'"),
        ({"leak_rate": 1.7}, r"leak_rate must lie in \(0, 1\], got 1.7"),
        ({"leak_rate": ("gamma", 0.5)}, "leak_rate must be .*, got .*gamma"),
        ({"leak_rate": ("normal", 0.2, 0.5)}, "leak_rate must be .*, got .*normal"),
        ({"leak_rate": ("weibull", 0.2, 0.5)}, "leak_rate must be .*, got .*weibull"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        Reservoir(**({"n_units": 10} | parameters)).fit(n_inputs=3)


def test_fit_counts_inputs_and_first_use_fits():
    assert Reservoir(10).fit([0, 4, 2]).n_inputs_ == 5
    assert Reservoir(10).fit(np.zeros((3, 6))).n_inputs_ == 6
    assert Reservoir(10).fit_transform([0, 1]).shape == (2, 10)
    with pytest.raises(ValueError, match="tokens, input vectors or n_inputs, got none"):
        Reservoir(10).fit()
    with pytest.raises(ValueError, match="at least one token"):
        Reservoir(10).fit([])
    for X in (np.zeros((3, 2)), [np.zeros((3, 3)), np.zeros((4, 2))]):
        with pytest.raises(ValueError, match="X must have 3 columns, one for each input, got"):
            Reservoir(10).fit(X, n_inputs=3)


def test_clone_and_seeds():
    reservoir = small(leak_rate=("uniform", 0.2, 1.0), random_state=5)
    again = clone(reservoir).fit(n_inputs=V)
    np.testing.assert_array_equal(reservoir.transform(text()), again.transform(text()))
    other = clone(reservoir).set_params(random_state=6).fit(n_inputs=V)
    assert (other.transform(text()) != again.transform(text())).any()
    # Another bias leaves the other weights alone.
    biased = clone(reservoir).set_params(bias_scaling=2.0).fit(n_inputs=V)
    np.testing.assert_array_equal(biased.W_.toarray(), reservoir.W_.toarray())
    np.testing.assert_array_equal(biased.W_in_, reservoir.W_in_)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("bias", lambda a: a[:-1], r"bias of a reservoir of 37 units .* got \(36,\)"),
        ("leak_rate", lambda a: np.append(a, a), r"leak_rate .* shape \(37,\), got \(74,\)"),
        ("W_in_columns", lambda a: a[:, :-1], r"W_in .* shape \(37, n_inputs\), got \(36, 7\)"),
        ("W.indices", lambda a: a + 30, "W.indices must lie in .0, 37."),
        ("W.indices", lambda a: a - 1, "W.indices must lie in .0, 37."),
        ("W.indptr", lambda a: a + 1, "W.indptr must rise from 0"),
        ("W.indptr", lambda a: np.r_[0, a[-1], a[2:]], "W.indptr must rise from 0"),
        ("W.indptr", lambda a: np.r_[a[:-1], -1], "W.indptr must rise from 0"),
        ("W.indptr", lambda a: np.r_[a[:-1], 0], "W.indptr must rise from 0"),
        ("W.indptr", lambda a: np.r_[a[:-1], -(2**31)], "W.indptr must rise from 0"),
        ("W.indptr", lambda a: a[:-1], "indptr must have shape"),
        ("W_in.indices", lambda a: a + 30, "W_in.indices must lie in .0, 37."),
        ("W_in.indptr", lambda a: np.r_[a[:-1], -1], "W_in.indptr must rise from 0"),
    ],
)
def test_weights_that_do_not_fit_are_refused_before_any_use(part, change, message, monkeypatch):
    reservoir = small(input_degree=3 if part.startswith("W_in.") else None)
    arrays = reservoir.state_dict()

    def used(*_):
        raise AssertionError("unchecked weights were used")

    for name in ("radius_of", "measured_spectral_radius"):
        monkeypatch.setattr(f"esnlm.reservoir.weights.{name}", used)
    monkeypatch.setattr("esnlm.reservoir.reservoir.recurrence_of", used)
    with pytest.raises(ValueError, match=message):
        clone(reservoir).load_state_dict(arrays | {part: change(arrays[part])})


def test_weights_that_are_refused_leave_those_that_were():
    reservoir = Reservoir(5, degree=2, random_state=0).fit(n_inputs=3)
    states, before = reservoir.transform([0, 1, 2]), reservoir.state_dict()
    nan, wide = np.full(5, np.nan), np.ones((5, 3))
    for inputs, bias, message in ((wide, nan, "got NaN"), (wide[:4], 0.0, "must have shape")):
        with pytest.raises(ValueError, match=message):
            reservoir.set_weights(np.eye(5), inputs, bias, 1.0)
        np.testing.assert_equal(reservoir.state_dict(), before)
        np.testing.assert_array_equal(reservoir.transform([0, 1, 2]), states)
    new = Reservoir(5)
    with pytest.raises(ValueError, match="got NaN"):
        new.set_weights(np.eye(5), wide, nan, 1.0)
    assert new.transform([0, 1]).shape == (2, 5)


def test_given_weights_of_another_size_are_refused():
    other = small(n_units=20)
    with pytest.raises(ValueError, match=r"W of a reservoir of 37 units .* got \(20, 20\)"):
        Reservoir(37).set_weights(other.W_, other.W_in_, np.zeros(37), np.ones(37))


@pytest.mark.parametrize(
    ("inputs", "leak_rate", "message"),
    [
        (
            np.ones(3),
            1.0,
            r"W_in of a reservoir of 3 units must have shape \(3, n_inputs\), got \(3,\)",
        ),
        (np.ones((2, 3)), 1.0, r"must have shape \(3, n_inputs\), got \(2, 3\)"),
        (5.0, 1.0, r"must have shape \(3, n_inputs\), got \(\)"),
        (np.ones((3, 2)), 1.7, r"leak_rate must lie in \(0, 1\], got 1.7"),
        (np.ones((3, 2)), None, "leak_rate must be a number, an array, .* got None"),
        (np.ones((3, 2)), np.ones(4), r"leak_rate must be a number or have shape \(3,\)"),
    ],
)
def test_given_weights_that_make_no_reservoir_are_refused(inputs, leak_rate, message):
    with pytest.raises(ValueError, match=message):
        Reservoir(3).set_weights(np.eye(3), inputs, np.zeros(3), leak_rate)


@pytest.mark.parametrize("settings", [{}, {"input_degree": 3}, {"topology": "offsets"}])
def test_arrays_there_and_back(settings):
    reservoir = small(**settings)
    params = json.loads(json.dumps(reservoir.get_params()))
    arrays = reservoir.state_dict()
    for array in arrays.values():
        array.flags.writeable = False
    again = Reservoir(**params).load_state_dict(arrays)
    assert again.spectral_radius_ == pytest.approx(reservoir.spectral_radius_)
    np.testing.assert_array_equal(again.transform(text()), reservoir.transform(text()))


@pytest.mark.parametrize(
    "call",
    [
        lambda reservoir: reservoir.advance(np.zeros(4), 1),
        lambda reservoir: reservoir.state_dict(),
    ],
)
def test_what_needs_weights_says_so_without_them(call):
    with pytest.raises(NotFittedError, match="Reservoir instance is not fitted"):
        call(Reservoir(4))


def test_a_dtype_that_numpy_does_not_know_is_named():
    with pytest.raises(ValueError, match="dtype must be one of float32, float64, got 'bogus'"):
        Reservoir(4, dtype="bogus").fit(n_inputs=2)


def test_text_in_the_place_of_tokens_is_named():
    with pytest.raises(ValueError, match="encode text with a tokenizer"):
        list(small().harvest("the dog"))


def test_tokens_that_change_while_they_are_read_are_refused():
    reservoir = Reservoir(10, random_state=0).fit(n_inputs=5)
    tokens = np.zeros(10_000, dtype=np.int64)
    blocks = reservoir.harvest(tokens, block_size=100)
    tokens[:] = 10**9
    with pytest.raises(ValueError, match="changed while they were read"):
        for _ in blocks:
            pass


def test_states_as_a_data_frame():
    vectors = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), index=range(5, 35))
    plain = Reservoir(6, degree=2, random_state=0).fit_transform(vectors)
    reservoir = Reservoir(6, degree=2, random_state=0).set_output(transform="pandas")
    table = reservoir.fit_transform(vectors)
    assert table.columns.tolist() == reservoir.get_feature_names_out().tolist()
    assert table.columns[0] == "reservoir0"
    assert table.index.tolist() == vectors.index.tolist()
    assert reservoir.n_features_in_ == 2
    np.testing.assert_array_equal(table.to_numpy(), plain)
    regression = make_pipeline(reservoir, Ridge()).fit(vectors, vectors[0])
    assert regression[-1].feature_names_in_.tolist() == table.columns.tolist()
    assert not hasattr(Reservoir(6), "n_features_in_")


def test_columns_in_another_order_are_refused():
    vectors = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=["a", "b"])
    reservoir = Reservoir(6, degree=2, random_state=0)
    states = reservoir.fit_transform(vectors)
    with pytest.raises(ValueError, match="feature names should match"):
        reservoir.transform(vectors[["b", "a"]])
    np.testing.assert_array_equal(reservoir.transform(vectors.to_numpy()), states)
    assert not hasattr(reservoir.fit(vectors.to_numpy()), "feature_names_in_")


@pytest.mark.parametrize("topology", ["bernoulli", "random"])
def test_narrow_integers_of_numpy_do_not_overflow(topology):
    options = {"topology": topology, "random_state": 0}
    narrow = Reservoir(np.int8(100), degree=np.int8(90), input_degree=np.int8(50), **options)
    wide = Reservoir(100, degree=90, input_degree=50, **options)
    np.testing.assert_array_equal(narrow.fit_transform([0, 1]), wide.fit_transform([0, 1]))


def test_sequences_of_unequal_length():
    rng = np.random.default_rng(0)
    for sequences in (
        [rng.normal(size=(n, 2)) for n in (5, 1, 9)],
        [rng.integers(0, 7, size=n) for n in (5, 1, 9)],
        [np.array([0, 3]), np.array([6, 1])],
    ):
        reservoir = Reservoir(8, degree=2, random_state=0)
        found = reservoir.fit_transform(sequences)
        assert reservoir.n_inputs_ == (2 if sequences[0].ndim == 2 else 7)
        frame = pd.DataFrame if sequences[0].ndim == 2 else pd.Series
        frames = clone(reservoir).fit_transform([*map(frame, sequences)])
        for sequence, *both in zip(sequences, found, frames, strict=True):
            for states in both:
                np.testing.assert_array_equal(states, reservoir.transform(sequence))
    with pytest.raises(ValueError, match=r"a list of arrays, one a sequence, got .* \[1, 2\]"):
        reservoir.transform([[0, 1], [2]])
    with pytest.raises(ValueError, match="transform each by itself"):
        reservoir.set_output(transform="pandas").transform(sequences)


@pytest.mark.parametrize("sparse", [False, True])
def test_set_weights_are_copies_of_finite_numbers(sparse):
    kind = scipy.sparse.csr_matrix if sparse else np.asarray
    W, W_in = kind(np.eye(3)), kind(np.ones((3, 2)))
    for name, parts in {"W": (W * np.nan, W_in, 0), "W_in": (W, W_in * np.inf, 0)}.items():
        with pytest.raises(ValueError, match=f"{name} must hold finite numbers"):
            Reservoir(3, dtype="float64").set_weights(*parts, 1)
    with pytest.raises(ValueError, match="W must hold real numbers, got complex ones"):
        Reservoir(3).set_weights(W * 1j, W_in, 0, 1)
    with pytest.raises(ValueError, match=r"bias must be a number or have shape \(3,\), got \(2,\)"):
        Reservoir(3).set_weights(W, W_in, np.zeros(2), 1)
    ours = Reservoir(3, dtype="float64").set_weights(W, W_in, np.zeros(3), 1)
    states = ours.transform([0, 1, 0])
    for part in (W.data, W_in.data) if sparse else (W, W_in):
        part[:] = 0
    np.testing.assert_array_equal(ours.transform([0, 1, 0]), states)


def test_what_is_set_after_fit_waits_for_the_next(tmp_path):
    ours = Reservoir(9, activation="identity", leak_rate=0.5, random_state=0).fit(n_inputs=3)
    tokens = [0, 2, 1, 1, 0]
    before = ours.transform(tokens)
    ours.set_params(n_units=4, activation="relu", leak_rate=1.0, topology="ring", dtype="float64")
    np.testing.assert_array_equal(ours.transform(tokens), before)
    assert len(list(ours.harvest(tokens, initial_state=np.ones(9)))) == 1
    np.testing.assert_array_equal(ours(np.eye(3)[0]), before[0])
    ours.save(tmp_path / "reservoir")
    loaded = Reservoir.load(tmp_path / "reservoir")
    np.testing.assert_array_equal(loaded.transform(tokens), before)
    assert (loaded.n_units, loaded.activation, loaded.leak_rate) == (9, "identity", 0.5)
    assert ours.fit_transform(tokens).shape == (5, 4)


def test_a_model_folder_says_that_weights_were_set(tmp_path):
    docs = [np.array([0, 1, 2, 1, 0])] * 5
    drawn = Reservoir(9, random_state=0).fit(n_inputs=3)
    parts = 2 * drawn.W_, drawn.W_in_, drawn.bias_, drawn.leak_rate_
    model = LanguageModel(Reservoir(9).set_weights(*parts), RidgeReadout(alpha=1.0), n_tokens=3)
    model.fit(docs).save(tmp_path / "model")
    loaded = LanguageModel.load(tmp_path / "model")
    assert clone(loaded).fit(docs).score(docs) == model.score(docs)
    with pytest.raises(ValueError, match=r"radius=0\.5 has no effect, as weights were set"):
        clone(loaded).set_params(reservoir__spectral_radius=0.5).fit(docs)
    LanguageModel(drawn, RidgeReadout(alpha=1.0), n_tokens=3).fit(docs).save(tmp_path / "drawn")
    assert clone(LanguageModel.load(tmp_path / "drawn").reservoir).__dict__.get("W_") is None


def test_weights_without_a_cycle_are_told_to_have_no_radius():
    """No factor gives them the radius that was asked for."""
    reservoir = Reservoir(50, topology="bernoulli", degree=1, random_state=0)
    with pytest.warns(UserWarning, match=r"no cycle: the spectral radius is 0, and not 0\.97"):
        reservoir.fit(n_inputs=3)
    assert reservoir.spectral_radius_ == 0
    reservoir.set_params(spectral_radius=0).fit(n_inputs=3)
