"""Fitted classifiers of scikit-learn as plain arrays, and back."""

from importlib import import_module
from typing import Any, Self

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.preprocessing import LabelBinarizer

from esnlm.utils.arrays import Arrays, check_arrays
from esnlm.utils.state_dict import Stateful, under_prefix, with_prefix

#: Classifiers that a model folder may hold, as plain arrays, and their modules.
SAVED = {
    "LogisticRegression": "sklearn.linear_model",
    "MLPClassifier": "sklearn.neural_network",
}


def is_saved(classifier: Any) -> bool:
    """Whether it is of a class of `SAVED` itself, and not one of its name or made from it."""
    home = SAVED.get(type(classifier).__name__)
    return home is not None and type(classifier) is getattr(
        import_module(home), type(classifier).__name__
    )


def certain(code: Any, n_columns: int) -> DummyClassifier:
    """Return a classifier of states (n, n_columns) that knows one class."""
    return DummyClassifier().fit(np.zeros((1, n_columns)), [code])


class FittedArrays(Stateful):
    """The arrays of a fitted classifier of `SAVED`, by name."""

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier

    def state_dict(self, *, training: bool = False) -> Arrays:
        """Return classes, coefficients and intercepts, of a network those of each layer."""
        fitted = vars(self.classifier)
        arrays = {n: fitted[n] for n in ("classes_", "coef_", "intercept_") if n in fitted}
        for name in ("coefs_", "intercepts_"):
            layers = enumerate(fitted.get(name, ()))
            arrays |= with_prefix(name, {str(number): layer for number, layer in layers})
        return arrays

    def load_state_dict(self, arrays: Arrays, *, training: bool = False) -> Self:
        """Set the fitted attributes from ``arrays``, after a check of their shapes."""
        made = self.classifier
        made.classes_ = np.asarray(arrays["classes_"])
        if len(made.classes_) == 1:
            self.classifier = certain(made.classes_[0], made.n_features_in_)
            return self
        # Two classes are one logit.
        n_outputs = 1 if len(made.classes_) == 2 else len(made.classes_)
        if type(made).__name__ == "LogisticRegression":
            widths, layers = [made.n_features_in_, n_outputs], [("coef_", "intercept_", "f B A")]
        else:
            n_layers = len(under_prefix("coefs_", arrays))
            names = range(n_layers)
            layers = [(f"coefs_.{i}", f"intercepts_.{i}", "f A B") for i in names]
            widths = [made.n_features_in_, *(len(arrays[f"intercepts_.{i}"]) for i in names)]
            widths[-1] = n_outputs
        for (weights, offsets, layout), A, B in zip(layers, widths, widths[1:], strict=False):
            check_arrays(arrays, {weights: layout}, A=A, B=B)
            check_arrays(arrays, {offsets: "f B"}, B=B)
        if type(made).__name__ == "LogisticRegression":
            made.coef_, made.intercept_ = arrays["coef_"], arrays["intercept_"]
            return self
        made.coefs_, made.intercepts_ = ([arrays[layer[i]] for layer in layers] for i in (0, 1))
        made.n_layers_, made.n_outputs_ = len(layers) + 1, n_outputs
        made.out_activation_ = "logistic" if n_outputs == 1 else "softmax"
        made._label_binarizer = LabelBinarizer().fit(made.classes_)
        return self
