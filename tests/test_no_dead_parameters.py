"""No dead parameter: another value changes the fitted model, or it is refused."""

import inspect
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

import esnlm
from esnlm import (
    ClassFactoredReadout,
    ClassifierReadout,
    ElmanGrammar,
    LanguageModel,
    LowRankReadout,
    MixtureOfExpertsReadout,
    NgramLanguageModel,
    NormalisedSoftmaxReadout,
    ReducedRankSoftmaxReadout,
    Reservoir,
    RidgeReadout,
    RidgeRegressor,
    SoftmaxReadout,
    SpectralWordFeatures,
    TokenGatedReadout,
    WordFeatures,
)
from esnlm.readouts.base.last_tokens import last_tokens
from esnlm.readouts.token_gated.token_gated import with_token_code

V, N_ROWS = 12, 3000
# A model of fitted models has nothing to fit but its weights: see test_interpolated.
ESTIMATORS = [
    each
    for each in (getattr(esnlm, name) for name in sorted(dir(esnlm)))
    if inspect.isclass(each) and hasattr(each, "get_params") and each is not esnlm.InterpolatedModel
]
#: What an estimator needs to be small, or to be made at all.
SMALL: dict[Any, dict[str, Any]] = {
    Reservoir: {"n_units": 20, "random_state": 0},
    WordFeatures: {"n_passes": 2, "random_state": 0},
    SpectralWordFeatures: {"n_features": 4, "random_state": 0},
    ReducedRankSoftmaxReadout: {"rank": 4},
    LowRankReadout: {"n_components": 8, "random_state": 0},
    MixtureOfExpertsReadout: {"n_experts": 2, "max_iter": 4, "random_state": 0},
    ClassFactoredReadout: {"random_state": 0},
    ClassifierReadout: {"classifier": LogisticRegression()},
    LanguageModel: {"reservoir": Reservoir(12, degree=3, random_state=0), "random_state": 0},
}
_STEPS = {"solver": "incremental"}
_SOFTMAX: dict[str, Any] = {
    "alpha": ({}, 3.0),
    "solver": ({}, "incremental"),
    "tol": ({}, 0.5),
    "max_iter": ({}, 1),
    "n_passes": (_STEPS, 3),
    "learning_rate": (_STEPS, 0.2),
    "momentum": (_STEPS, 0.5),
}
#: By class and parameter: settings beside which the parameter counts, and another value of it.
CHANGES: dict[Any, dict[str, tuple[dict[str, Any], Any]]] = {
    Reservoir: {
        "n_units": ({}, 21),
        "spectral_radius": ({}, 0.5),
        "input_scaling": ({}, 0.5),
        "degree": ({}, 3),
        "leak_rate": ({}, 0.5),
        "activation": ({}, "identity"),
        "topology": ({}, "ring"),
        "bias_scaling": ({}, 0.5),
        "input_degree": ({}, 3),
        "dtype": ({}, "float64"),
        "random_state": ({}, 1),
    },
    WordFeatures: {
        "n_features": ({}, 3),
        "n_passes": ({}, 3),
        "learning_rate": ({}, 0.1),
        "readout_learning_rate": ({}, 0.02),
        "random_state": ({}, 1),
    },
    SpectralWordFeatures: {"n_features": ({}, 3), "window": ({}, 2), "random_state": ({}, 1)},
    RidgeReadout: {
        "alpha": ({}, 3.0),
        "alphas": ({}, [0.1, 1.0]),
        "selection": ({}, "held_out"),
        "floor": ({}, 0.02),
        "validation_fraction": ({"selection": "held_out"}, 0.3),
        "gram_rows": ({}, 100),
    },
    RidgeRegressor: {"alpha": ({}, 3.0)},
    SoftmaxReadout: _SOFTMAX,
    NormalisedSoftmaxReadout: _SOFTMAX,
    ReducedRankSoftmaxReadout: {"rank": ({}, 3), **_SOFTMAX},
    LowRankReadout: {
        "n_components": ({}, 5),
        "alpha": ({}, 3.0),
        "n_frequent": ({}, 2),
        "n_classes": ({"n_frequent": 2}, 3),
        "n_passes": ({}, 40),  # few rows have more passes than they are asked for
        "learning_rate": ({}, 0.1),
        "momentum": ({}, 0.5),
        "prior": ({"n_frequent": 2}, 9.0),
        "n_direct": ({}, 1),
        "n_ngrams": ({"n_direct": 2}, 3),
        "direct_rate": ({"n_direct": 1}, 0.5),
        "random_state": ({"n_frequent": 2, "n_classes": 4}, 3),
    },
    MixtureOfExpertsReadout: {
        "n_experts": ({}, 3),
        "experts": ({}, "linear"),
        "alpha": ({}, 3.0),
        "common_alpha": ({}, 3.0),
        "gate_alpha": ({}, 3.0),
        "max_iter": ({}, 5),
        "tol": ({}, 1.0),
        "variance": ({"experts": "linear"}, 1.0),
        "n_conjugate": ({}, 3),
        "n_restarts": ({"n_experts": 3}, 4),
        "early_stopping": ({}, False),
        "validation_fraction": ({}, 0.5),
        "patience": ({"max_iter": 60, "alpha": 1e-6, "tol": 0.0}, 1),
        "random_state": ({}, 1),
    },
    ClassFactoredReadout: {
        "n_classes": ({}, 2),
        "clustering": ({}, "frequency"),
        "class_readout": ({}, "ridge"),
        "word_readout": ({}, "ridge"),
        "solver": ({}, "joint"),
        "n_components": ({"solver": "joint"}, 3),
        "random_state": ({"n_classes": 4}, 3),
    },
    ClassifierReadout: {
        "classifier": ({}, LogisticRegression(C=0.1)),
        "share": ({}, 0.1),
        "patience": ({"classifier": MLPClassifier(4, max_iter=9, random_state=0)}, 1),
    },
    TokenGatedReadout: {
        "n_gates": ({}, V + 1),
        "alpha": ({}, 9.0),
        "n_direct": ({}, 1),
        "n_passes": ({}, 3),
        "learning_rate": ({}, 0.1),
        "momentum": ({}, 0.5),
    },
    NgramLanguageModel: {
        "order": ({}, 2),
        "tokenizer": ({}, "char"),
        "reset": ({}, "never"),
        "n_tokens": ({}, 99),
        "discounts": ({}, "single"),
    },
    LanguageModel: {
        "reservoir": ({}, Reservoir(13, degree=3, random_state=0)),
        "readout": ({}, "softmax"),
        "tokenizer": ({}, "char"),
        "features": ({}, SpectralWordFeatures(n_features=3, random_state=0)),
        "reset": ({}, "never"),
        "recipe": ({}, "rachez2012"),
        "n_tokens": ({}, 99),
        "shuffle": ({"readout": SoftmaxReadout(solver="incremental")}, False),
        "n_streams": ({"reset": "never", "reservoir": Reservoir(12, leak_rate=0.01)}, 2),
        "random_state": ({"readout": SoftmaxReadout(solver="incremental")}, 1),
    },
}
_MEMORY = "rows that are held in memory"
#: Parameters that must not change what is fitted to rows at hand: another value, and the reason.
NOT_OF_THE_MODEL: dict[Any, dict[str, tuple[Any, str]]] = {
    Reservoir: {"washout": (5, "pairs that `harvest` drops")},
    SoftmaxReadout: {"buffer_size": (7, _MEMORY)},
    NormalisedSoftmaxReadout: {"buffer_size": (7, _MEMORY)},
    ReducedRankSoftmaxReadout: {"buffer_size": (7, _MEMORY)},
    LowRankReadout: {"buffer_size": (7, _MEMORY)},
    ClassFactoredReadout: {"buffer_size": (7, _MEMORY)},
    MixtureOfExpertsReadout: {
        "buffer_size": (1 << 19, _MEMORY),
        "n_threads": (1, "threads"),
        "verbose": (True, "messages"),
    },
    LanguageModel: {"verbose": (True, "messages")},
}
#: Estimators that have no effect of a parameter beside another one, and refuse it.
REFUSED = [
    *(
        (Reservoir(5, degree=4, topology=topology), "degree")
        for topology in ("ring", "orthogonal", "diagonal", "delay_line")
    ),
    (RidgeReadout(validation_fraction=0.2), "validation_fraction"),
    (RidgeReadout(validation_fraction=0.2, selection="gcv"), "validation_fraction"),
    (RidgeReadout(alpha=1.0, alphas=[1.0]), "alphas"),
    (RidgeReadout(alpha=1.0, selection="gcv"), "selection"),
    *(
        (kind(**settings), next(iter(settings)))
        for kind in (SoftmaxReadout, NormalisedSoftmaxReadout, ReducedRankSoftmaxReadout)
        for settings in (
            {"tol": 0.1, "solver": "incremental"},
            {"max_iter": 5, "solver": "incremental"},
            {"n_passes": 5, "solver": "newton-cg"},
        )
    ),
    (LowRankReadout(direct_rate=0.2), "direct_rate"),
    (LowRankReadout(n_ngrams=5, n_direct=1), "n_ngrams"),
    (MixtureOfExpertsReadout(variance=1.0), "variance"),
    (MixtureOfExpertsReadout(early_stopping=False, patience=3), "patience"),
    (
        MixtureOfExpertsReadout(early_stopping=False, validation_fraction=0.2),
        "validation_fraction",
    ),
    (ClassFactoredReadout(solver="separate", n_components=5), "n_components"),
    (ClassFactoredReadout(n_classes=3, clustering=np.arange(V) % 3), "n_classes"),
    *(
        (ClassFactoredReadout(solver="joint", **factors), name)
        for factors, name in (
            ({"word_readout": RidgeReadout(floor=0.1)}, "floor"),
            ({"class_readout": MixtureOfExpertsReadout(n_experts=2, gate_alpha=1.0)}, "gate_alpha"),
            ({"word_readout": SoftmaxReadout(tol=0.1)}, "tol"),
            (
                {
                    "class_readout": SoftmaxReadout(learning_rate=0.1),
                    "word_readout": SoftmaxReadout(learning_rate=0.2),
                },
                "learning_rate",
            ),
        )
    ),
    (ClassifierReadout(classifier=LogisticRegression(), patience=2), "patience"),
    (LanguageModel(Reservoir(5), RidgeReadout(), recipe="rachez2012"), "recipe"),
]


def sentences(n: int = 80) -> list[str]:
    return [" ".join(words) for words in ElmanGrammar().sample(n, 0)]


def tokens() -> Any:
    rng = np.random.default_rng(0)
    return np.where(rng.random(N_ROWS + 1) < 0.3, rng.integers(V, size=N_ROWS + 1), -1).cumsum() % V


def rows(n_direct: int, *, coded: bool) -> tuple[Any, Any]:
    """Return states, with a token code or with the last tokens beside them, and next tokens."""
    reservoir = Reservoir(16, degree=4, random_state=0).fit(n_inputs=V)
    ids = tokens()
    states = (with_token_code(reservoir) if coded else reservoir).transform(ids[:-1])
    return np.hstack([states, last_tokens(ids, np.arange(N_ROWS), None, n_direct)]), ids[1:]


def parameter_names(kind: Any) -> list[str]:
    return sorted(name for name in kind._get_param_names())


def contents(estimator: Any) -> dict[str, Any]:
    """Fit the estimator, and return what it learned and predicts, as arrays."""
    if isinstance(estimator, LanguageModel | NgramLanguageModel):
        docs = sentences()
        estimator.fit(docs)
        ngrams = isinstance(estimator, NgramLanguageModel)
        learned = {} if ngrams else estimator.readout_.state_dict()
        scores = np.concatenate(estimator.log_likelihood(docs[:20]))
        return {**learned, "scores": scores, "next": estimator.predict_proba(docs[0])}
    if isinstance(estimator, Reservoir):
        estimator.fit(n_inputs=V)
        return {**estimator.state_dict(), "states": estimator.transform(tokens()[:9])}
    if isinstance(estimator, RidgeRegressor):
        X, y = rows(0, coded=False)
        return {"coef": estimator.fit(X, y.astype(float)).coef_}
    if hasattr(estimator, "fit_blocks"):
        n_direct = getattr(estimator, "n_direct", 0)
        X, y = rows(n_direct, coded=isinstance(estimator, TokenGatedReadout) and not n_direct)
        if getattr(estimator, "patience", None) and isinstance(estimator, ClassifierReadout):
            estimator.fit_blocks([(X[:400], y[:400])], range(V), held_out=[(X[400:], y[400:])])
        else:
            estimator.fit(X, y)
        return {**estimator.state_dict(), "scores": estimator.predict_log_proba(X[:20])}
    reservoir = Reservoir(12, degree=3, leak_rate=0.5, random_state=0)
    needed = {} if isinstance(estimator, SpectralWordFeatures) else {"reservoir": reservoir}
    estimator.fit(tokens(), n_tokens=V, **needed)
    return dict(estimator.state_dict())


def are_equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        np.shape(one[name]) == np.shape(other[name])
        and np.asarray(one[name]).dtype == np.asarray(other[name]).dtype
        and np.array_equal(one[name], other[name])
        for name in one
    )


def made(kind: Any, settings: dict[str, Any]) -> Any:
    return clone(kind(**SMALL.get(kind, {}) | settings))


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in ESTIMATORS for name in parameter_names(kind)],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_another_value_changes_the_fitted_model_unless_it_must_not(kind: Any, name: str, capfd):
    if name in NOT_OF_THE_MODEL.get(kind, {}):
        other, _ = NOT_OF_THE_MODEL[kind][name]
        assert made(kind, {name: other}).get_params()[name] != made(kind, {}).get_params()[name]
        assert are_equal(contents(made(kind, {})), contents(made(kind, {name: other})))
        return
    if name not in CHANGES.get(kind, {}):
        pytest.fail(f"{kind.__name__}({name}=): add it to CHANGES or NOT_OF_THE_MODEL of this file")
    base, other = CHANGES[kind][name]
    assert not are_equal(contents(made(kind, base)), contents(made(kind, base | {name: other})))


@pytest.mark.parametrize(
    "settings",
    [
        {"word_readout": SoftmaxReadout(alpha=3.0)},
        {"word_readout": SoftmaxReadout(learning_rate=0.3)},
        {"word_readout": SoftmaxReadout(momentum=0.3)},
        {"word_readout": SoftmaxReadout(n_passes=20)},  # few rows have 8 at least
        {"word_readout": RidgeReadout(alpha=3.0)},
        {"class_readout": MixtureOfExpertsReadout(n_experts=3)},
    ],
    ids=str,
)
def test_what_joint_factors_read_changes_them(settings: dict[str, Any]):
    ((name, factor),) = settings.items()
    plain = made(ClassFactoredReadout, {"solver": "joint", name: type(factor)()})
    other = made(ClassFactoredReadout, {"solver": "joint", **settings})
    assert not are_equal(contents(plain), contents(other))


@pytest.mark.parametrize("table", [SMALL, CHANGES, NOT_OF_THE_MODEL])
def test_the_tables_name_parameters_that_there_are(table: dict[Any, dict[str, Any]]):
    for kind, entries in table.items():
        assert kind in ESTIMATORS
        assert entries.keys() <= set(parameter_names(kind))


@pytest.mark.parametrize(
    ("estimator", "name"), REFUSED, ids=lambda value: str(value).partition("(")[0]
)
def test_a_parameter_without_effect_is_refused(estimator: Any, name: str):
    with pytest.raises(ValueError, match=name) as error:
        contents(clone(estimator))
    assert "leave out" in str(error.value) or "got" in str(error.value)
