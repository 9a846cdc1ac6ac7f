"""Types of arrays in signatures, and checks of arrays from outside: type, shape and range."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Of whatever type.
Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
Floats32: TypeAlias = NDArray[np.float32]
#: Of numpy's type of an index: codes, classes, rows.
Ints: TypeAlias = NDArray[np.intp]
Ints64: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
#: Of any type of integer.
Tokens: TypeAlias = NDArray[np.integer[Any]]
#: Arrays by name.
Arrays: TypeAlias = dict[str, Array]

_KINDS = {"f": "float32 or float64", "i": "integers", "b": "booleans"}


def check_arrays(arrays: Mapping[str, Array], layouts: Mapping[str, str], **lengths: int) -> None:
    """Raise ValueError unless each array present has the kind and shape of its layout.

    A layout is a kind, f(loat), i(nteger) or b(ool), and letters for the lengths of the axes. A
    letter that is not among ``lengths`` stands for one length, whichever, in all arrays; V+1 for
    one more.

    >>> layouts = {"coef": "f V P", "table": "f V+1"}
    >>> check_arrays({"coef": np.ones((3, 2)), "table": np.ones(4)}, layouts, V=3)
    >>> check_arrays({"coef": np.ones((2, 2)), "table": np.ones(4)}, layouts, V=3)
    Traceback (most recent call last):
    ValueError: coef must have shape (V, P) with V = 3, P = 2, got (2, 2)
    """
    sizes = dict(lengths)
    for name, layout in layouts.items():
        if name not in arrays:
            continue
        array = arrays[name]
        kind, *axes = layout.split()
        if array.dtype.kind.replace("u", "i") != kind or array.dtype == np.float16:
            raise ValueError(f"{name} must be {_KINDS[kind]}, got {array.dtype}")
        for axis, length in zip(axes, array.shape, strict=False):
            letter, _, more = axis.partition("+")
            sizes.setdefault(letter, length - int(more or 0))
        shape = tuple(sizes[axis[0]] + int(axis[2:] or 0) for axis in axes if axis[0] in sizes)
        if array.shape != shape:
            text = ", ".join(f"{axis[0]} = {sizes[axis[0]]}" for axis in axes if axis[0] in sizes)
            names = ", ".join(axes) + ("," if len(axes) == 1 else "")
            raise ValueError(f"{name} must have shape ({names}) with {text}, got {array.shape}")


def check_pointers(name: str, indptr: Any, indices: Any, data: Any, n_rows: int, n: int) -> None:
    """Raise ValueError unless they are the parts of a compressed sparse matrix.

    ``indptr`` (n_rows + 1,), ``indices`` and ``data`` (n_entries,): n is the length of a row.
    Compiled code, scipy's among it, reads what they point to without checks.
    """
    check_arrays({"indptr": indptr, "indices": indices}, {"indptr": "i R+1", "indices": "i E"},
                 R=n_rows, E=data.size)  # fmt: skip
    if indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        raise ValueError(
            f"{name}.indptr must rise from 0 to the {len(indices)} entries, got {indptr[0]} to"
            f" {indptr[-1]}"
        )
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < n:
        raise ValueError(
            f"{name}.indices must lie in [0, {n}), got {indices.min()} to {indices.max()}"
        )


def checked_tokens(tokens: ArrayLike, n_tokens: int | None) -> Array:
    """Return tokens (T,) as they are; ValueError unless they are integers in [0, n_tokens)."""
    tokens = np.asarray(tokens)
    if tokens.dtype.kind in "US":
        raise ValueError(
            f"tokens must be integers, got {tokens.dtype}: encode text with a tokenizer"
        )
    if tokens.ndim != 1:
        got = f"shape {tokens.shape}" if tokens.ndim else type(tokens[()]).__name__
        if hasattr(tokens[()], "toarray"):
            got += ": a sparse matrix of vectors is given as X.toarray()"
        elif tokens.ndim == 3:
            got += ": sequences of vectors are given as list(X)"
        raise ValueError(f"tokens must be a 1-D array of integers, got {got}")
    if not len(tokens):
        return tokens.astype(np.int64)
    if tokens.dtype.kind not in "iu":
        raise ValueError(
            f"tokens must be integers, got {tokens.dtype}; encode text with a tokenizer,"
            " or give vectors as a 2-D array"
        )
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or (n_tokens is not None and high >= n_tokens):
        bound = "" if n_tokens is None else f" and below {n_tokens}, the size of the vocabulary"
        raise ValueError(f"tokens must be at least 0{bound}, got {low if low < 0 else high}")
    return tokens


def checked_positions(starts: ArrayLike) -> Ints64:
    """Return positions (n,) where sequences begin; ValueError unless they are integers."""
    at = np.asarray(starts)
    if at.ndim != 1 or (len(at) and at.dtype.kind not in "iu"):
        raise ValueError(
            f"starts must be a 1-D array of integers, got {at.dtype} of shape {at.shape}"
        )
    return at.astype(np.int64)  # what is added to narrow integers would wrap around


def are_sequences(X: Any) -> bool:
    """Return whether X is a list of arrays, a sequence each; ValueError for lists of many lengths.

    A list of lists of one length is a matrix.

    >>> are_sequences([np.arange(2), np.arange(3)]), are_sequences([[0.5, 1], [2, 3]])
    (True, False)
    """
    if not isinstance(X, list | tuple) or not len(X):
        return False
    if all(getattr(each, "ndim", 0) for each in X):  # of pandas, too
        return True
    lengths = {len(each) if isinstance(each, list | tuple | np.ndarray) else -1 for each in X}
    if len(lengths) > 1:
        raise ValueError(
            "X must be tokens, a matrix, or a list of arrays, one a sequence, got a list of lists"
            f" of lengths {sorted(lengths)[:3]}"
        )
    return False


def counted_inputs(X: Any) -> int:
    """Return the columns of vectors (T, n_inputs), or the largest of tokens (T,) and one."""
    if X is None:
        raise ValueError("fit needs tokens, input vectors or n_inputs, got none of them")
    if are_sequences(X):
        return max(map(counted_inputs, X))
    inputs = np.asarray(X)
    if inputs.ndim == 2:
        return int(inputs.shape[1])
    tokens = checked_tokens(inputs, None)
    if not len(tokens):
        raise ValueError("X must hold at least one token to count inputs, got none; give n_inputs")
    return int(tokens.max()) + 1


def checked_vectors(name: str, values: ArrayLike, n_columns: int) -> Array:
    """Return vectors (n, n_columns) as they are; ValueError unless they are finite."""
    vectors = np.asarray(values)
    if vectors.ndim != 2 or vectors.shape[1] != n_columns:
        raise ValueError(
            f"{name} must have {n_columns} columns, one for each input, got shape {vectors.shape}"
        )
    if vectors.dtype.kind not in "biufOUS":
        raise ValueError(f"{name} must hold real numbers, got {vectors.dtype}")
    try:
        numbers = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold real numbers: {error}") from error
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} must hold finite numbers, got NaN or infinity")
    return vectors
