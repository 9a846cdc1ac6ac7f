"""Log-probabilities of many sentences, each prefix that they share read once."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from esnlm.evaluation.minimal_pairs.prefix_tree import Level, in_order, levels
from esnlm.models.base import SequenceModel
from esnlm.readouts.base.last_tokens import NO_TOKEN
from esnlm.text.corpus import join_sequences
from esnlm.text.tokenizers import Tokenizer
from esnlm.utils.validation import check_choice

Sequences = Sequence[NDArray[np.integer]]
Floats = NDArray[np.float64]

REDUCTIONS = ("sum", "mean")
_STATE_BYTES = 256 << 20
_MOST_ROWS = 16384
_MOST_TOKENS = 1 << 22
_BATCH = 4096
_GATHERED = 1024


def sentence_log_likelihoods(
    model: Any,
    sentences: Sequence[str],
    *,
    eos: bool = False,
    bos: bool | None = None,
    reduction: str = "sum",
    verbose: bool = False,
) -> Floats:
    """Natural-log probability (n,) of each of n sentences, read from a zero state.

    Equal to the sums of ``model.log_likelihood`` of each sentence alone, apart from EOS. Prefixes
    that sentences share are read once; memory does not grow with their number but for their
    tokens and scores.

    Parameters
    ----------
    model : LanguageModel, or a model with ``tokenizer_`` and ``log_likelihood``
        The latter scores documents that are integer arrays, ``doc[1:]`` of each, as n-grams do.
    sentences : n strings of one line each
    eos : bool
        Score the end of the sentence too.
    bos : bool, optional
        Read BOS first, whereby the first token is scored. None: as the model was trained, with
        BOS unless it has none or never resets its state.
    reduction : {"sum", "mean"}
        Mean: over the tokens scored; 0 where there is none.
    verbose : bool
        Show progress on standard error, if a person sees it.

    Raises
    ------
    ValueError
        A sentence is no string of one line, or the tokenizer lacks the boundary asked for.

    Examples
    --------
    >>> from esnlm import LanguageModel, Reservoir, RidgeReadout
    >>> docs = ["the boy sees the dog", "the dog sees the boy"] * 5
    >>> model = LanguageModel(Reservoir(50, random_state=0), RidgeReadout(), tokenizer="word")
    >>> good, bad = sentence_log_likelihoods(model.fit(docs), ["the boy sees", "sees the boy"])
    >>> bool(good > bad)
    True
    """
    check_choice("reduction", reduction, REDUCTIONS)
    sequences = framed_sentences(model, sentences, eos=eos, bos=bos)
    hidden = None if verbose else True  # None: hidden where no terminal shows it
    with tqdm(total=len(sequences), unit="sentence", leave=False, disable=hidden) as bar:
        sums = _sums(model, sequences, bar)
    if reduction == "sum":
        return sums
    return sums / np.maximum([len(sequence) - 1 for sequence in sequences], 1)


def framed_sentences(
    model: Any, sentences: Sequence[str], *, eos: bool = False, bos: bool | None = None
) -> list[NDArray[np.int64]]:
    """The ids of each sentence, BOS before and EOS after it where they are wanted."""
    tokenizer = _tokenizer(model)
    for place, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise ValueError(
                f"sentences must be strings, got {type(sentence).__name__} as number {place}"
            )
        if len(sentence.splitlines()) > 1:
            raise ValueError(f"a sentence must be one line, got {sentence!r}")
    before = [_boundary(tokenizer.bos_id, "BOS")] if reads_bos(model, bos) else []
    after = [_boundary(tokenizer.eos_id, "EOS")] if eos else []
    return [
        np.concatenate([before, ids, after]).astype(np.int64)
        for ids in tokenizer.encode_batches(sentences)
    ]


def reads_bos(model: Any, bos: bool | None = None) -> bool:
    """Whether BOS is read before a sentence: what was asked for, or the model's own way."""
    if bos is not None:
        return bos
    return _tokenizer(model).bos_id is not None and getattr(model, "reset", None) != "never"


def _tokenizer(model: Any) -> Tokenizer:
    tokenizer: Tokenizer | None = getattr(model, "tokenizer_", None)
    if tokenizer is None:
        raise ValueError("the model was trained on integers and has no tokenizer to read text with")
    return tokenizer


def _boundary(token: int | None, name: str) -> int:
    if token is None:
        raise ValueError(f"the tokenizer of the model has no {name}: score sentences without it")
    return token


def _sums(model: Any, sequences: Sequences, bar: Any) -> Floats:
    """Summed log-probability (n,) of ``sequence[1:]``."""
    ordered, places = in_order(sequences)
    made = _sums_of_states if hasattr(model, "reservoir_") else _sums_of_documents
    sums = np.fromiter(made(model, ordered, bar), np.float64, len(ordered))
    bar.update(len(sequences) - len(ordered))
    return np.asarray(sums[places])


def _sums_of_documents(model: Any, sequences: Sequences, bar: Any) -> Iterator[float]:
    for first in range(0, len(sequences), _BATCH):
        batch = sequences[first : first + _BATCH]
        docs: Any = [sequence for sequence in batch if len(sequence) > 1]
        if docs and isinstance(model, SequenceModel):  # says where to begin anew
            docs = join_sequences(([doc] for doc in docs), n_tokens=model.n_tokens_, reset=True)
        scores = iter(model.log_likelihood(docs) if docs else ())
        for sequence in batch:
            yield float(np.sum(next(scores), dtype=np.float64)) if len(sequence) > 1 else 0.0
        bar.update(len(batch))


def _sums_of_states(model: Any, sequences: Sequences, bar: Any) -> Iterator[float]:
    reservoir, features = model.reservoir_, model.features_
    dtype = reservoir.W_.dtype
    embedding = None if features is None else features.embedding_.astype(dtype)
    with reservoir.branching(features=embedding) as advance:
        n_last = model.n_columns_ - reservoir.n_units
        scorer = _Scorer(advance, model.readout_, reservoir.n_units, n_last, dtype)
        for batch in _batches(sequences, scorer.width):
            scorer.read(batch)
            bar.update(len(batch))
        yield from scorer.sums()


def _batches(sequences: Sequences, width: int) -> Iterator[Sequences]:
    """At most ``width`` sequences at a time, fewer where some are long."""
    first = longest = 0
    for place, sequence in enumerate(sequences):
        longest = max(longest, len(sequence))
        n_before = place - first
        if n_before and (n_before == width or (n_before + 1) * longest > _MOST_TOKENS):
            yield sequences[first:place]
            first, longest = place, len(sequence)
    if first < len(sequences):
        yield sequences[first:]


class _Scorer:
    """Reads batches of sorted sequences level by level and scores prefixes once the room is full.

    The states of prefixes lie in rows of one array, level after level. ``width`` is the most
    sequences of a batch, so that a level and the one before it always fit. ``last`` are the last
    tokens of each prefix, where the readout reads them beside the state.
    """

    def __init__(
        self, advance: Any, readout: Any, n_units: int, n_last: int, dtype: np.dtype[Any]
    ) -> None:
        n_rows = int(np.clip(_STATE_BYTES // (n_units * dtype.itemsize), 64, _MOST_ROWS))
        self.advance, self.readout = advance, readout
        self.states = np.zeros((n_rows, n_units), dtype=dtype)
        self.last = np.full((n_rows, n_last), NO_TOKEN)
        self.chosen = np.empty((n_rows, n_units + n_last), dtype=dtype)
        self.zero = np.zeros((1, n_units), dtype=dtype)
        self.nothing = np.full((1, n_last), NO_TOKEN)
        self.width = n_rows // 4
        self.n_filled = self.n_waiting = 0
        self.waiting: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self.scores: list[Floats] = []
        self.paths: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self.n_sequences = self.n_prefixes = 0

    def read(self, sequences: Sequences) -> None:
        """Take the prefixes of one batch of sorted sequences."""
        before = slice(0, 0)
        for depth, level in enumerate(levels(sequences)):
            before = self._make_room(before, level)
            if depth:
                self._note(level, before.start)
            before = self._advance(level, before.start, depth)
        self.n_sequences += len(sequences)

    def sums(self) -> Floats:
        """Summed scores (n,) of all sequences read."""
        self._score()
        scores = np.concatenate([np.empty(0), *self.scores])
        total = np.zeros(self.n_sequences)
        for sequences, prefixes in self.paths:
            total[sequences] += scores[prefixes]
        return total

    def _note(self, level: Level, start: int) -> None:
        """Remember which prefixes are to be scored, and whose they are."""
        self.waiting.append((start + level.parents, level.tokens))
        self.paths.append((self.n_sequences + level.sequences, self.n_prefixes + level.nodes))
        self.n_prefixes += len(level.tokens)
        self.n_waiting += len(level.tokens)

    def _advance(self, level: Level, start: int, depth: int) -> slice:
        """Fill the next rows with the states of the prefixes that go on; those rows."""
        made = slice(self.n_filled, self.n_filled + int(level.goes_on.sum()))
        tokens, parents = level.tokens[level.goes_on], level.parents[level.goes_on]
        source, last, rows = self.zero, self.nothing, parents
        if depth:
            source, last, rows = self.states, self.last, start + parents
        self.advance(source, tokens, rows, out=self.states[made])
        before = last[rows, : last.shape[1] - 1]
        self.last[made] = np.column_stack([tokens, before])[:, : last.shape[1]]
        self.n_filled = made.stop
        return made

    def _make_room(self, before: slice, level: Level) -> slice:
        """Score and forget all states but those of ``before`` if the level does not fit."""
        n_states = self.n_filled + int(level.goes_on.sum())
        if max(n_states, self.n_waiting + len(level.tokens)) <= len(self.states):
            return before
        self._score()
        kept = slice(0, before.stop - before.start)
        self.states[kept] = self.states[before].copy()
        self.last[kept] = self.last[before].copy()
        self.n_filled = kept.stop
        return kept

    def _score(self) -> None:
        if not self.waiting:
            return
        rows, tokens = (np.concatenate(parts) for parts in zip(*self.waiting, strict=True))
        chosen = self.chosen[: len(rows)]
        n_units = self.states.shape[1]
        for first in range(0, len(rows), _GATHERED):
            part = slice(first, first + _GATHERED)
            chosen[part, :n_units] = self.states[rows[part]]
            chosen[part, n_units:] = self.last[rows[part]]
        scores = self.readout.predict_log_proba_of(chosen, tokens)
        self.scores.append(np.asarray(scores, dtype=np.float64))
        self.waiting, self.n_waiting = [], 0
