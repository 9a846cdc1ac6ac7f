import numpy as np
import pytest
import scipy.sparse
from scipy import stats

from esnlm.reservoir import weights

TOPOLOGIES = [name for name in weights.TOPOLOGIES if name != "delay_line"]


def made(topology, n_units=60, degree=8, radius=0.97, dtype="float64", seed=3):
    rng = np.random.default_rng(seed)
    matrix = weights.recurrent_weights(topology, n_units, degree, radius, np.dtype(dtype), rng)
    return matrix, weights.radius_of(topology, matrix)


def dense_radius(matrix):
    return np.abs(np.linalg.eigvals(matrix.toarray().astype(np.float64))).max()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_units", [60, 310])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_radius_is_exact(topology, n_units, dtype):
    matrix, radius = made(topology, n_units, dtype=dtype)
    assert matrix.dtype == dtype
    assert dense_radius(matrix) == pytest.approx(0.97, rel=1e-6)
    assert radius == pytest.approx(dense_radius(matrix), rel=1e-6)


@pytest.mark.parametrize("topology", weights.TOPOLOGIES)
def test_a_radius_of_zero_leaves_no_weight(topology):
    matrix, radius = made(topology, radius=0.0)
    assert radius == 0.0
    assert not matrix.toarray().any()


def test_delay_line_has_the_radius_as_weight_and_no_eigenvalue():
    matrix, radius = made("delay_line", 5, radius=0.5)
    assert radius == 0.0
    np.testing.assert_array_equal(matrix.toarray(), np.diag(np.full(4, 0.5), -1))


@pytest.mark.parametrize("radius", [0.0, 0.5])
def test_diagonal_units_are_driven_by_themselves_alone(radius):
    matrix, measured = made("diagonal", 5, radius=radius)
    assert measured == radius
    np.testing.assert_array_equal(matrix.toarray(), radius * np.eye(5))
    assert matrix.nnz == 5  # so that it costs as much as a degree of 1, with any radius


@pytest.mark.parametrize("n_units", [1, 2, 3])
@pytest.mark.parametrize("topology", weights.TOPOLOGIES)
def test_the_smallest_reservoirs(topology, n_units):
    if topology == "small_world" and n_units < 3:
        with pytest.raises(ValueError, match="n_units of at least 3, got"):
            made(topology, n_units)
        return
    matrix, _ = made(topology, n_units)
    assert matrix.shape == (n_units, n_units)
    assert np.isfinite(matrix.toarray()).all()


def test_offsets_are_distinct_and_cyclic():
    matrix, _ = made("offsets", 40, degree=7)
    rows, columns = matrix.nonzero()
    assert len(rows) == 40 * 7
    assert len(set((columns - rows) % 40)) == 7


def test_degree_is_the_number_of_entries_of_a_row():
    for topology in ("random", "offsets"):
        matrix, _ = made(topology, 50, degree=9)
        assert (np.diff(matrix.indptr) == 9).all()
        full, _ = made(topology, 20, degree=64)
        assert (np.diff(full.indptr) == 20).all()


def test_entries_of_bernoulli_are_there_with_equal_probability():
    """As many in a row, in a column and in all as binomial laws have it."""
    n, degree = 400, 5
    matrix, _ = made("bernoulli", n, degree)
    inputs = weights.input_weights(
        "bernoulli", n, 900, 2.0, degree, np.dtype("float64"), np.random.default_rng(0)
    )
    assert inputs.format == "csc"
    assert inputs.data.std() == pytest.approx(2.0, rel=0.05)
    for mask in (matrix.toarray() != 0, inputs.toarray() != 0):
        assert mask.sum() == pytest.approx(mask.size * degree / n, abs=4 * mask.sum() ** 0.5)
        for axis in (0, 1):
            counts = mask.sum(axis=axis)
            law = stats.binom(mask.shape[axis], degree / n)
            assert counts.var() == pytest.approx(law.var(), rel=0.4)
            assert 0 < (counts == 0).mean() + 0.02 < law.pmf(0) + 0.06
    full, _ = made("bernoulli", 20, degree=64)
    assert full.nnz == 400


@pytest.mark.parametrize(
    ("n_units", "degree", "expected"),
    [(30, 1, 2), (30, 2, 2), (30, 8, 8), (30, 9, 8), (10, 64, 8), (11, 64, 10)],
)
def test_a_small_world_has_an_even_number_of_entries_a_row_on_average(n_units, degree, expected):
    matrix, _ = made("small_world", n_units, degree)
    assert np.count_nonzero(matrix.toarray()) == n_units * expected
    assert not matrix.diagonal().any()


def test_same_seed_same_weights():
    for topology in TOPOLOGIES:
        first, second = made(topology)[0], made(topology)[0]
        np.testing.assert_array_equal(first.toarray(), second.toarray())
        if topology not in ("ring", "diagonal"):  # which draw nothing
            assert (first.toarray() != made(topology, seed=4)[0].toarray()).any()


@pytest.mark.parametrize("seed", range(2))
def test_arnoldi_agrees_with_dense_eigenvalues(seed):
    rng = np.random.default_rng(seed)
    matrix = scipy.sparse.random_array((400, 400), density=0.05, rng=rng)
    matrix.data -= 0.5
    expected = np.abs(np.linalg.eigvals(matrix.toarray())).max()
    assert weights.measured_spectral_radius(matrix) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_radius_of_units_that_one_unit_drives_each(seed):
    """Where ARPACK would iterate for ever, if they lie on cycles."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(300, 400))
    driven = rng.random(n) < rng.choice([0.5, 1.0])
    matrix = np.zeros((n, n))
    source = rng.permutation(n) if seed % 2 else rng.integers(0, n, n)
    matrix[driven, source[driven]] = rng.standard_normal(driven.sum())
    exact = np.abs(np.linalg.eigvals(matrix)).max()
    radius = weights.measured_spectral_radius(matrix)
    if exact > 0.2:
        assert radius == pytest.approx(exact, rel=1e-6)
    else:  # LAPACK finds the zeros of long chains to a small power of its precision
        assert radius <= exact


def test_a_radius_is_measured_without_touching_the_matrix():
    for n in (20, 400):
        matrix = scipy.sparse.csr_matrix(np.eye(n))
        matrix.data[:3] = 0
        assert weights.measured_spectral_radius(matrix) == 1
        assert matrix.nnz == n


def test_a_reservoir_of_degree_one_is_drawn():
    W, radius = made("offsets", 500, 1, 0.5)
    assert radius == pytest.approx(0.5, rel=1e-7)
    assert np.diff(W.indptr).tolist() == [1] * 500


def test_radius_of_a_nilpotent_or_zero_matrix():
    assert weights.measured_spectral_radius(np.zeros((4, 4))) == 0.0
    assert weights.measured_spectral_radius(scipy.sparse.csr_matrix((500, 500))) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_radius_of_large_weights(seed):
    matrix, radius = made("random", 2000, degree=32, seed=seed)
    assert radius == pytest.approx(0.97, rel=1e-6)
    assert dense_radius(matrix) == pytest.approx(0.97, rel=1e-6)


def leak(value, n_units=1000, dtype="float32"):
    return weights.leak_rates(value, n_units, np.dtype(dtype), np.random.default_rng(0))


def test_constant_and_given_leak_rates():
    np.testing.assert_array_equal(leak(0.25, 4), np.full(4, 0.25, dtype=np.float32))
    np.testing.assert_array_equal(leak([0.5, 1.0], 2), np.array([0.5, 1.0], dtype=np.float32))


def test_uniform_leak_rates_lie_in_their_range():
    rates = leak(("uniform", 0.2, 0.6), 5000, "float64")
    assert 0.2 < rates.min() < 0.21
    assert 0.59 < rates.max() <= 0.6
    assert rates.mean() == pytest.approx(0.4, abs=0.01)


@pytest.mark.parametrize("alpha", [0.56, 1.5])
def test_inverse_gamma_timescales(alpha):
    rates = leak(("inverse_gamma", alpha), 2000, "float64")
    times = -1 / np.log1p(-rates[rates < 1])
    assert stats.kstest(times, stats.invgamma(alpha).cdf).statistic < 0.01
    narrow = leak(("inverse_gamma", 0.05), 2000, "float32")
    assert (narrow > 0).all()
    assert (narrow <= 1).all()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.7, r"leak_rate must lie in \(0, 1\], got 1.7"),
        (0.0, r"leak_rate must lie in \(0, 1\], got 0"),
        (np.nan, "got nan"),
        ([0.5, 0.5, 0.5], r"shape \(1000,\), got shape \(3,\)"),
        (("uniform", 0.5, 0.1), "0 <= low <= high <= 1"),
        (("inverse_gamma", -1), "alpha > 0, got -1"),
        (("normal", 1), "must be a number, an array"),
        ("fast", "leak_rate must be"),
    ],
)
def test_bad_leak_rates(value, message):
    with pytest.raises(ValueError, match=message):
        leak(value)


def test_input_weights_dense_and_sparse():
    rng = np.random.default_rng(0)
    dense = weights.input_weights("random", 500, 40, 2.0, None, np.dtype("float32"), rng)
    assert dense.shape == (500, 40)
    assert dense.dtype == np.float32
    assert dense.flags.f_contiguous
    assert dense.std() == pytest.approx(2.0, rel=0.02)
    sparse = weights.input_weights("random", 500, 40, 1.0, 12, np.dtype("float64"), rng)
    assert sparse.format == "csc"
    assert sparse.shape == (500, 40)
    assert (np.diff(sparse.indptr) == 12).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_radius_of_weights_that_are_not_normal_is_that_of_their_parts(seed: int) -> None:
    """Without a cycle it is 0; of small parts that drive each other that of the largest."""
    rng = np.random.default_rng(seed)
    acyclic = np.tril(rng.uniform(-1, 1, (400, 400)), -1)
    order = rng.permutation(400)
    assert weights.measured_spectral_radius(acyclic[order][:, order]) == 0.0
    parts = acyclic.copy()
    expected = 0.0
    for first in range(0, 400, 40):
        block = rng.normal(size=(40, 40)) / 8
        parts[first : first + 40, first : first + 40] = block
        expected = max(expected, np.abs(np.linalg.eigvals(block)).max())
    assert weights.measured_spectral_radius(parts[order][:, order]) == pytest.approx(
        expected, rel=1e-9
    )


@pytest.mark.parametrize("n", [60, 340])
def test_what_a_unit_keeps_of_itself_is_no_eigenvalue_of_the_part_it_belongs_to(n: int) -> None:
    """Of two units 0.9 and -0.9 on the diagonal, but 0.1 is the radius; a chain lies between."""
    pair = np.array([[0.9, -0.8], [1.0, -0.9]])  # eigenvalues ±0.1
    matrix = np.eye(n, k=-1)
    matrix[:2, :2] = matrix[-2:, -2:] = pair
    assert weights.measured_spectral_radius(matrix) == pytest.approx(0.1, rel=1e-9)


@pytest.mark.parametrize("n", [100, 320])
def test_the_radius_of_a_delay_line_with_weaker_connections_back(n: int) -> None:
    """Tridiagonal Toeplitz: 2 √(r b) cos(π / (n + 1)) (Rodan & Tiňo 2011); LAPACK finds 0.678."""
    matrix = 0.9 * np.eye(n, k=-1) + 0.05 * np.eye(n, k=1)
    exact = 2 * np.sqrt(0.9 * 0.05) * np.cos(np.pi / (n + 1))
    assert weights.measured_spectral_radius(matrix) == pytest.approx(exact, rel=1e-9)
