"""Checks of what callers give, with messages that say what was got and what was expected."""

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def check_count(name: str, value: Any, least: int = 1) -> None:
    """Raise ValueError unless ``value`` is an integer of at least ``least``.

    Examples
    --------
    >>> check_count("n_units", 2.5)
    Traceback (most recent call last):
    ValueError: n_units must be an integer of at least 1, got 2.5
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def check_finite(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a finite number.

    Examples
    --------
    >>> check_finite("tol", "0.1")
    Traceback (most recent call last):
    ValueError: tol must be a finite number, got '0.1'
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not np.isfinite(float(value)):
        raise ValueError(f"{name} must be a finite number, got {value!r}")


def check_flag(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is True or False: any text would count as true.

    Examples
    --------
    >>> check_flag("bf16", "no")
    Traceback (most recent call last):
    ValueError: bf16 must be true or false, got 'no'
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")


def check_seed(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is None or an integer of at least 0.

    Examples
    --------
    >>> check_seed("random_state", -1)
    Traceback (most recent call last):
    ValueError: random_state must be None or an integer of at least 0, got -1
    """
    if value is not None and (not isinstance(value, int | np.integer) or value < 0):
        raise ValueError(f"{name} must be None or an integer of at least 0, got {value!r}")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def checked_tokens(tokens: ArrayLike, n_tokens: int | None) -> NDArray[Any]:
    """Tokens (T,) as they are, once they are integers in [0, n_tokens).

    Raises
    ------
    ValueError
        For another shape or type, or a token out of range.
    """
    tokens = np.asarray(tokens)
    if tokens.ndim != 1:
        raise ValueError(f"tokens must be a 1-D array of integers, got shape {tokens.shape}")
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


def counted_inputs(X: ArrayLike | None) -> int:
    """Columns of vectors (T, n_inputs), or the largest of tokens (T,) and one."""
    if X is None:
        raise ValueError("fit needs tokens, input vectors or n_inputs, got none of them")
    inputs = np.asarray(X)
    if inputs.ndim == 2:
        return int(inputs.shape[1])
    tokens = checked_tokens(inputs, None)
    if not len(tokens):
        raise ValueError("X must hold at least one token to count inputs, got none; give n_inputs")
    return int(tokens.max()) + 1


def checked_vectors(name: str, values: ArrayLike, n_columns: int) -> NDArray[Any]:
    """Vectors (n, n_columns) as they are, once they are finite."""
    vectors = np.asarray(values)
    if vectors.ndim != 2 or vectors.shape[1] != n_columns:
        raise ValueError(
            f"{name} must have {n_columns} columns, one for each input, got shape {vectors.shape}"
        )
    if not np.isfinite(np.asarray(vectors, dtype=np.float64)).all():
        raise ValueError(f"{name} must hold finite numbers, got NaN or infinity")
    return vectors
