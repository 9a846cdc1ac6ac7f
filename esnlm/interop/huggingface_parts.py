"""Encoders and readouts as `esnlm.interop.exported` takes them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from esnlm.ngrams.backoff import BackoffNgrams
from esnlm.ngrams.kneser_ney import KneserNey
from esnlm.readouts.class_based.word_factors import ClassLayout
from esnlm.readouts.linear.simplex import least_output
from esnlm.readouts.mixture.em import LOWEST_LOGIT
from esnlm.utils.arrays import Array
from esnlm.utils.state_dict import Arrays, under_prefix, with_prefix
from esnlm.utils.validation import at_fit

#: What ``config.json`` says of a part, and its arrays.
Described = tuple[dict[str, Any], Arrays]


def describe_reservoir(reservoir: Any) -> Described:
    """Return a fitted reservoir; W_in is stored transposed, one row an input."""
    inputs = reservoir.W_in_.T
    sparse = {"recurrent": scipy.sparse.csr_matrix(reservoir.W_)}
    arrays = {"bias": reservoir.bias_, "leak_rate": reservoir.leak_rate_}
    if scipy.sparse.issparse(inputs):
        sparse["input"] = scipy.sparse.csr_matrix(inputs)
    else:
        arrays["input"] = inputs
    for matrix in sparse.values():
        matrix.sum_duplicates()
    numbers = [sparse["recurrent"].indices, *(matrix.indptr for matrix in sparse.values())]
    index_dtype = np.result_type(*(array.dtype for array in numbers))
    for name, matrix in sparse.items():
        arrays[f"{name}.data"] = matrix.data
        arrays[f"{name}.indices"] = matrix.indices.astype(index_dtype)
        arrays[f"{name}.indptr"] = matrix.indptr.astype(index_dtype)
    return {
        "kind": "reservoir",
        "n_units": len(reservoir.bias_),
        "n_inputs": int(reservoir.n_inputs_),
        "activation": at_fit(reservoir)["activation"],
        "nnz": int(sparse["recurrent"].nnz),
        "input_nnz": int(sparse["input"].nnz) if "input" in sparse else None,
        "index_dtype": index_dtype.name,
    }, arrays


def describe_readout(readout: Any) -> Described:
    """Return a fitted readout; ValueError for a kind that the exported code does not know."""
    name = type(readout).__name__
    if name not in _KINDS:
        raise ValueError(f"cannot export a {name}: expected one of {', '.join(_KINDS)}")
    return _KINDS[name](readout)


def _plain(readout: Any) -> Described:
    """Ridge, whose outputs have a floor, or softmax."""
    arrays = readout.state_dict()
    floor = at_fit(readout).get("floor")
    if floor is not None:
        floor = np.array([least_output(len(readout.classes_)) if floor == "auto" else float(floor)])
    return _linear(arrays["coef_"], arrays["intercept_"], floor)


def _linear(coef: Any, intercept: Any, floor: Array | None = None) -> Described:
    described = {"coef": coef, "intercept": intercept} | ({} if floor is None else {"floor": floor})
    n_floors = 0 if floor is None else len(floor)
    return {"kind": "linear", "n_outputs": len(coef), "n_floors": n_floors}, described


def _mixture(readout: Any) -> Described:
    arrays = readout.state_dict()
    names = {"mean": "whitening_mean_", "map": "whitening_map_", "experts": "expert_coef_",
             "gate": "gate_coef_"}  # fmt: skip
    kind, described = _gated({ours: arrays[theirs] for ours, theirs in names.items()})
    kind["lowest"] = LOWEST_LOGIT
    if at_fit(readout)["experts"] == "linear":
        kind["n_floors"] = 1
        described["floor"] = np.array([least_output(kind["n_outputs"])])
    return kind, described


def _gated(described: Arrays) -> Described:
    """Return a mixture without floor."""
    n_experts, n_outputs = described["experts"].shape[:2]
    sizes = {"n_outputs": n_outputs, "n_experts": n_experts, "n_floors": 0}
    return {"kind": "mixture"} | sizes, described


def _factored(readout: Any) -> Described:
    """Return a readout of word classes and of the words within each class."""
    arrays = readout.state_dict()
    if "directions_" in arrays:
        return _joint(arrays)
    layout = ClassLayout(arrays["word_class_"])
    sizes = layout.sizes.tolist()
    classes: Described = _uniform(1)
    if readout.class_factor_ is not None:
        classes = describe_readout(readout.class_factor_)
    described = {"position": layout.position.astype(np.int64)}
    described |= with_prefix("classes", classes[1])
    factors = []
    for c, size in enumerate(sizes):
        factor_readout = readout.word_factors_.get(c)
        factor, arrays = (
            _uniform(size) if factor_readout is None else describe_readout(factor_readout)
        )
        factors.append(factor)
        described |= with_prefix(f"words.{c}", arrays)
    kind = {"kind": "factored", "sizes": sizes, "classes": classes[0], "factors": factors}
    return kind, described


def _joint(arrays: Arrays) -> Described:
    """Factors on components: a factored readout within one of low rank."""
    n_components = arrays["directions_"].shape[1]
    if "gate_" in arrays:
        n_experts = arrays["gate_"].shape[1]
        experts = arrays["class_weights_"].T.reshape(n_experts, -1, n_components + 1)
        described = {"mean": np.zeros(n_components), "map": np.eye(n_components)}
        classes = _gated(described | {"experts": experts, "gate": arrays["gate_"].T})
    elif "class_weights_" in arrays:
        weights = arrays["class_weights_"]
        classes = _linear(weights[:-1].T, weights[-1])
    else:
        ridge = (arrays[f"class_{name}_"] for name in ("coef", "intercept", "floor"))
        classes = _linear(*ridge)
    words = _linear(arrays["coef_"], arrays["intercept_"], arrays.get("floor_"))
    return _on_components(arrays, classes, words)


def _low_rank(readout: Any) -> Described:
    """Return a readout of classes and words on few components, with direct connections."""
    arrays = readout.state_dict()
    classes = _linear(arrays["class_coef_"].T, arrays["class_intercept_"])
    words = _linear(arrays["word_coef_"], arrays["word_intercept_"])
    kind, described = _on_components(arrays, classes, words)
    further = {"direct": "direct_coef_", "ngrams": "ngrams_", "ngram_direct": "ngram_coef_",
               "unigram": "unigram_"}  # fmt: skip
    optional = {ours: arrays.get(theirs, ()) for ours, theirs in further.items()}
    described |= {name: array for name, array in optional.items() if len(array)}
    sizes = {"n_direct": len(arrays["direct_coef_"]), "n_ngrams": len(arrays["ngrams_"])}
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
    "RidgeReadout": _plain,
    "SoftmaxReadout": _plain,
    "MixtureOfExpertsReadout": _mixture,
    "ClassFactoredReadout": _factored,
    "LowRankReadout": _low_rank,
    "ReducedRankSoftmaxReadout": _reduced_rank,
}


def describe_network(network: Any) -> tuple[Described, Described, int]:
    """Return encoder, readout and width of hidden vectors of a network of torch."""
    kind = type(network).__name__
    if kind not in ("LSTM", "EchoStateNetworkWithMLP"):
        raise ValueError(
            f"cannot export a model {kind}: expected one on a reservoir, n-grams, or a network"
            " esn, esn+i, esn+mlp or lstm"
        )
    if getattr(network, "trained_inputs", False):
        raise ValueError("cannot export an esn+mlp with trained_inputs: expected frozen inputs")
    arrays = {name: value.cpu().numpy() for name, value in network.state_dict().items()}
    output = under_prefix("output", arrays)
    arrays = {name: array for name, array in arrays.items() if not name.startswith("output.")}
    if kind == "LSTM":
        sizes = {"kind": "lstm", "n_units": network.n_units, "n_layers": network.n_layers}
        sizes["norm"] = network.two_level
        return (sizes, arrays), _two_level(output), network.n_units
    names = ("width", "n_hidden", "n_blocks", "n_direct", "attention", "n_heads", "gates")
    sizes = {"kind": "layers"} | {name: getattr(network, name) for name in names}
    sizes |= {"n_pairs": len(arrays["pairs"]), "reservoir": None}
    features = arrays.pop("inputs.vectors", None)
    if network.state:
        reservoir, of_reservoir = describe_reservoir(network.reservoir)
        if features is not None:
            reservoir["features"], of_reservoir["features"] = True, features
        sizes["reservoir"] = reservoir
        arrays |= with_prefix("reservoir", of_reservoir)
    else:
        arrays = {name: array for name, array in arrays.items() if name not in _OF_STATES}
    return (sizes, arrays), _two_level(output), network.width


# Of each unit, which a network without state has, too.
_OF_STATES = ("mean", "deviation")


def _two_level(output: Arrays) -> Described:
    """Return a softmax over classes and the words of a class, or over all words."""
    if "word_class" not in output:
        return _linear(output["weight"], output["bias"])
    layout = ClassLayout(output["word_class"])
    classes = _linear(output["classes.weight"], output["classes.bias"])
    words = _linear(output["coef"], output["intercept"])
    described: Arrays = {"position": layout.position.astype(np.int64)}
    described |= with_prefix("classes", classes[1]) | with_prefix("words", words[1])
    sizes = layout.sizes.tolist()
    kind = {"kind": "factored", "sizes": sizes, "classes": classes[0], "words": words[0]}
    return kind, described


def describe_ngrams(ngrams: KneserNey | BackoffNgrams) -> Described:
    """Return the tables of n-grams with back-off weights."""
    tables = BackoffNgrams.of(ngrams) if isinstance(ngrams, KneserNey) else ngrams
    arrays = {name.replace(".", "_"): array for name, array in tables.state_dict().items()}
    sizes = [len(keys) for keys in tables.keys]
    return {"kind": "ngrams", "sizes": sizes, "n_tokens": tables.n_tokens_}, arrays
