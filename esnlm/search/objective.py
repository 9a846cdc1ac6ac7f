"""What a trial of settings is judged by: the loss on held-out training data."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from esnlm.grammars.elman_rules import END
from esnlm.models.language_model import LanguageModel
from esnlm.readouts.linear.ridge import RidgeReadout
from esnlm.studies.elman.run import Settings, make_corpora
from esnlm.text.corpus import CorpusError, TokenStream
from esnlm.text.shuffling import evenly_spaced
from esnlm.text.tokenizers import Tokenizer
from esnlm.training.trainer import Trainer, TrainingPlan
from esnlm.utils.arrays import Array

#: Shares of the text, in eighths, after which a trial may be stopped.
RUNGS = (1, 2, 4)
#: All of the text, in eighths.
WHOLE = 8
_FEW_DOCUMENTS = 20

#: Takes a rung and the held-out loss there (nats a token); raises to stop the trial.
Report = Callable[[int, float], None]


@dataclass(frozen=True)
class Corpora:
    """Text to train on, held-out text to judge by, and maybe text that no choice sees.

    ``tokenizer`` made them, where they are text. ``floors`` are the losses of the process that
    made the last two, where it is known, in nats.
    """

    train: TokenStream
    held_out: TokenStream
    test: TokenStream | None
    n_tokens: int
    tokenizer: Tokenizer | None = None
    floors: tuple[float, float] | None = None


def split(stream: TokenStream, share: float, seed: int) -> tuple[TokenStream, TokenStream]:
    """Return the stream without a share of it, and that share.

    It is whole documents, drawn at random among those that fit in it; of fewer than 20 documents
    the last sequences, and without sequences the last tokens.
    """
    n_tokens, bounds = share * len(stream.tokens), stream.bounds
    if len(bounds) - 1 < _FEW_DOCUMENTS:
        starts = np.arange(len(stream.tokens)) if stream.starts is None else stream.starts
        bounds = np.append(starts, len(stream.tokens))
        mask = bounds[:-1] >= min(len(stream.tokens) - n_tokens, bounds[-2])
    else:
        lengths = np.diff(bounds)
        mask = np.zeros(len(lengths), dtype=bool)
        for document in np.random.default_rng([seed, 0]).permutation(len(lengths)):
            if lengths[document] <= n_tokens:
                mask[document] = True
                n_tokens -= lengths[document]
        mask[np.argmin(lengths)] |= not mask.any()
    parts = [] if mask.all() else [_parts(stream, bounds, side) for side in (~mask, mask)]
    if not parts or not all(part.n_predicted for part in parts):
        raise CorpusError("the text is too short to hold a part of it out: name a held-out text")
    return parts[0], parts[1]


def _parts(stream: TokenStream, bounds: Array, mask: Array) -> TokenStream:
    """Return the chosen pieces between bounds, as one document whose sequences are the stream's."""
    piece = np.repeat(mask, np.diff(bounds))
    if stream.starts is None:
        tokens = np.asarray(stream.tokens[: len(piece)])[piece]
        return TokenStream(tokens, None, np.array([0, len(tokens)]))
    inside = piece[stream.starts]
    return stream.gathered(stream.starts[inside], stream.lengths[inside])


def elman_corpora(reset: str, share: float, seed: int) -> Corpora:
    """Sentences of Elman's grammar: those of the grid's seed, the last ``share`` held out.

    Each sentence is read after a full stop, which every corpus begins with, so that all of its
    words are predicted, with and without resets.
    """
    corpora = make_corpora(Settings(), seed)
    end = corpora.grammar.vocabulary.index(END)
    ends = np.flatnonzero(corpora.train == end) + 1
    cut = int(ends[max(0, round(len(ends) * (1 - share)) - 1)])
    if cut >= len(corpora.train):
        raise ValueError(f"held_out must leave a sentence of {len(ends)}, got {share:g}")

    def stream(tokens: Array) -> TokenStream:
        text = np.concatenate([[end], tokens]).astype(np.uint16)
        last = np.array([0, len(text)])
        if reset == "never":
            return TokenStream(text, None, last)
        begins = np.concatenate([[0], np.flatnonzero(tokens == end)[:-1] + 1])
        sequence = np.insert(tokens, begins, end).astype(np.uint16)
        starts = begins + np.arange(len(begins))
        return TokenStream(sequence, starts, np.array([0, len(sequence)]))

    def floor(oracle: Array, tokens: Array) -> float:
        return -float(np.log(oracle[np.arange(len(tokens)), tokens]).mean())

    validation = corpora.train[cut:]
    first = corpora.grammar.next_word_distribution([])
    floors = (
        floor(corpora.train_oracle[cut - 1 :], validation),
        floor(np.vstack([first, corpora.test_oracle]), corpora.test),
    )
    train, judge, test = map(stream, (corpora.train[:cut], validation, corpora.test))
    return Corpora(train, judge, test, len(corpora.grammar.vocabulary), None, floors)


def loss_after_fit(
    model: LanguageModel, corpora: Corpora, plan: TrainingPlan | None, report: Report | None
) -> float:
    """Fit the model as ``esnlm train`` does; its held-out loss in nats a token.

    With a ``plan`` it is trained in passes, otherwise at once. ``report`` gets the losses at
    `RUNGS`: of passes, and of a readout of additive statistics, those along the way; of all others
    those of fits to as much of the text, which come on top.
    """
    validation = corpora.held_out
    if plan is None and report is not None and isinstance(model.readout, RidgeReadout):
        plan = TrainingPlan(chunk_tokens=max(1, len(corpora.train.tokens) // WHOLE))
    if plan is not None:
        model._read_corpus(corpora.train)
        plan = replace(plan, held_out_tokens=len(validation.tokens))
        run = _ReportedTrainer(model, corpora.train, held_out=validation, plan=plan)
        run.report = report
        run.run()
        assert run.last_score is not None
        return run.last_score
    if report is not None:
        for rung in RUNGS:
            part = evenly_spaced(corpora.train, len(corpora.train.tokens) * rung // WHOLE)
            report(rung, -copy(model).fit(part, held_out=validation).score(validation))
    return -float(model.fit(corpora.train, held_out=validation).score(validation))


class _ReportedTrainer(Trainer):
    """A trainer that scores at `RUNGS` of the whole run, and reports what it finds."""

    report: Report | None = None
    _reported = 0

    def _score_is_due(self, before: int) -> bool:
        return self.report is not None and self._rung() > self._reported

    def _rung(self) -> int:
        """Return the last rung that was passed, or 0."""
        return max((r for r in RUNGS if self.tokens * WHOLE >= r * self._n_tokens), default=0)

    def _score(self, number: int) -> None:
        super()._score(number)
        if self.tokens < self._n_tokens and self._score_is_due(self.tokens):
            self._reported = self._rung()
            assert self.report is not None
            assert self.last_score is not None
            self.report(self._reported, self.last_score)
