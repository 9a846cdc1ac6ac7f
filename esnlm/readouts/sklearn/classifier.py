"""Any classifier of scikit-learn as a readout."""

import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import LabelBinarizer
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from esnlm.readouts.base.blocks import NO_HELD_OUT, Blocks, Rows, blocks_rows, in_memory
from esnlm.readouts.base.readout import StreamingReadout
from esnlm.readouts.sklearn.adam import pass_function
from esnlm.utils.arrays import Array, Arrays, Floats, Ints, check_arrays
from esnlm.utils.interpolation import likeliest_weight
from esnlm.utils.memory import check_memory
from esnlm.utils.state_dict import saved, under_prefix, with_prefix
from esnlm.utils.validation import Count, Number, check_parameters, limited

#: Classifiers that a model folder may hold, as plain arrays, and their modules.
SAVED = {"LogisticRegression": "sklearn.linear_model", "MLPClassifier": "sklearn.neural_network"}
_LEAST_SHARE = 1e-6
# Each learning rate of a network is this share of the one before, and there are so many.
_FALL, _N_RATES = 0.3, 3
_NEEDED = {"learning_rate_init", "max_iter", "random_state", "warm_start"}


def is_foreign(part: Any) -> bool:
    """Whether a part is a classifier with probabilities, and no readout of this package."""
    outside = hasattr(part, "get_params") and not hasattr(part, "fit_blocks")
    return outside and is_classifier(part) and hasattr(part, "predict_proba")


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
    _training_state = saved(rows="_rows")
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
        _check_classes(classifier, n_classes)
        readout = cls(classifier=classifier, share=0.0)
        readout.n_features_in_ = int(classifier.n_features_in_)
        readout.classes_ = np.arange(n_classes)
        readout._forget(fitted=True)
        readout.classifier_, readout.share_, readout._can_learn = classifier, 0.0, False
        readout.frequencies_ = np.full(n_classes, 1 / n_classes)
        return readout

    def _start(self) -> None:
        """Check the classifier and ``patience``, and forget any earlier fit."""
        check_parameters(self)
        if not is_foreign(self.classifier):
            expected = "one of scikit-learn's with predict_proba"
            raise ValueError(f"classifier must be {expected}, got {self.classifier!r}")
        options = self.classifier.get_params()
        in_passes = hasattr(self.classifier, "partial_fit") and options.keys() >= _NEEDED
        if self.patience is not None and (not in_passes or options.get("early_stopping", False)):
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
        self._rows.add(*(a.copy() if rows is blocks else a for a in (rows.X, rows.y)))
        if held_out is None:
            return
        parts = [(self._of_classifier(X)[np.arange(len(X)), y], y) for X, y in held_out]
        if not parts:
            raise ValueError(NO_HELD_OUT)
        proba, codes = (np.concatenate(part) for part in zip(*parts, strict=True))
        with np.errstate(divide="ignore"):
            share = likeliest_weight(np.log(self.frequencies_[codes]), np.log(proba))
        self.share_ = min(max(share, _LEAST_SHARE), 1 - _LEAST_SHARE)

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
        certain = len(np.unique(codes)) == 1  # many classifiers want two classes
        classifier = DummyClassifier() if certain else clone(self.classifier)
        if certain or self.patience is None or held_out is None:
            self.classifier_ = classifier.fit(X, codes)
            _check_classes(self.classifier_, len(self.classes_))  # of one that is frozen
            return
        judges = [(X.copy(), y.copy()) for X, y in held_out]  # memory of blocks is used again

        def score(network: Any) -> float:
            self.classifier_ = network
            logs = [self._log_probabilities_of(*block) for block in judges]
            return float(np.concatenate(logs).mean(dtype=np.float64))

        self.classifier_ = stopped_early(classifier, X, codes, score, self.patience)

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
        check_is_fitted(self, "classes_")
        self._make_current()
        arrays = _arrays_of(self.classifier_)
        return sum(int(np.size(array)) for name, array in arrays.items() if name != "classes_")

    def _before_saving(self, training: bool) -> None:
        super()._before_saving(training)
        if not training and not _is_saved(self.classifier):
            raise ValueError(
                f"model folders hold no pickle, and cannot hold a {type(self.classifier).__name__}:"
                f" they hold {' and '.join(SAVED)}; keep the model with joblib.dump, or take a"
                " readout of this package"
            )

    def state_dict(self, *, training: bool = False) -> Arrays:
        """Return frequencies, share and arrays of the classifier, or (``training``) all rows."""
        arrays = super().state_dict(training=training)
        if not training and "classifier_" in vars(self):
            arrays |= with_prefix("classifier", _arrays_of(self.classifier_))
        return arrays

    def load_state_dict(self, arrays: Arrays, *, training: bool = False) -> Self:
        """Continue from what `state_dict` gave, or raise an error where arrays do not fit."""
        super().load_state_dict(arrays, training=training)
        if not training:
            self._check_codes("classifier", arrays["classifier.classes_"])
            if not _is_saved(self.classifier):
                raise TypeError(f"a {type(self.classifier).__name__} cannot be loaded")
            part = under_prefix("classifier", arrays)
            self.classifier_ = _with_arrays(clone(self.classifier), part, self.n_features_in_)
        return self

    def _make_part(self, name: str, arrays: Arrays, training: bool) -> Rows:
        """Return the rows to learn from, or raise an error where codes or shapes do not fit."""
        X, codes = arrays["X"], arrays["codes"]
        self._check_codes(name, codes)
        check_arrays({"X": X}, {"X": "f C N"}, C=len(codes), N=self.n_features_in_)
        return Rows("X", "codes").load_state_dict(arrays)

    def _check_codes(self, name: str, codes: Array) -> None:
        check_arrays({name: codes}, {name: "i C"})
        if not 0 <= codes.min() <= codes.max() < len(self.classes_):
            raise ValueError(f"the codes of {name} must lie in 0 .. {len(self.classes_) - 1}")


def _check_classes(classifier: Any, n_classes: int) -> None:
    """Raise ValueError unless the classes of a fitted classifier are codes."""
    codes = np.asarray(classifier.classes_)
    if codes.dtype.kind not in "iu" or not 0 <= codes.min() <= codes.max() < n_classes:
        raise ValueError(
            f"the classes of a fitted classifier must be tokens, integers from 0 to"
            f" {n_classes - 1}, got {codes.tolist()[:5]} ..."
        )


def _is_saved(classifier: Any) -> bool:
    """Whether it is of a class of `SAVED` itself, and not one of its name or made from it."""
    name = type(classifier).__name__
    return name in SAVED and type(classifier) is getattr(import_module(SAVED[name]), name)


def _arrays_of(classifier: Any) -> Arrays:
    """Return classes, coefficients and intercepts, of a network those of each layer."""
    fitted = vars(classifier)
    arrays = {n: fitted[n] for n in ("classes_", "coef_", "intercept_") if n in fitted}
    for name in ("coefs_", "intercepts_"):
        arrays |= {f"{name}.{number}": layer for number, layer in enumerate(fitted.get(name, ()))}
    return arrays


def _with_arrays(classifier: Any, arrays: Arrays, n_units: int) -> Any:
    """Return a classifier of `SAVED` with fitted attributes, after a check of their shapes."""
    classes = classifier.classes_ = np.asarray(arrays["classes_"])
    classifier.n_features_in_ = n_units
    if len(classes) == 1:
        return DummyClassifier().fit(np.zeros((1, n_units)), classes)
    # Two classes are one logit.
    n_outputs = 1 if len(classes) == 2 else len(classes)
    is_linear = type(classifier).__name__ == "LogisticRegression"
    if is_linear:
        widths, layers = [n_units, n_outputs], [("coef_", "intercept_", "f B A")]
    else:
        names = range(len(under_prefix("coefs_", arrays)))
        layers = [(f"coefs_.{i}", f"intercepts_.{i}", "f A B") for i in names]
        widths = [n_units, *(len(arrays[offsets]) for _, offsets, _ in layers[:-1]), n_outputs]
    for (weights, offsets, layout), A, B in zip(layers, widths, widths[1:], strict=False):
        check_arrays(arrays, {weights: layout, offsets: "f B"}, A=A, B=B)
    if is_linear:
        classifier.coef_, classifier.intercept_ = arrays["coef_"], arrays["intercept_"]
        return classifier
    classifier.coefs_ = [arrays[weights] for weights, _, _ in layers]
    classifier.intercepts_ = [arrays[offsets] for _, offsets, _ in layers]
    classifier.n_layers_, classifier.n_outputs_ = len(layers) + 1, n_outputs
    classifier.out_activation_ = "logistic" if n_outputs == 1 else "softmax"
    classifier._label_binarizer = LabelBinarizer().fit(classes)
    return classifier


def stopped_early(
    network: Any, X: Array, codes: Ints, score: Callable[[Any], float], patience: int
) -> Any:
    """Train a network on X (n, N), codes (n,) to the highest ``score(network)``; returns it.

    After ``patience`` passes without a higher score, the best weights go on at a lower learning
    rate, of `_N_RATES` in all. ``max_iter`` of the network is the most passes; every pass reads the
    rows in an order of its own.
    """
    own = {name: network.get_params()[name] for name in _NEEDED - {"random_state"}}
    rng = check_random_state(network.random_state)
    best, best_network, n_left = -np.inf, network, int(own["max_iter"])
    for rate in own["learning_rate_init"] * _FALL ** np.arange(_N_RATES):
        network, since = deepcopy(best_network), 0
        network.set_params(warm_start=True, max_iter=1, learning_rate_init=float(rate))
        learn = network.fit  # begins with new moments of the gradient, from the weights there are
        while since < patience and n_left > 0:
            order = rng.permutation(len(X))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                learn(X[order], codes[order])
            learn = pass_function(network) if learn == network.fit else learn
            n_left, since = n_left - 1, since + 1
            if (value := score(network)) > best:
                best, best_network, since = value, deepcopy(network), 0
    return best_network.set_params(**own)
