"""Any classifier of scikit-learn as a readout."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from esnlm.readouts.base.blocks import Blocks, blocks_rows, in_memory
from esnlm.readouts.base.readout import StreamingReadout
from esnlm.readouts.base.rows import Rows
from esnlm.utils.arrays import Array, Floats, Ints
from esnlm.utils.interpolation import likeliest_weight
from esnlm.utils.memory import check_memory
from esnlm.utils.validation import Number, check_parameters, limited

_LEAST_SHARE = 1e-6


def is_foreign(part: Any) -> bool:
    """Whether a part is a classifier with probabilities, and no readout of this package."""
    if not hasattr(part, "get_params") or hasattr(part, "fit_blocks"):
        return False
    return is_classifier(part) and hasattr(part, "predict_proba")


@dataclass(eq=False, repr=False)
class ClassifierReadout(StreamingReadout):
    """A classifier of scikit-learn, fitted on all rows at once.

    Its distributions are interpolated with the classes' relative frequencies (half an occurrence
    added to each), as some classifiers find what they have not met impossible:
    ``p = (1 - s) p_classifier + s frequency``. Held-out rows choose s by their likelihood.

    Rows are held in memory, which a corpus of millions of tokens exceeds, and chunks are learned
    anew with all before them. Model folders cannot hold a classifier: keep it with joblib.

    Parameters
    ----------
    classifier : an estimator with ``fit`` and ``predict_proba``
        A copy is fitted on X (n, n_units) and codes (n,).
    share : float
        s without held-out rows, between 0 and 1.

    Attributes
    ----------
    classifier_ : the fitted copy
    frequencies_ : (V,) float64
    share_ : float

    Examples
    --------
    >>> from sklearn.neural_network import MLPClassifier
    >>> from esnlm import LanguageModel, Reservoir
    >>> docs = ["the boy sees the dog", "the dog sees the boy"] * 5
    >>> classifier = MLPClassifier(20, solver="lbfgs", random_state=0)
    >>> model = LanguageModel(Reservoir(30, random_state=0), classifier).fit(docs)
    >>> model.perplexity(docs) < 2
    True
    """

    classifier: Any = None
    share: float = limited(1e-3, Number(0, 1))

    def _start(self) -> None:
        check_parameters(self)
        if not is_foreign(self.classifier):
            raise ValueError(
                "classifier must be one of scikit-learn's with predict_proba, got"
                f" {self.classifier!r}"
            )
        self._rows, self._stale = Rows("X", "codes"), False

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        n_rows = blocks_rows(blocks)
        what = f"{n_rows} rows of {self.n_features_in_} states for a classifier of scikit-learn"
        advice = "give fewer, or take a readout of this package"
        check_memory(what, 8 * n_rows * self.n_features_in_, advice)
        rows = in_memory(blocks, 1 << 62)
        assert rows is not None, "no bound was given"
        self._fit(rows.X, rows.y)
        if held_out is not None:
            self._choose_share(held_out)

    def _absorb(self, X: Array, codes: Ints) -> None:
        self._rows.add(X.copy(), codes.copy())
        self._stale = True

    def _settle(self) -> None:
        if self._stale:
            self._fit(*self._rows.joined())
            self._stale = False

    def _fit(self, X: Array, codes: Ints) -> None:
        counts = np.bincount(codes, minlength=len(self.classes_)) + 0.5
        self.frequencies_ = counts / counts.sum()
        self.share_ = float(self.share)
        self.classifier_ = clone(self.classifier).fit(X, codes)

    def _choose_share(self, held_out: Blocks) -> None:
        parts = [(self._of_classifier(X)[np.arange(len(X)), y], y) for X, y in held_out]
        given, codes = (np.concatenate(part) for part in zip(*parts, strict=True))
        with np.errstate(divide="ignore"):
            share = likeliest_weight(np.log(self.frequencies_[codes]), np.log(given))
        self.share_ = min(max(share, _LEAST_SHARE), 1 - _LEAST_SHARE)

    def _of_classifier(self, X: Array) -> Floats:
        """The classifier's probabilities, zero where a class did not occur: (n, V)."""
        P = np.zeros((len(X), len(self.classes_)))
        P[:, self.classifier_.classes_] = self.classifier_.predict_proba(X)
        return P

    def _probabilities(self, X: Array) -> Array:
        P = (1 - self.share_) * self._of_classifier(X) + self.share_ * self.frequencies_
        return P.astype(X.dtype)

    @property
    def n_parameters_(self) -> int:
        """Trained weights of a linear classifier or a network; 0 of others, which hold none."""
        self._settle()
        found = vars(self.classifier_)
        names = ("coef_", "intercept_", "coefs_", "intercepts_")
        arrays = [np.size(a) for name in names if name in found for a in found[name]]
        return int(sum(arrays))

    def _before_saving(self, training: bool) -> None:
        raise ValueError(
            f"model folders cannot hold a {type(self.classifier).__name__}: keep the model with"
            " joblib.dump, or take a readout of this package"
        )

    def _names(self, training: bool) -> Mapping[str, str]:
        return {}
