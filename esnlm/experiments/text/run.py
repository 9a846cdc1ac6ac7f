"""Fit and score one model of the text experiment."""

import json
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

import esnlm
from esnlm.datasets import load_penn_treebank, load_tiny_shakespeare
from esnlm.experiments.common.subprocess_run import Lifeline, peak_rss_mib
from esnlm.models.ngram import NgramLanguageModel
from esnlm.text.boundaries import joined
from esnlm.text.corpus import TokenStream
from esnlm.text.tokenizers import Tokenizer

#: Entries of the word vocabularies; Penn Treebank's is closed already.
_WORDS = {"ptb": None, "tiny_shakespeare": 5000}


def measure(setting: Mapping[str, Any], _: Lifeline) -> dict[str, Any]:
    """Fit and score the model of one setting: the measured columns of its row."""
    texts = read_texts(setting["dataset"], setting["place"])
    if setting["tokenizer"] == "char":
        tokenizer, reset = Tokenizer.train_characters([texts["train"]]), "never"
    else:
        limit = _WORDS[setting["dataset"]]
        tokenizer, reset = Tokenizer.train_words([texts["train"]], vocab_size=limit), "sentence"
    streams = {part: joined(text, tokenizer, reset, len(tokenizer)) for part, text in texts.items()}
    model: Any
    held_out, test = {}, streams["test"]
    if setting["model"] == "kneser-ney":
        model = NgramLanguageModel(order=setting["size"], n_tokens=len(tokenizer), reset=reset)
        test = TokenStream(test.tokens, test.starts, np.append(0, np.cumsum(test.lengths)))
    else:
        options = json.loads(setting["settings"])
        reservoir = esnlm.Reservoir(setting["size"], random_state=0, **options["reservoir"])
        readout = getattr(esnlm, setting["model"])(**options["readout"])
        model = esnlm.LanguageModel(
            reservoir, readout, reset=reset, n_tokens=len(tokenizer), random_state=0
        )
        # Ridge cross-validates in closed form; scoring held-out words by every penalty costs
        # more than the fit itself where the vocabulary is large.
        if setting["model"] != "RidgeReadout":
            held_out = {"held_out": streams.get("valid")}
    start = time.perf_counter()
    model.fit(streams["train"], **held_out)
    fitted = time.perf_counter()
    nll = -sum(float(scores.sum()) for scores in model.log_likelihood(test))
    scored = time.perf_counter()
    predicted = test.tokens[test.predicted()]
    return {
        "fit_seconds": fitted - start,
        "score_seconds": scored - fitted,
        "n_parameters": model.n_parameters_,
        "vocabulary": len(tokenizer),
        "n_train_tokens": streams["train"].n_predicted,
        "n_test_tokens": len(predicted),
        "nll_per_token": nll / len(predicted),
        "perplexity": math.exp(nll / len(predicted)),
        "bits_per_character": nll / math.log(2) / len(texts["test"]),
        "unknown_share": float(np.mean(predicted == tokenizer.unk_id)),
        "peak_rss_mib": peak_rss_mib(),
    }


def read_texts(dataset: str, place: str | None) -> dict[str, str]:
    """Read the parts of a data set from a local file or folder, or download them."""
    return load_penn_treebank(place) if dataset == "ptb" else load_tiny_shakespeare(place)
