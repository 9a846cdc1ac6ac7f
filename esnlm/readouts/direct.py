"""Direct connections from the last tokens to the components of a readout."""

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

_FIRST_SQUARES = 1e-8


class DirectConnections:
    """Trained vectors of the last tokens, one table for each of the last ``n_direct`` places.

    ``z += Σ_k C_k[token read k steps ago]``: the direct connections from input to output of an
    echo state network (Jaeger 2001, section 2.1), here with tapped delays and of the rank of the
    components that they are added to, as in a log-bilinear model (Mnih & Hinton 2007).

    Trained by AdaGrad (Duchi et al. 2011), each weight by its own sum of squared gradients:
    what a rare token says of a component is learned as fast as what a frequent one says.

    Parameters
    ----------
    n_direct, n_tokens, n_components : int

    Attributes
    ----------
    coef : ndarray (n_direct, n_tokens + 1, n_components) float32
        The last row of each table is that of no token.
    squares : ndarray of the same shape
        Sums of squared gradients.

    Examples
    --------
    >>> direct = DirectConnections(1, 3, 2)
    >>> Z = np.zeros((2, 2), dtype=np.float32)
    >>> direct.step(np.array([[0], [-1]]), np.array([[1, 0], [0, -1]], dtype=np.float32), 0.1)
    >>> direct.add_to(Z, np.array([[0], [-1]]))
    >>> Z
    array([[-0.1,  0. ],
           [ 0. ,  0.1]], dtype=float32)
    """

    def __init__(self, n_direct: int, n_tokens: int, n_components: int) -> None:
        shape = (n_direct, n_tokens + 1, n_components)
        self.coef = np.zeros(shape, dtype=np.float32)
        self.squares = np.full(shape, _FIRST_SQUARES, dtype=np.float32)

    def add_to(self, Z: NDArray[Any], last: NDArray[np.integer[Any]]) -> None:
        """Add to components Z (n, P) what the last tokens (n, n_direct) say, in place."""
        add_direct(self.coef, Z, last)

    def step(self, last: NDArray[np.integer[Any]], gradient: NDArray[Any], rate: float) -> None:
        """A step down the gradient (n, P) of the summed loss with respect to components."""
        for k in range(len(self.coef)):
            rows, places = np.unique(last[:, k] % self.coef.shape[1], return_inverse=True)
            n = len(gradient)
            chosen = (np.ones(n, dtype=np.float32), (places, np.arange(n)))
            sums = scipy.sparse.csr_matrix(chosen, (len(rows), n)) @ gradient
            squares = self.squares[k, rows]
            squares += sums * sums
            self.squares[k, rows] = squares
            np.sqrt(squares, out=squares)
            sums /= squares
            sums *= np.float32(rate)
            self.coef[k, rows] -= sums


def add_direct(coef: NDArray[Any], Z: NDArray[Any], last: NDArray[np.integer[Any]]) -> None:
    """Add rows of tables (n_direct, n_tokens + 1, P) to Z (n, P), in place."""
    for k, table in enumerate(coef):
        Z += table[last[:, k]]
