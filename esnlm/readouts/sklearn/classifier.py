"""Any classifier of scikit-learn as a readout."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import check_is_fitted

from esnlm.readouts.base.blocks import Blocks, blocks_rows, in_memory
from esnlm.readouts.base.readout import StreamingReadout
from esnlm.readouts.base.rows import Rows
from esnlm.readouts.sklearn.classifier_arrays import SAVED, FittedArrays, certain, is_saved
from esnlm.readouts.sklearn.early_stopping import learns_in_passes, stopped_early
from esnlm.utils.arrays import Array, Arrays, Floats, Ints, check_arrays
from esnlm.utils.interpolation import likeliest_weight
from esnlm.utils.memory import check_memory
from esnlm.utils.state_dict import Stateful, saved
from esnlm.utils.validation import Count, Number, check_parameters, limited

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

    All rows are held in memory, which a corpus of millions of tokens exceeds, and with every
    further chunk the classifier is fitted anew. Model folders hold `MLPClassifier` and
    `LogisticRegression`, as arrays and without pickle; `save` refuses others, which joblib keeps.

    Parameters
    ----------
    classifier : an estimator with ``fit`` and ``predict_proba``
        A copy is fitted on X (n, n_units) and codes (n,). One in scikit-learn's
        `FrozenEstimator` stays as it was fitted.
    share : float
        s without held-out rows, between 0 and 1.
    patience : int, optional
        With held-out rows an `MLPClassifier` (adam or sgd) learns pass by pass: after so many
        passes without a higher held-out likelihood it continues from its best weights with 0.3 of
        its learning rate, and with 0.09 of it. None: as its own ``fit`` does.

    Attributes
    ----------
    classifier_ : the fitted copy
        Its ``classes_`` are codes.
    frequencies_ : ndarray (V,) float64
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

    _state = ("frequencies_", "share_")
    _learned = saved(rows="_rows")
    _layouts: ClassVar[dict[str, str]] = {"frequencies_": "f V", "share_": "f"}

    _: KW_ONLY
    classifier: Any = None
    share: float = limited(1e-6, Number(0, 1))
    patience: int | None = limited(None, Count(none=True))

    @classmethod
    def of_fitted(cls, classifier: Any, n_classes: int) -> Self:
        """Return the readout of a classifier that was fitted on states and codes, as it is.

        Its ``classes_`` are integers from 0 to ``n_classes`` - 1; others are impossible to it.
        """
        check_is_fitted(classifier)
        codes = np.asarray(classifier.classes_)
        if codes.dtype.kind not in "iu" or not 0 <= codes.min() <= codes.max() < n_classes:
            raise ValueError(
                f"the classes of a fitted classifier must be tokens, integers from 0 to"
                f" {n_classes - 1}, got {codes.tolist()[:5]} ..."
            )
        made = cls(classifier=classifier, share=0.0)
        made.n_features_in_ = int(classifier.n_features_in_)
        made.classes_ = np.arange(n_classes)
        made._forget(fitted=True)
        made.classifier_, made.share_, made._can_learn = classifier, 0.0, False
        made.frequencies_ = np.full(n_classes, 1 / n_classes)
        return made

    def _start(self) -> None:
        """Check the classifier and ``patience``, and forget any earlier fit."""
        check_parameters(self)
        if not is_foreign(self.classifier):
            raise ValueError(
                "classifier must be one of scikit-learn's with predict_proba, got"
                f" {self.classifier!r}"
            )
        if self.patience is not None and not learns_in_passes(self.classifier):
            raise ValueError(
                "patience is for an MLPClassifier of solver adam or sgd that has early_stopping="
                f"False, got {self.classifier!r}"
            )
        self.__dict__.pop("classifier_", None)
        self._rows, self._stale = Rows("X", "codes"), False

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        """Fit the classifier on all rows, in memory, and choose ``share_`` by held-out rows."""
        n_rows = blocks_rows(blocks)
        what = f"{n_rows} rows of {self.n_features_in_} states for a classifier of scikit-learn"
        advice = "give fewer, or take a readout of this package"
        check_memory(what, 8 * n_rows * self.n_features_in_, advice)
        rows = in_memory(blocks, 1 << 62)
        assert rows is not None, "no bound was given"
        self._fit(rows.X, rows.y, held_out)
        # A copy, unless it is one: later chunks are learned together with these.
        self._rows.add(*((rows.X.copy(), rows.y.copy()) if rows is blocks else (rows.X, rows.y)))
        if held_out is not None:
            self._choose_share(held_out)

    def _absorb(self, X: Array, codes: Ints) -> None:
        self._rows.add(X.copy(), codes.copy())
        self._stale = True

    def _settle(self) -> None:
        if self._stale:
            self._fit(*self._rows.joined())
            self._stale = False

    def _fit(self, X: Array, codes: Ints, held_out: Blocks | None = None) -> None:
        """Fit a clone to all rows; with ``patience`` and held-out rows, stop it early."""
        counts = np.bincount(codes, minlength=len(self.classes_)) + 0.5
        self.frequencies_ = counts / counts.sum()
        self.share_ = float(self.share)
        made = clone(self.classifier)
        if len(np.unique(codes)) == 1:  # many classifiers want two
            self.classifier_ = certain(codes[0], X.shape[1])
            return
        if self.patience is None or held_out is None:
            self.classifier_ = made.fit(X, codes)
            return
        judges = [(X.copy(), y.copy()) for X, y in held_out]  # memory of blocks is used again

        def score(network: Any) -> float:
            self.classifier_ = network
            logs = [self._log_probabilities_of(*block) for block in judges]
            return float(np.concatenate(logs).mean(dtype=np.float64))

        self.classifier_ = stopped_early(made, X, codes, score, self.patience)

    def _choose_share(self, held_out: Blocks) -> None:
        parts = [(self._of_classifier(X)[np.arange(len(X)), y], y) for X, y in held_out]
        given, codes = (np.concatenate(part) for part in zip(*parts, strict=True))
        with np.errstate(divide="ignore"):
            share = likeliest_weight(np.log(self.frequencies_[codes]), np.log(given))
        self.share_ = min(max(share, _LEAST_SHARE), 1 - _LEAST_SHARE)

    def _of_classifier(self, X: Array) -> Floats:
        """Return the classifier's probabilities, zero where a class did not occur: (n, V)."""
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
        super()._before_saving(training)
        name = type(self.classifier).__name__
        if not training and not is_saved(self.classifier):
            raise ValueError(
                f"model folders hold no pickle, and cannot hold a {name}: they hold"
                f" {' and '.join(SAVED)}; keep the model with joblib.dump, or take a readout of"
                " this package"
            )

    def _names(self, training: bool) -> Mapping[str, str]:
        plain = {} if training else {"classifier": "_plain"}
        return {**super()._names(training), **plain}

    @property
    def _plain(self) -> FittedArrays | None:
        return None if "classifier_" not in vars(self) else FittedArrays(self.classifier_)

    @_plain.setter
    def _plain(self, part: FittedArrays) -> None:
        self.classifier_ = part.classifier

    def _required(self, arrays: Arrays, training: bool) -> Sequence[str]:
        needed = () if training else ("classifier.classes_",)
        return (*super()._required(arrays, training), *needed)

    def _make_part(self, name: str, arrays: Arrays, training: bool) -> Stateful:
        """Return rows or fitted arrays, or raise an error where codes or shapes do not fit."""
        codes = arrays["codes" if name == "rows" else "classes_"]
        check_arrays({name: codes}, {name: "i C"})
        if not 0 <= codes.min() <= codes.max() < len(self.classes_):
            raise ValueError(f"the codes of {name} must lie in 0 .. {len(self.classes_) - 1}")
        if name == "rows":
            check_arrays({"X": arrays["X"]}, {"X": "f C N"}, C=len(codes), N=self.n_features_in_)
            return Rows("X", "codes").load_state_dict(arrays)
        if not is_saved(self.classifier):
            raise TypeError(f"a {type(self.classifier).__name__} cannot be loaded")
        part = FittedArrays(clone(self.classifier))
        part.classifier.n_features_in_ = self.n_features_in_
        return part.load_state_dict(arrays)
