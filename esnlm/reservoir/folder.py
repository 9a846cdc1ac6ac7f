"""The weights of a reservoir as arrays by name, and as a folder."""

from collections.abc import Iterable
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix
from sklearn.utils.validation import check_is_fitted

from esnlm.storage.atomic import folder_aside
from esnlm.storage.descriptions import describe, rebuild
from esnlm.storage.model_folder import (
    RESERVOIR,
    WEIGHTS,
    check_replaceable,
    read_files,
    restoring,
    write_files,
)
from esnlm.utils import __version__
from esnlm.utils.arrays import Arrays, check_pointers
from esnlm.utils.state_dict import Stateful
from esnlm.utils.validation import check_parameters

_CLASSES = {"Reservoir": "esnlm.reservoir.reservoir"}


class SavedWeights(Stateful):
    """What copies, saves and loads a `Reservoir`, as part of a model or by itself."""

    n_units: int
    topology: str
    _node: Any
    W_: Any
    _complete: Any
    _has_set_weights: bool

    def __sklearn_clone__(self) -> Any:
        """Return a copy without drawn weights, but with those that were set."""
        if not self._has_set_weights:
            return super().__sklearn_clone__()  # type: ignore[misc]
        clone = copy(self)
        clone._node = None  # of reservoirpy, with a state of its own
        return clone

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``weights.safetensors``.

        The folder appears whole or not at all; a reservoir that was there is replaced. Raises
        FileExistsError where it is a file, or a folder with anything but a reservoir in it.

        >>> from tempfile import TemporaryDirectory
        >>> from esnlm import Reservoir
        >>> reservoir = Reservoir(20, random_state=0).fit(n_inputs=3)
        >>> with TemporaryDirectory() as folder:
        ...     reservoir.save(folder + "/reservoir")
        ...     loaded = Reservoir.load(folder + "/reservoir")
        >>> bool(np.array_equal(loaded.transform([0, 2]), reservoir.transform([0, 2])))
        True
        """
        arrays = {WEIGHTS: self.state_dict()}
        config = {
            "esnlm": __version__,
            "reservoir": describe(self, _CLASSES),
            "has_set_weights": self._has_set_weights,
        }
        with folder_aside(Path(folder), partial(check_replaceable, kind=RESERVOIR)) as aside:
            write_files(aside, RESERVOIR, config, arrays, {})

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Return the reservoir that `save` wrote; its states are identical.

        Raises `ModelFormatError` for a folder that is missing, incomplete, altered, of another
        version, or of another kind.
        """
        config, arrays, _ = read_files(Path(folder), RESERVOIR)
        with restoring(Path(folder), RESERVOIR.what):
            for name, array in arrays[WEIGHTS].items():
                if not np.isfinite(array).all():
                    raise ValueError(f"{name} must hold finite numbers, got NaN or infinity")
            reservoir: Self = rebuild(config["reservoir"], _CLASSES)
            reservoir.load_state_dict(arrays[WEIGHTS])
            reservoir._has_set_weights = bool(config["has_set_weights"])
        return reservoir

    def state_dict(self, *, training: bool = False) -> Arrays:
        """Return the weights by name, as views; a dense ``W_in`` input by input."""
        check_is_fitted(self, "W_")
        arrays = super().state_dict(training=training)
        if "W_in" in arrays:
            arrays["W_in_columns"] = arrays.pop("W_in").T
        return arrays

    def _make_part(self, name: str, arrays: Arrays, training: bool) -> Any:
        parts = arrays["data"], arrays["indices"], arrays["indptr"]
        n_rows = self.n_units if name == "W" else len(arrays["indptr"]) - 1
        check_pointers(name, *parts[::-1], n_rows, self.n_units)
        if name == "W":
            return csr_matrix(parts, shape=(self.n_units, self.n_units))
        return csc_matrix(parts, shape=(self.n_units, n_rows))

    def _required(self, arrays: Arrays, training: bool) -> Iterable[str]:
        inputs = "W_in.data" if "W_in.data" in arrays else "W_in_columns"
        return "bias", "leak_rate", "W.data", inputs

    def _before_loading(self, arrays: Arrays, training: bool) -> Arrays:
        check_parameters(self)
        if "W_in_columns" in arrays:
            return arrays | {"W_in": np.ascontiguousarray(arrays["W_in_columns"]).T}
        return arrays

    def _loaded(self, training: bool) -> None:
        self._complete()
