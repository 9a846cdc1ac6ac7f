"""Compiled functions: arrays in, arrays out; they import numpy, numba and platformdirs alone."""

try:
    import numba as _numba  # noqa: F401
except ValueError as error:
    raise ImportError(
        f"numba refuses a variable of the environment, such as NUMBA_NUM_THREADS ({error}): correct"
        " or unset it"
    ) from error
