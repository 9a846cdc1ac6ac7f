"""Arrays from outside, checked by name before anything reads them: type and shape."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_KINDS = {"f": "float32 or float64", "i": "integers", "b": "booleans"}


def check_arrays(
    arrays: Mapping[str, NDArray[Any]], layouts: Mapping[str, str], **lengths: int
) -> None:
    """Raise ValueError unless each array that is there is of the kind and shape of its layout.

    A layout is a kind, f(loat), i(nteger) or b(ool), and letters for the lengths of the axes. A
    letter that is not among ``lengths`` stands for one length, whichever, in all arrays; V+1 for
    one more.

    >>> layouts = {"coef": "f V P", "table": "f V+1"}
    >>> check_arrays({"coef": np.ones((3, 2)), "table": np.ones(4)}, layouts, V=3)
    >>> check_arrays({"coef": np.ones((2, 2)), "table": np.ones(4)}, layouts, V=3)
    Traceback (most recent call last):
    ValueError: coef must have shape (V, P) with V = 3, P = 2, got (2, 2)
    """
    known = dict(lengths)
    for name, layout in layouts.items():
        if name not in arrays:
            continue
        array = arrays[name]
        kind, *axes = layout.split()
        found = "i" if array.dtype.kind == "u" else array.dtype.kind
        if found != kind or array.dtype == np.float16:
            raise ValueError(f"{name} must be {_KINDS[kind]}, got {array.dtype}")
        for axis, length in zip(axes, array.shape, strict=False):
            letter, _, more = axis.partition("+")
            known.setdefault(letter, length - int(more or 0))
        wanted = tuple(known[axis[0]] + int(axis[2:] or 0) for axis in axes if axis[0] in known)
        if array.shape != wanted:
            sizes = ", ".join(f"{axis[0]} = {known[axis[0]]}" for axis in axes if axis[0] in known)
            shape = ", ".join(axes) + ("," if len(axes) == 1 else "")
            raise ValueError(f"{name} must have shape ({shape}) with {sizes}, got {array.shape}")


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
