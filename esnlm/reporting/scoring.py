"""Scores of a report's models on text that is given to it, beside n-grams of the training text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from esnlm.evaluation.calibration import Calibration, calibration
from esnlm.evaluation.measures import Evaluation
from esnlm.evaluation.measures import ScoredText as Part
from esnlm.evaluation.token_groups import (
    Judged,
    by_frequency,
    by_position,
    by_seen,
    judged_tokens,
    sentences_and_positions,
)
from esnlm.ngrams.kneser_ney import KneserNey, longest_seen
from esnlm.reporting.page import six_digits
from esnlm.text.corpus import TokenStream, join_sequences
from esnlm.text.shuffling import evenly_spaced, target_counts
from esnlm.text.source import open_source
from esnlm.training.baselines import ORDER
from esnlm.utils.arrays import Floats, Ints64
from esnlm.utils.interpolation import likeliest_weight, log_mixture
from esnlm.utils.memory import check_memory

#: How tables call the baselines that are counted in the training text.
NGRAMS = f"Kneser-Ney {ORDER}-gram"
UNIGRAMS = "unigrams"
#: Held-out tokens that `esnlm train` scores along the way by default.
_LOGGED = 1 << 15
_NGRAM_BYTES = 120


@dataclass
class ModelScores:
    """Models that read text alike, and baselines, on the same held-out tokens.

    ``names`` of models first, then of baselines and mixtures with the n-grams. ``rows`` are those
    of `esnlm evaluate`, of the models. ``sequence`` is what begins with a state of zero.
    ``logged``: losses of baselines on the part of the text that training logs score. ``weights``:
    shares of a model beside the n-grams, one for each half.
    """

    names: list[str]
    models: list[str]
    rows: list[dict[str, Any]]
    judged: Judged
    sequence: str
    logged: dict[str, float]
    weights: dict[str, tuple[float, float]]
    calibrations: dict[str, Calibration]

    def losses(self, by: str) -> Iterator[dict[str, Any]]:
        """Rows of model, group, number of tokens, loss and its interval, by a grouping."""
        intervals = self.judged.intervals()
        for run, name in enumerate(self.names):
            for place, (kind, group) in enumerate(self.judged.groups):
                if kind == by:
                    figures = self.judged.values[run, place], *intervals[run, place]
                    loss, lower, upper = (six_digits(float(value)) for value in figures)
                    n_tokens = int(self.judged.sizes[place])
                    row = {"model": name, "group": group, "n_tokens": n_tokens}
                    yield row | {"nats": loss, "lower": lower, "upper": upper}

    def loss(self, name: str) -> float:
        """Loss of all tokens."""
        return float(self.judged.values[self.names.index(name), 0])


def scored(models: Mapping[str, Any], **options: Any) -> list[ModelScores]:
    """Score models on held-out text, those with one tokenizer together.

    With training text, n-grams and unigrams of it stand beside them, and tokens are grouped by
    their frequency in it, and by the longest n-gram of it that ends there. ``options`` are those
    of `esnlm.reporting.report.render_report`.
    """
    alike: dict[str, dict[str, Any]] = {}
    for name, model in models.items():
        tokenizer = None if model.tokenizer_ is None else model.tokenizer_.to_json()
        alike.setdefault(repr((tokenizer, model.reset_, model.n_tokens_)), {})[name] = model
    return [_scored(each, **options) for each in alike.values()]


def _scored(
    models: Mapping[str, Any],
    held_out: Sequence[str],
    train: Sequence[str],
    split_of: Callable[[Any], str],
    n_resamples: int,
) -> ModelScores:
    """Score models of one tokenizer, and baselines, on the same held-out tokens."""
    (first, *_), names = models.values(), list(models)
    split = split_of(first)
    parts: list[Part] = []
    evaluation = Evaluation(list(models.values()), names, split, verbose=True)
    rows = evaluation.rows(held_out, lambda _, part: parts.append(replace(part, docs=())))
    streams = [part.stream for part in parts]
    starts = [() if each.starts is None else each.starts[1:] for each in streams]
    stream = join_sequences(
        [np.split(each.tokens, at) for each, at in zip(streams, starts, strict=True)],
        n_tokens=first.n_tokens_,
        reset=streams[0].starts is not None,
    )
    marks = np.concatenate([part.predicted for part in parts])
    runs = zip(*(part.scores for part in parts), strict=True)
    scores = {name: np.concatenate(each)[marks] for name, each in zip(names, runs, strict=True)}
    tokens = np.asarray(stream.tokens)[marks].astype(np.int64)
    sentence, position = sentences_and_positions(stream, marks)
    groupings = [] if stream.starts is None else [by_position(position)]
    logged, weights = {}, {}
    if train:
        text = _read(first, train, split)
        check_memory(
            f"counting the {ORDER}-grams of {len(text.tokens)} tokens",
            _NGRAM_BYTES * len(text.tokens),
            "give a part of the training text",
        )
        ngrams = KneserNey(order=ORDER, n_tokens=first.n_tokens_)
        ngrams.fit(text.tokens, starts=text.starts)
        counts = target_counts(text, first.n_tokens_)
        longest = longest_seen(ngrams, stream.tokens, stream.starts)[marks]
        groupings = [by_frequency(counts[tokens]), *groupings, by_seen(longest, ORDER)]
        unigrams = np.log((counts + 0.5) / (counts + 0.5).sum())
        part = evenly_spaced(stream, _LOGGED)
        for name, log_probabilities in (
            (NGRAMS, lambda some: ngrams.log_probabilities(some.tokens, some.starts)),
            (UNIGRAMS, lambda some: unigrams[some.tokens]),
        ):
            scores[name] = log_probabilities(stream)[marks]
            logged[name] = -float(log_probabilities(part)[part.predicted()].mean())
        for name in names:
            mixed, weights[name] = _mixed(scores[name], scores[NGRAMS], sentence)
            scores[f"{name} + n-gram"] = mixed
    judged = judged_tokens(
        list(scores.values()), sentence, groupings, n_resamples=n_resamples, random_state=0
    )
    calibrations = {name: calibration(model, stream) for name, model in models.items()}
    return ModelScores(
        list(scores), names, rows, judged, first.reset_, logged, weights, calibrations
    )


def _read(model: Any, paths: Sequence[str], split: str) -> TokenStream:
    """Return training text, or shards, as the model reads it."""
    source = open_source(paths)
    if not source.is_shards:
        return model.tokenize(source.documents(split))
    if model.tokenizer_ is None or source.shards.tokenizer.to_json() != model.tokenizer_.to_json():
        raise ValueError(f"the tokenizer of the shards in {paths[0]} is not the model's")
    return source.shards.stream()


def _mixed(scores: Floats, ngrams: Floats, sentence: Ints64) -> tuple[Floats, tuple[float, float]]:
    """Log-probabilities of the mean of both, and its weights: each half's is the other's best."""
    odd = sentence % 2 == 1
    if odd.all() or not odd.any():
        return log_mixture([scores, ngrams], [0.5, 0.5]), (0.5, 0.5)
    mixed, weights = np.empty(len(scores)), []
    for half in (odd, ~odd):
        weight = likeliest_weight(scores[~half], ngrams[~half])
        mixed[half] = log_mixture([scores[half], ngrams[half]], [weight, 1 - weight])
        weights.append(weight)
    return mixed, (weights[0], weights[1])
