"""Log-probabilities of sentences, and which sentence of each minimal pair a model prefers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from esnlm.evaluation.minimal_pairs.records import Pair
from esnlm.models.base import SequenceModel
from esnlm.text.boundaries import without_marks
from esnlm.text.corpus import join_sequences
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.arrays import Bools, Floats
from esnlm.utils.messages import progress_bar
from esnlm.utils.validation import OneOf

REDUCTIONS = ("sum", "mean")
#: Scores that differ by less, relative to their size, are equal: the models' own arithmetic has
#: seven digits, and its last depends on what is scored beside a sentence.
TIE = 1e-6
_BATCH = 4096


@dataclass(frozen=True)
class PairScores:
    """Log-probabilities of n pairs: ``good`` (n,) and ``bad`` (n,), and the options used."""

    good: Floats
    bad: Floats
    bos: bool
    reduction: str
    eos: bool = False
    prefix_space: bool = False

    @property
    def ties(self) -> Bools:
        """Whether the two sentences are equally probable (n,)."""
        size = np.maximum(np.abs(self.good), np.abs(self.bad))
        with np.errstate(invalid="ignore"):
            near = np.abs(self.good - self.bad) <= TIE * size
        return np.asarray((self.good == self.bad) | (near & np.isfinite(size)))

    @property
    def credit(self) -> Floats:
        """1 for a right choice, 0.5 for a tie, 0 for a wrong one (n,)."""
        return np.where(self.ties, 0.5, self.right)

    @property
    def right(self) -> Bools:
        """Whether the acceptable sentence is the likelier one (n,)."""
        return np.asarray((self.good > self.bad) & ~self.ties)


def score_pairs(
    model: Any,
    pairs: Sequence[Pair],
    *,
    eos: bool = False,
    bos: bool | None = None,
    reduction: str = "sum",
    prefix_space: bool = False,
    verbose: bool = False,
) -> PairScores:
    """Score both sentences of every pair; see `sentence_log_likelihoods` for the options.

    Raises FloatingPointError where a score is not a number.
    """
    sentences = [sentence for pair in pairs for sentence in (pair.good, pair.bad)]
    options: Any = {"eos": eos, "reduction": reduction, "prefix_space": prefix_space}
    scores = sentence_log_likelihoods(model, sentences, bos=bos, verbose=verbose, **options)
    if np.isnan(scores).any():
        worst = sentences[int(np.argmax(np.isnan(scores)))]
        raise FloatingPointError(f"the model's score of {worst!r} is not a number")
    return PairScores(scores[::2], scores[1::2], _reads_bos(model, bos), **options)


def sentence_log_likelihoods(
    model: Any,
    sentences: Sequence[str],
    *,
    eos: bool = False,
    bos: bool | None = None,
    reduction: str = "sum",
    prefix_space: bool = False,
    verbose: bool = False,
) -> Floats:
    """Natural-log probability (n,) of each of n sentences, read from a zero state.

    Equal to the sums of ``model.log_likelihood`` of each sentence alone, apart from EOS. A
    sentence that occurs several times is scored once. Line ends in it are read as they are, without
    a beginning or an end of a sentence there.

    ``model`` is a SequenceModel, or has ``tokenizer_`` and a ``log_likelihood`` of documents that
    are integer arrays, ``doc[1:]`` of each. With ``eos`` the end of the sentence is scored too.
    With ``bos`` BOS is read first, whereby the first token is scored; None: as the model was
    trained, with BOS unless it has none or never resets its state. ``reduction`` is "sum", or
    "mean" over the tokens scored, 0 where there is none. With ``prefix_space`` a space is put
    before each sentence. ``verbose`` shows progress on standard error if it is a terminal.
    """
    OneOf(REDUCTIONS).check("reduction", reduction)
    for place, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise ValueError(
                f"sentences must be strings, got {type(sentence).__name__} as number {place}"
            )
    tokenizer, reset = _tokenizer(model), getattr(model, "reset_", "sentence")
    texts = [without_marks(sentence, tokenizer, reset) for sentence in sentences]
    batches = tokenizer.encode_batches([f" {text}" for text in texts] if prefix_space else texts)
    sequences = [frame(model, ids.tolist(), bos=bos, eos=eos) for ids in batches]
    sums = _sums(model, sequences, verbose)
    n_scored = np.maximum([len(ids) - 1 for ids in sequences], 1)
    return sums if reduction == "sum" else sums / n_scored


def frame(
    model: Any, ids: Sequence[int], *, bos: bool | None = None, eos: bool = False
) -> tuple[int, ...]:
    """Return the tokens of a sentence with BOS before and EOS after; see `_reads_bos`."""
    tokenizer = _tokenizer(model)
    before = [_boundary(tokenizer.bos_id, "BOS")] if _reads_bos(model, bos) else []
    after = [_boundary(tokenizer.eos_id, "EOS")] if eos else []
    return (*before, *ids, *after)


def _sums(model: Any, sequences: Sequence[tuple[int, ...]], verbose: bool) -> Floats:
    """Return summed log-probability (n,) of ``ids[1:]`` for each sequence of ids."""
    sums = dict.fromkeys(sequences, 0.0)
    for ids, scores in token_log_likelihoods(model, sums, verbose=verbose):
        sums[ids] = float(np.sum(scores, dtype=np.float64))
    return np.array([sums[ids] for ids in sequences], dtype=np.float64)


def token_log_likelihoods(
    model: Any, sequences: Iterable[tuple[int, ...]], *, verbose: bool = False
) -> Iterator[tuple[tuple[int, ...], Floats]]:
    """Yield each sequence of two or more ids once, and the log-probabilities of ``ids[1:]``."""
    # In lexicographic order: a model may read the beginning that neighbours share once.
    distinct = sorted({ids for ids in sequences if len(ids) > 1})
    batches = [distinct[first : first + _BATCH] for first in range(0, len(distinct), _BATCH)]
    options = {"unit": "sentence", "unit_scale": _BATCH, "leave": False, "desc": "scoring"}
    for batch in progress_bar(verbose, batches, **options):
        docs: Any = [np.array(ids, dtype=np.int64) for ids in batch]
        if isinstance(model, SequenceModel):  # every sentence begins anew, whatever model.reset
            docs = join_sequences(([doc] for doc in docs), n_tokens=model.n_tokens_, reset=True)
        yield from zip(batch, model.log_likelihood(docs), strict=True)


def _reads_bos(model: Any, bos: bool | None) -> bool:
    if bos is not None:
        return bos
    return _tokenizer(model).bos_id is not None and getattr(model, "reset_", None) != "never"


def _tokenizer(model: Any) -> Tokenizer:
    tokenizer: Tokenizer | None = getattr(model, "tokenizer_", None)
    if tokenizer is None:
        raise ValueError("the model was trained on integers and has no tokenizer to read text with")
    return tokenizer


def _boundary(token: int | None, name: str) -> int:
    if token is None:
        raise ValueError(f"the tokenizer of the model has no {name}: score sentences without it")
    return token
