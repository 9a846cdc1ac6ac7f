"""Reservoirs and readouts as `esnlm.interop.exported.modeling_esnlm` takes them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from esnlm.readouts.linear.simplex import least_output
from esnlm.readouts.two_level.word_factors import ClassLayout
from esnlm.utils.state_dict import Arrays, with_prefix

#: What ``config.json`` says of a part, and its arrays.
Described = tuple[dict[str, Any], Arrays]


def describe_reservoir(reservoir: Any) -> Described:
    """A fitted reservoir; W_in is stored transposed, one row an input."""
    W = scipy.sparse.csr_matrix(reservoir.W_)
    W.sum_duplicates()
    index_dtype = np.promote_types(W.indices.dtype, W.indptr.dtype)
    arrays = {"bias": reservoir.bias_, "leak_rate": reservoir.leak_rate_}
    sizes = {
        "n_units": int(reservoir.n_units),
        "n_inputs": int(reservoir.n_inputs_),
        "activation": reservoir.activation,
        "nnz": int(W.nnz),
        "input_nnz": None,
    }
    sparse = {"recurrent": W}
    if scipy.sparse.issparse(reservoir.W_in_):
        inputs = scipy.sparse.csr_matrix(reservoir.W_in_.T)
        inputs.sum_duplicates()
        sizes["input_nnz"] = int(inputs.nnz)
        sparse["input"] = inputs
        index_dtype = np.promote_types(index_dtype, inputs.indptr.dtype)
    else:
        arrays["input"] = np.asarray(reservoir.W_in_).T
    for name, matrix in sparse.items():
        arrays[f"{name}.data"] = matrix.data
        arrays[f"{name}.indices"] = matrix.indices.astype(index_dtype)
        arrays[f"{name}.indptr"] = matrix.indptr.astype(index_dtype)
    return sizes | {"index_dtype": index_dtype.name}, arrays


def describe_readout(readout: Any) -> Described:
    """A fitted readout; ValueError for a kind that the exported code does not know."""
    name = type(readout).__name__
    if name not in _KINDS:
        raise ValueError(f"cannot export a {name}: expected one of {', '.join(_KINDS)}")
    return _KINDS[name](readout)


def _ridge(readout: Any) -> Described:
    n_outputs = len(readout.classes_)
    floor = least_output(n_outputs) if readout.floor == "auto" else float(readout.floor)
    arrays = readout.state_dict()
    return _linear(arrays["coef_"], arrays["intercept_"], np.array([floor]))


def _softmax(readout: Any) -> Described:
    arrays = readout.state_dict()
    return _linear(arrays["coef_"], arrays["intercept_"])


def _linear(coef: Any, intercept: Any, floor: NDArray[Any] | None = None) -> Described:
    kind = {"kind": "linear", "n_outputs": len(coef), "n_floors": 0}
    described = {"coef": coef, "intercept": intercept}
    if floor is not None:
        kind["n_floors"] = len(floor)
        described["floor"] = floor
    return kind, described


def _mixture(readout: Any) -> Described:
    arrays = readout.state_dict()
    n_experts, n_outputs = arrays["expert_coef_"].shape[:2]
    described = {
        "mean": arrays["whitening_mean_"],
        "map": arrays["whitening_map_"],
        "experts": arrays["expert_coef_"],
        "gate": arrays["gate_coef_"],
    }
    kind = {"kind": "mixture", "n_outputs": n_outputs, "n_experts": n_experts, "n_floors": 0}
    if readout.experts == "linear":
        kind["n_floors"] = 1
        described["floor"] = np.array([least_output(n_outputs)])
    return kind, described


def _factored(readout: Any) -> Described:
    arrays = readout.state_dict()
    if "directions_" in arrays:
        return _joint(arrays)
    layout = ClassLayout(arrays["word_class_"])
    sizes = layout.sizes.tolist()
    classes: Described = _uniform(1)
    if readout.class_factor_ is not None:
        classes = describe_readout(readout.class_factor_)
    kind: dict[str, Any] = {"kind": "factored", "sizes": sizes, "classes": classes[0]}
    described = {"position": layout.position.astype(np.int64)}
    described |= with_prefix("classes", classes[1])
    kind["factors"] = []
    for c, size in enumerate(sizes):
        given = readout.word_factors_.get(c)
        factor = _uniform(size) if given is None else describe_readout(given)
        kind["factors"].append(factor[0])
        described |= with_prefix(f"words.{c}", factor[1])
    return kind, described


def _joint(arrays: Arrays) -> Described:
    """Factors on components: a factored readout within one of low rank."""
    n_components = arrays["directions_"].shape[1]
    if "gate_" in arrays:
        n_experts = arrays["gate_"].shape[1]
        experts = arrays["class_weights_"].T.reshape(n_experts, -1, n_components + 1)
        described = {"mean": np.zeros(n_components), "map": np.eye(n_components)}
        described |= {"experts": experts, "gate": arrays["gate_"].T}
        sizes = {"n_outputs": experts.shape[1], "n_experts": n_experts, "n_floors": 0}
        classes: Described = {"kind": "mixture"} | sizes, described
    elif "class_weights_" in arrays:
        weights = arrays["class_weights_"]
        classes = _linear(weights[:-1].T, weights[-1])
    else:
        ridge = (arrays[f"class_{name}_"] for name in ("coef", "intercept", "floor"))
        classes = _linear(*ridge)
    words = _linear(arrays["coef_"], arrays["intercept_"], arrays.get("floor_"))
    return _on_components(arrays, classes, words)


def _low_rank(readout: Any) -> Described:
    arrays = readout.state_dict()
    classes = _linear(arrays["class_coef_"].T, arrays["class_intercept_"])
    words = _linear(arrays["word_coef_"], arrays["word_intercept_"])
    kind, described = _on_components(arrays, classes, words)
    if len(arrays["direct_coef_"]):
        described["direct"] = arrays["direct_coef_"]
    if len(arrays["pairs_"]):
        described |= {"pairs": arrays["pairs_"], "pair_direct": arrays["pair_coef_"]}
    if "unigram_" in arrays:
        described["unigram"] = arrays["unigram_"]
    sizes = {"n_direct": len(arrays["direct_coef_"]), "n_pairs": len(arrays["pairs_"])}
    sizes["unigram"] = "unigram_" in arrays
    return kind | sizes | {"n_tokens": len(readout.classes_)}, described


def _on_components(arrays: Arrays, classes: Described, words: Described) -> Described:
    """Classes, and words in them, that read components of the state."""
    layout = ClassLayout(arrays["word_class_"])
    inner = {"kind": "factored", "sizes": layout.sizes.tolist()}
    inner |= {"classes": classes[0], "words": words[0]}
    described = {"directions": arrays["directions_"], "shift": arrays["shift_"]}
    described["inner.position"] = layout.position.astype(np.int64)
    described |= with_prefix("inner.classes", classes[1]) | with_prefix("inner.words", words[1])
    n_components = arrays["directions_"].shape[1]
    return {"kind": "low_rank", "n_components": n_components, "inner": inner}, described


def _reduced_rank(readout: Any) -> Described:
    arrays = readout.state_dict()
    inner = _linear(arrays["up_"].T, arrays["intercept_"])
    n_components = arrays["down_"].shape[1]
    described = {"directions": arrays["down_"], "shift": np.zeros(n_components, np.float32)}
    described |= with_prefix("inner", inner[1])
    return {"kind": "low_rank", "n_components": n_components, "inner": inner[0]}, described


def _uniform(n_outputs: int) -> Described:
    return {"kind": "uniform", "n_outputs": n_outputs}, {}


_KINDS: dict[str, Callable[[Any], Described]] = {
    "RidgeReadout": _ridge,
    "SoftmaxReadout": _softmax,
    "MixtureOfExpertsReadout": _mixture,
    "ClassFactoredReadout": _factored,
    "LowRankReadout": _low_rank,
    "ReducedRankSoftmaxReadout": _reduced_rank,
}
