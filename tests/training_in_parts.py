"""Models trained on shards in parts."""

from pathlib import Path
from typing import Any

import numpy as np

from esnlm import (
    ClassFactoredReadout,
    LanguageModel,
    LowRankReadout,
    MixtureOfExpertsReadout,
    Reservoir,
    RidgeReadout,
    SoftmaxReadout,
    SpectralWordFeatures,
)
from esnlm.storage.model_folder import WEIGHTS
from esnlm.text.shard_parts import PartedCorpus
from esnlm.training.parts_trainer import PartsTrainer
from esnlm.training.trainer import TrainingPlan

PLAN = TrainingPlan(chunk_tokens=400, random_state=3)
READOUTS: dict[str, Any] = {
    "ridge": RidgeReadout(),
    "penalised ridge": RidgeReadout(alpha=1.0),
    "sampled ridge": RidgeReadout(gram_rows=900),
    "factored ridge": ClassFactoredReadout(
        n_classes=4, class_readout="ridge", word_readout="ridge", n_components=10, random_state=0
    ),
    "softmax": SoftmaxReadout(n_passes=2),
    "low rank": LowRankReadout(n_components=8, n_direct=2, n_ngrams=20, random_state=0),
    "factored": ClassFactoredReadout(n_classes=3, solver="joint", random_state=0),
    "experts": ClassFactoredReadout(
        n_classes=3, class_readout="moe", solver="joint", random_state=0
    ),
}
READOUTS |= {
    kind: MixtureOfExpertsReadout(n_experts=2, experts=kind.split()[0], max_iter=6, random_state=0)
    for kind in ("softmax experts", "linear experts")
}
STEPS = ["softmax", "low rank", "factored", "experts"]


def model_of(
    corpus: PartedCorpus,
    readout: str = "ridge",
    features: Any = "spectral",
    dtype: Any = np.float32,
) -> Any:
    if features == "spectral":
        features = SpectralWordFeatures(n_features=6, random_state=0)
    reservoir = Reservoir(30, leak_rate=0.5, dtype=dtype, random_state=1)
    model = LanguageModel(
        reservoir, READOUTS[readout], tokenizer=corpus.tokenizer, features=features
    )
    model._use_tokenizer(corpus.tokenizer)
    return model


def trained(place: Path | str, readout: str = "ridge", n_parts: int = 5, **options: Any) -> Any:
    """The model's arrays as bytes, by name."""
    corpus = PartedCorpus(place)
    model = model_of(corpus, readout, options.pop("features", "spectral"))
    PartsTrainer(model, corpus, None, PLAN, n_parts=n_parts, **options).run()
    return {name: array.tobytes() for name, array in model._contents()[1][WEIGHTS].items()}
