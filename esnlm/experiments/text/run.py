"""Fit and score one model of the text experiment."""

import json
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from esnlm.experiments.common.subprocess_run import Lifeline, peak_rss_mib
from esnlm.text.boundaries import framed
from esnlm.text.corpus import TokenStream, join_sequences
from esnlm.text.datasets import penn_treebank, tiny_shakespeare
from esnlm.text.tokenizers import Tokenizer

#: Entries of the word vocabularies; Penn Treebank's is closed already.
_WORDS = {"ptb": None, "tiny_shakespeare": 5000}


def measure(setting: Mapping[str, Any], _: Lifeline) -> dict[str, Any]:
    """Fit and score the model of one setting: the measured columns of its row."""
    texts = read_texts(setting["dataset"], setting["place"])
    tokenizer = _tokenizer(setting, texts["train"])
    reset = "never" if setting["tokenizer"] == "char" else "sentence"
    streams = {
        part: join_sequences(
            framed([text], tokenizer, reset), n_tokens=len(tokenizer), reset=reset == "sentence"
        )
        for part, text in texts.items()
    }
    run = _ngrams if setting["model"] == "kneser-ney" else _reservoir
    measured = run(setting, streams, len(tokenizer), reset)
    test = streams["test"]
    nll = measured.pop("nll")
    predicted = test.tokens[test.predicted()]
    return measured | {
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
    if dataset == "ptb":
        return penn_treebank(place)
    return tiny_shakespeare(place)


def _tokenizer(setting: Mapping[str, Any], text: str) -> Tokenizer:
    if setting["tokenizer"] == "char":
        return Tokenizer.train_characters([text])
    return Tokenizer.train_words([text], _WORDS[setting["dataset"]])


def _ngrams(
    setting: Mapping[str, Any], streams: Mapping[str, TokenStream], n_tokens: int, reset: str
) -> dict[str, Any]:
    from esnlm.models.ngram import NgramLanguageModel

    model = NgramLanguageModel(setting["size"], n_tokens=n_tokens, reset=reset)
    test = streams["test"]
    starts = [0] if test.starts is None else test.starts
    by_sequence = TokenStream(test.tokens, test.starts, np.append(starts, len(test.tokens)))
    return _fitted_and_scored(model, partial(model.fit, streams["train"]), by_sequence)


def _reservoir(
    setting: Mapping[str, Any], streams: Mapping[str, TokenStream], n_tokens: int, reset: str
) -> dict[str, Any]:
    import esnlm

    options = json.loads(setting["settings"])
    reservoir = esnlm.Reservoir(setting["size"], random_state=0, **options["reservoir"])
    readout = getattr(esnlm, setting["model"])(**options["readout"])
    model = esnlm.LanguageModel(reservoir, readout, reset=reset, n_tokens=n_tokens, random_state=0)
    # Ridge cross-validates in closed form; scoring held-out words by every penalty costs more
    # than the fit itself where the vocabulary is large.
    closed_form = setting["model"] == "RidgeReadout"
    held_out = None if closed_form else streams.get("valid")
    fit = partial(model.fit, streams["train"], held_out=held_out)
    return _fitted_and_scored(model, fit, streams["test"])


def _fitted_and_scored(model: Any, fit: Callable[[], Any], test: Any) -> dict[str, Any]:
    """Negative log-likelihood of the test text in nats, times and number of parameters."""
    start = time.perf_counter()
    fit()
    fitted = time.perf_counter()
    nll = -sum(float(scores.sum()) for scores in model.log_likelihood(test))
    return {
        "nll": nll,
        "fit_seconds": fitted - start,
        "score_seconds": time.perf_counter() - fitted,
        "n_parameters": model.n_parameters_,
    }
