"""Recurrent and input weights, topologies, exact spectral radii, leak rates."""

import warnings
from collections.abc import Callable
from typing import Any

import lazy_loader
import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
import scipy.sparse.linalg
import scipy.special

from esnlm.utils.arrays import Array, Floats, check_pointers

reservoirpy = lazy_loader.load("reservoirpy")  # slow to import

_DENSE_BELOW = 300
_SUBSPACES = ((4, 200), (8, 400))
_RESIDUAL = 1e-8
# Difference of a unit's inputs and outputs, as a share of both; powers of two that change little.
_BALANCE, _BALANCING_STEPS, _ALIKE = 0.05, 100, 8
_LEAK_FORMS = (
    "leak_rate must be a number, an array, ('uniform', low, high) or ('inverse_gamma', alpha),"
    " got {!r}"
)


def recurrent_weights(
    topology: str,
    n_units: int,
    degree: int,
    spectral_radius: float,
    dtype: np.dtype[Any],
    rng: np.random.Generator,
) -> scipy.sparse.csr_matrix:
    """Draw weights of one topology, rescaled: W (n_units, n_units) CSR of dtype.

    The scale factor is rounded to nine digits, so that the last bits of a linear algebra library do
    not reach the weights.
    """
    if topology == "delay_line":
        chain = np.full(n_units - 1, spectral_radius)
        weights = reservoirpy.mat_gen.line(n_units, n_units, weights=chain)
    else:
        weights = _TOPOLOGIES[topology](n_units, min(degree, n_units), rng)
        radius = radius_of(topology, weights)
        if radius > 0:
            weights = weights * float(f"{spectral_radius / radius:.8e}")
        elif spectral_radius and topology == "bernoulli":
            warnings.warn(
                "the connections that were drawn make no cycle: the spectral radius is 0, and not"
                f" {spectral_radius:g}, and states forget. Raise degree, got {degree}, or take"
                " another random_state",
                stacklevel=3,
            )
    stored = scipy.sparse.csr_matrix(weights, dtype=dtype)
    stored.sum_duplicates()
    stored.sort_indices()
    return stored


def radius_of(topology: str, weights: Any) -> float:
    """Return the spectral radius of the weights of a topology."""
    if topology == "orthogonal":  # eigenvalues of one modulus, on which ARPACK does not converge
        return float(np.linalg.norm(weights.data.astype(np.float64)) / np.sqrt(weights.shape[0]))
    return measured_spectral_radius(weights)


def measured_spectral_radius(weights: Any) -> float:
    """Return the largest modulus of the eigenvalues of a sparse or dense matrix, to about 1e-9.

    Small matrices by LAPACK; larger ones by ARPACK (implicitly restarted Arnoldi) with several
    wanted eigenvalues, since a single wanted one stops early on random matrices, and a subspace
    that is widened until the residual of the leading pair is small.

    >>> round(measured_spectral_radius(np.diag([0.5, -2.0, 1.0])), 9)
    2.0
    """
    matrix = scipy.sparse.csr_matrix(weights, dtype=np.float64, copy=True)
    matrix.eliminate_zeros()
    # Rounding makes what is not normal, such as weights without any cycle, look like it had
    # large eigenvalues. Those of a matrix are those of its strongly connected parts.
    _, parts = scipy.sparse.csgraph.connected_components(matrix, connection="strong")
    order = np.argsort(parts, kind="stable")
    matrix, sizes = matrix[order][:, order], np.bincount(parts)
    ends = np.cumsum(sizes)
    radius = float(np.abs(matrix.diagonal()[ends[sizes == 1] - 1]).max(initial=0.0))
    for size, end in zip(sizes[sizes > 1].tolist(), ends[sizes > 1].tolist(), strict=True):
        radius = max(radius, _radius_of_part(matrix[end - size : end, end - size : end]))
    return radius


def _radius_of_part(matrix: scipy.sparse.csr_matrix) -> float:
    """Return the radius where each of two units or more drives every other, if indirectly."""
    n = matrix.shape[0]
    if matrix.nnz == n:  # a cycle: roots of the product of its weights; ARPACK may not end
        return float(np.exp(np.log(np.abs(matrix.data)).mean()))
    matrix = _balanced(matrix)
    if n < _DENSE_BELOW:
        return float(np.abs(np.linalg.eigvals(matrix.toarray())).max())
    start = np.random.default_rng(n).standard_normal(n)
    most = min(300, max(10, n * n // 6400))  # what dense eigenvalues take
    for k, subspace in _SUBSPACES:
        if subspace > n:
            break
        try:
            values, vectors = scipy.sparse.linalg.eigs(
                matrix, k=k, ncv=subspace, v0=start, tol=1e-9, maxiter=most
            )
        except scipy.sparse.linalg.ArpackError:
            continue
        first = int(np.abs(values).argmax())
        value, vector = values[first], vectors[:, first]
        residual = np.linalg.norm(matrix @ vector - value * vector)
        if residual <= _RESIDUAL * abs(value):
            return float(abs(value))
    return float(np.abs(np.linalg.eigvals(matrix.toarray())).max())


def _balanced(matrix: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
    """Return a matrix of the same eigenvalues, each unit's inputs about as large as its outputs.

    Units are scaled by powers of two, which rounds nothing, where it takes large ones: a delay line
    with weaker connections back is far from normal, and rounding would more than double its radius.
    LAPACK goes from unit to unit, and stops early. This is Newton's method on the sum of squares,
    which is convex in the logarithms of the scales.
    """
    n = matrix.shape[0]
    row, column, values = scipy.sparse.find(matrix)
    squares = 2 * np.log(np.abs(values))
    squares -= squares.max()
    scales = np.zeros(n)

    def sizes(scales: Floats) -> Floats:
        with np.errstate(over="ignore"):  # too long a step
            return np.exp(squares + 2 * (scales[column] - scales[row]))

    for _ in range(_BALANCING_STEPS):
        size = sizes(scales)
        outputs, inputs = np.bincount(column, size, n), np.bincount(row, size, n)
        both = outputs + inputs
        if (np.abs(outputs - inputs) <= _BALANCE * both).all():
            break
        between = scipy.sparse.csr_matrix((size, (row, column)), shape=(n, n))
        curvature = scipy.sparse.diags(both) - between - between.T
        inverse = scipy.sparse.diags(1 / np.maximum(both, 1e-300))
        step, _ = scipy.sparse.linalg.cg(
            curvature, (inputs - outputs) / 2, rtol=1e-3, maxiter=n, M=inverse
        )
        rate = 1.0
        while rate > 1e-6 and not sizes(scales + rate * step).sum() <= size.sum():
            rate /= 2
        scales += rate * step
    scales = np.round(scales / np.log(2))
    if not np.ptp(scales) > _ALIKE:  # as of all weights that are drawn
        return matrix
    shift = np.ldexp(values, (scales[column] - scales[row]).astype(int))
    return scipy.sparse.csr_matrix((shift, (row, column)), shape=(n, n))


def input_weights(
    topology: str,
    n_units: int,
    n_inputs: int,
    scaling: float,
    input_degree: int | None,
    dtype: np.dtype[Any],
    rng: np.random.Generator,
) -> Any:
    """Draw Gaussian W_in (n_units, n_inputs): dense, or CSC where an input drives a few units.

    These are ``input_degree`` units, or so many on average in the topology bernoulli.

    The dense matrix lies in memory input by input, so that a token's column is contiguous.
    """
    if input_degree is None:
        dense = rng.standard_normal((n_inputs, n_units), dtype=np.float64)
        dense *= scaling
        return dense.astype(dtype).T
    if topology == "bernoulli":
        columns = _bernoulli(n_inputs, n_units, min(input_degree, n_units), rng)
        return (scaling * columns.T).astype(dtype)
    options = {"degree": min(input_degree, n_units), "direction": "out", "scale": scaling}
    matrix = reservoirpy.mat_gen.normal(n_units, n_inputs, seed=rng, **options)
    return scipy.sparse.csc_matrix(matrix, dtype=dtype)


def check_shapes(n_units: int, W: Any, W_in: Any, bias: Array, leak_rate: Array) -> None:
    """Raise ValueError unless all shapes and indices fit: compiled code reads without checks."""
    parts: tuple[tuple[str, Any, tuple[int, ...]], ...] = (
        ("W", W, (n_units, n_units)),
        ("W_in", W_in, (n_units, *W_in.shape[-1:])),
        ("bias", bias, (n_units,)),
        ("leak_rate", leak_rate, (n_units,)),
    )
    for name, array, shape in parts:
        if array.shape != shape:
            wanted = f"({n_units}, n_inputs)" if name == "W_in" else shape
            raise ValueError(
                f"{name} of a reservoir of {n_units} units must have shape {wanted},"
                f" got {array.shape}"
            )
        if scipy.sparse.issparse(array):
            sizes = shape if array.format == "csr" else shape[::-1]
            check_pointers(name, array.indptr, array.indices, array.data, *sizes)
        if array.dtype != bias.dtype or array.dtype not in (np.float32, np.float64):
            raise ValueError(
                f"weights, bias and leak rates must be of one type, float32 or float64, got {name}"
                f" of {array.dtype} and bias of {bias.dtype}"
            )
    given_leak_rates(leak_rate, n_units, bias.dtype)


def leak_rates(
    leak_rate: Any, n_units: int, dtype: np.dtype[Any], rng: np.random.Generator
) -> Array:
    """Return the leak rate of every unit (n_units,) in (0, 1]: given, or drawn from a named law."""
    if not (isinstance(leak_rate, tuple | list) and leak_rate and isinstance(leak_rate[0], str)):
        return given_leak_rates(leak_rate, n_units, dtype)
    name, parameters = leak_rate[0], [float(value) for value in leak_rate[1:]]
    if name == "uniform" and len(parameters) == 2:
        low, high = parameters
        if not 0 <= low <= high <= 1:
            raise ValueError(
                "leak_rate ('uniform', low, high) needs 0 <= low <= high <= 1,"
                f" got {low:g}, {high:g}"
            )
        # high - u (high - low) with u in [0, 1): the low end, which may be 0, is never drawn.
        rates = high - rng.random(n_units) * (high - low)
    elif name == "inverse_gamma" and len(parameters) == 1:
        (alpha,) = parameters
        if not alpha > 0:
            raise ValueError(f"leak_rate ('inverse_gamma', alpha) needs alpha > 0, got {alpha:g}")
        rates = rng.permutation(-np.expm1(-inverse_gamma_decay(alpha, n_units)))
    else:
        raise ValueError(_LEAK_FORMS.format(leak_rate))
    return given_leak_rates(rates, n_units, dtype)


def given_leak_rates(leak_rate: Any, n_units: int, dtype: np.dtype[Any]) -> Array:
    """Return the leak rate of every unit (n_units,) in (0, 1], from a number or an array."""
    try:
        rates = np.asarray(leak_rate).astype(np.float64, casting="same_kind")
    except (TypeError, ValueError):
        raise ValueError(_LEAK_FORMS.format(leak_rate)) from None
    if rates.shape not in ((), (n_units,)):
        raise ValueError(
            f"leak_rate must be a number or have shape ({n_units},), got shape {rates.shape}"
        )
    rates = np.broadcast_to(rates, (n_units,))
    bad = rates[~((rates > 0) & (rates <= 1))]
    if bad.size:
        raise ValueError(f"leak_rate must lie in (0, 1], got {bad[0]:g}")
    # A rate below the type's resolution next to one would never move the state.
    return np.maximum(rates, np.finfo(dtype).eps).astype(dtype)


def inverse_gamma_decay(alpha: float, n_units: int) -> Floats:
    """Return 1 / T at the quantiles (i + 1/2) / n_units of T ~ InverseGamma(alpha, 1), falling.

    1 / T ~ Gamma(alpha, 1), here at the quantiles from the top.
    """
    quantiles = (np.arange(n_units) + 0.5) / n_units
    return scipy.special.gammaincinv(alpha, 1 - quantiles)


def _random(n_units: int, degree: int, rng: np.random.Generator) -> Any:
    return reservoirpy.mat_gen.normal(n_units, n_units, degree=degree, direction="in", seed=rng)


def _bernoulli(n_rows: int, n_columns: int, degree: int, rng: np.random.Generator) -> Any:
    """Return a CSR matrix whose entries are nonzero with probability degree / n_columns each.

    Gaps between successes are geometric, so that no mask of all entries is in memory.
    """
    share, size = degree / n_columns, n_rows * n_columns
    places = np.empty(0, dtype=np.int64)
    while not len(places) or places[-1] < size:
        gaps = rng.geometric(share, size=int(1.1 * share * size) + 16)
        last = places[-1] if len(places) else -1
        places = np.append(places, last + np.cumsum(gaps))
    rows, columns = np.divmod(places[places < size], n_columns)
    values = rng.standard_normal(len(rows))
    return scipy.sparse.csr_matrix((values, (rows, columns)), shape=(n_rows, n_columns))


def _small_world(n_units: int, degree: int, rng: np.random.Generator) -> Any:
    if n_units < 3:
        raise ValueError(f"topology 'small_world' needs n_units of at least 3, got {n_units}")
    neighbours = max(2, min(degree, n_units - 1) // 2 * 2)
    return reservoirpy.mat_gen.small_world(
        n_units, n_units, nb_close_neighbours=neighbours, seed=rng
    )


def _orthogonal(n_units: int, degree: int, rng: np.random.Generator) -> Any:
    # Rounded, so that another library's last bits do not reach the weights.
    if n_units == 1:  # which older releases of scipy refuse
        return scipy.sparse.csr_matrix(rng.choice([-1.0, 1.0], (1, 1)))
    matrix = reservoirpy.mat_gen.orthogonal(n_units, n_units, seed=rng)
    return scipy.sparse.csr_matrix(np.round(matrix, 12))


def _offsets(n_units: int, degree: int, rng: np.random.Generator) -> Any:
    """Return W[i, (i + s_k) mod n] = w[k, i] for distinct random offsets s_k."""
    offsets = np.sort(rng.choice(n_units, size=degree, replace=False))
    units = np.arange(n_units)[:, None]
    columns = (units + offsets) % n_units
    values = rng.standard_normal((degree, n_units)).T
    rows = np.broadcast_to(units, columns.shape)
    return scipy.sparse.csr_matrix(
        (values.ravel(), (rows.ravel(), columns.ravel())), shape=(n_units, n_units)
    )


_TOPOLOGIES: dict[str, Callable[[int, int, np.random.Generator], Any]] = {
    "random": _random,
    "bernoulli": lambda n_units, degree, rng: _bernoulli(n_units, n_units, degree, rng),
    "offsets": _offsets,
    "ring": lambda n_units, degree, rng: reservoirpy.mat_gen.ring(n_units, n_units),
    "small_world": _small_world,
    "orthogonal": _orthogonal,
    "diagonal": lambda n_units, degree, rng: scipy.sparse.identity(n_units, format="csr"),
}
TOPOLOGIES: tuple[str, ...] = (*_TOPOLOGIES, "delay_line")
#: Topologies that a degree says something about.
WITH_DEGREE = ("random", "bernoulli", "offsets", "small_world")
