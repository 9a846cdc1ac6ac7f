"""Types of arrays in signatures; docstrings give shapes, and say which numbers they hold."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
