"""Training in passes over a corpus that is never held: resumable to the last bit."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from tqdm import tqdm

from esnlm.models.reservoir import LanguageModel
from esnlm.models.states import StateBlocks, warmup_of
from esnlm.models.training_log import TrainingLog
from esnlm.storage.checkpoints import Checkpoint, CheckpointError, Checkpoints
from esnlm.storage.model_folder import describe, under_prefix, with_prefix
from esnlm.text.corpus import CorpusError, TokenStream
from esnlm.text.shuffling import ChunkOrder, Piece, evenly_spaced, target_counts
from esnlm.utils.validation import check_count
from esnlm.utils.version import __version__

_SCORES_A_PASS = 10


@dataclass(frozen=True)
class TrainingPlan:
    """What decides the result of a run beside the model and the corpus.

    Parameters
    ----------
    chunk_tokens : int
        Tokens of a step: sequences from all over the corpus, harvested together.
    score_every : int, optional
        Tokens from one held-out score to the next. None: a tenth of a pass where scores are
        cheap, else the ends of passes. 0: the ends of passes.
    held_out_tokens : int
        About so many held-out tokens are scored, taken evenly.
    seed : int
        Of the order of sequences.
    """

    chunk_tokens: int = 1 << 16
    score_every: int | None = None
    held_out_tokens: int = 1 << 15
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("chunk_tokens", "held_out_tokens"):
            check_count(name, getattr(self, name))
        if self.score_every is not None:
            check_count("score_every", self.score_every, least=0)


class StoppedError(Exception):
    """A run was asked to stop, and did at the end of a step; a checkpoint was saved if any are."""


class Trainer:
    """Learns a language model from a stream of tokens in passes, in bounded memory.

    A pass reads all sequences in an order of its own, shuffled over the whole corpus, a chunk at
    a time. Each chunk is one step; between two steps a checkpoint may be saved. The result
    depends on the model, the stream, the held-out stream and the plan alone: neither on
    checkpoints nor on how often a run was interrupted and resumed.

    Parameters
    ----------
    model : LanguageModel
        Fitted in place, once it has read the corpus; see `LanguageModel.read`.
    stream : TokenStream
        May be a memory map: only chunks are gathered.
    held_out : TokenStream, optional
        Scored along the way; readouts choose penalties and passes by it.
    plan : TrainingPlan

    Examples
    --------
    >>> from esnlm import Reservoir, RidgeReadout
    >>> model = LanguageModel(Reservoir(20, random_state=0), RidgeReadout(), n_tokens=3)
    >>> docs = [np.array([0, 1, 2, 1])] * 50
    >>> model = Trainer(model, model.read(docs)).run()
    >>> round(model.perplexity(docs), 2)
    1.0
    """

    def __init__(
        self,
        model: LanguageModel,
        stream: TokenStream,
        held_out: TokenStream | None = None,
        plan: TrainingPlan | None = None,
    ) -> None:
        self.model = model
        self.plan = plan or TrainingPlan()
        self.stream = stream
        self.held_out = None
        if held_out is not None:
            self.held_out = evenly_spaced(held_out, self.plan.held_out_tokens)
        n_sequences = 1 if stream.starts is None else len(stream.starts)
        self.n_rows = len(stream.tokens) - n_sequences
        if self.n_rows < 1:
            raise CorpusError("the corpus holds no token to predict")
        self.step = 0
        self.tokens = 0
        self.last_score: float | None = None

    def run(
        self,
        checkpoints: Checkpoints | None = None,
        *,
        resume: bool = False,
        save_every: float = 600.0,
        log: TrainingLog | None = None,
        stop: Callable[[], bool] = lambda: False,
        verbose: bool = False,
    ) -> LanguageModel:
        """Train to the end; the fitted model.

        Parameters
        ----------
        checkpoints : Checkpoints, optional
            Where to save them.
        resume : bool
            Go on from the newest checkpoint, if there is one.
        save_every : float
            Seconds from one checkpoint to the next; 0 saves one after each step.
        log : TrainingLog, optional
            Gets the held-out scores.
        stop : callable
            Asked after each step; True saves a last checkpoint and raises `StoppedError`.
        verbose : bool
            Show a progress line on standard error, if a person sees it.

        Raises
        ------
        CheckpointError
            The checkpoint is of a run with other settings or another corpus.
        """
        self._checkpoints, self._save_every = checkpoints, save_every
        self._log, self._stop = log or TrainingLog(None), stop
        found = checkpoints.latest() if checkpoints is not None and resume else None
        self._settings = self._described()
        if found is not None:
            self._check_same(found.facts["settings"])
        self._saved_at = self._began = time.monotonic()
        self._prepare(found)
        hidden = None if verbose else True  # None: hidden where no terminal shows it
        total = self.n_rows * self._n_passes
        with tqdm(total=total, unit="tok", unit_scale=True, disable=hidden) as self._bar:
            self._bar.update(self.tokens)
            self._pass_all()
        self.model.run_ = self.digest()
        return self.model

    def digest(self) -> str:
        """What this run is known by: it stands for all that the result depends on."""
        return _digest(json.dumps(self._described(), sort_keys=True).encode())

    def _prepare(self, found: Checkpoint | None) -> None:
        """Reservoir, features and readout, new or as they were at the checkpoint."""
        model = self.model
        features = {} if found is None else under_prefix("features", found.arrays)
        if features:
            params = model.features.get_params(deep=False)
            model.features = type(model.features).from_arrays(params, features)
        model.draw(self.stream)
        self.readout = clone(model.readout)
        model.readout_ = self.readout
        self.readout.begin(
            np.arange(model.n_tokens_),
            model.n_columns_,
            n_rows=self.n_rows,
            counts=target_counts(self.stream, model.n_tokens_),
            dtype=model.reservoir_.W_.dtype.name,
        )
        self._n_passes = self.readout.training_passes
        self._position = (0, 0)
        self._seconds_before = 0.0
        rows = 0
        if found is not None:
            self.readout.restore_training(under_prefix("readout", found.arrays))
            facts = found.facts
            self._position = (facts["phase"], facts["chunk"])
            self._seconds_before = facts["seconds"]
            self.step, self.tokens, rows = found.step, facts["tokens"], facts["log_rows"]
        self._log.begin(rows)

    def _pass_all(self) -> None:
        """The survey (phase 0), the passes, and what makes the parameters final."""
        readout = self.readout
        phase, first = self._position
        for number in range(phase, self._n_passes + 1):
            if number > 0 or readout.survey_rows:
                self._read(number, first)
            first = 0
            if number == 0:
                if readout.survey_rows:
                    readout.end_survey()
                continue
            go_on = readout.end_pass(self._held_states())
            if number == self._n_passes or not go_on:
                break
            self._score(number)
        readout.finish(self._held_states())
        self._score(number)

    def _read(self, number: int, first: int) -> None:
        """The chunks of one phase from ``first`` on."""
        order = self._order(number)
        n_chunks = self._chunks_wanted(number, order)
        take = self.readout.learn if number else self.readout.survey
        for chunk in range(first, n_chunks):
            before = self.tokens
            for piece in order.chunk(chunk):
                for states, following in self._states(piece):
                    take(states, following)
                    if number:
                        self.tokens += len(following)
                        self._bar.update(len(following))
            self.step += 1
            self._position = (number, chunk + 1)
            if number and chunk + 1 < n_chunks and self._due(before):
                self._score(number)
            self._pause()

    def _order(self, number: int) -> ChunkOrder:
        rng = np.random.default_rng([self.plan.seed, number])
        warmup = warmup_of(self.model.reservoir_)
        return ChunkOrder(self.stream, self.plan.chunk_tokens, rng, warmup)

    def _chunks_wanted(self, number: int, order: ChunkOrder) -> int:
        """All, or as many as the survey needs."""
        if number:
            return len(order)
        share = self.readout.survey_rows / self.n_rows
        return min(len(order), int(np.ceil(share * len(order))))

    def _states(self, piece: Piece) -> StateBlocks:
        return self.model.states_of(piece.stream, washout=piece.washout)

    def _held_states(self) -> StateBlocks | None:
        return None if self.held_out is None else self._states(Piece(self.held_out))

    def _due(self, before: int) -> bool:
        """Whether a held-out score is due after a step that began at ``before`` tokens."""
        every = self.plan.score_every
        if every is None:
            every = -(-self.n_rows // _SCORES_A_PASS) if self.readout.scores_are_cheap else 0
        return every > 0 and self.tokens // every > before // every

    def _score(self, number: int) -> None:
        """Mean held-out loss (nats a token), to the log and the progress line."""
        blocks = self._held_states()
        if blocks is None:
            return
        total, n = 0.0, 0
        for states, following in blocks:
            logs = self.readout.predict_log_proba_of(states, following)
            total -= float(logs.sum(dtype=np.float64))
            n += len(following)
        if not n:
            raise CorpusError("the held-out text holds no token to predict")
        self.last_score = total / n
        all_tokens = self.n_rows * self._n_passes
        self._log.add(number, self.tokens, all_tokens, self.last_score, self.seconds)
        self._bar.set_postfix_str(f"held-out {self.last_score:.4f} nats")

    @property
    def seconds(self) -> float:
        """Seconds of training so far, those before an interruption among them."""
        return self._seconds_before + time.monotonic() - self._began

    def _pause(self) -> None:
        """Between two steps: a checkpoint when it is time, and the end when it is asked for."""
        stop = self._stop()
        now = time.monotonic()
        if self._checkpoints is not None and (stop or now - self._saved_at >= self._save_every):
            self._save(self._checkpoints)
            self._saved_at = time.monotonic()
        if stop:
            raise StoppedError

    def _save(self, checkpoints: Checkpoints) -> None:
        arrays = with_prefix("readout", self.readout.training_arrays())
        if self.model.features_ is not None:
            arrays |= with_prefix("features", self.model.features_.to_arrays())
        phase, chunk = self._position
        facts = {
            "settings": self._settings,
            "phase": phase,
            "chunk": chunk,
            "tokens": self.tokens,
            "log_rows": self._log.n_rows,
            "seconds": self.seconds,
        }
        checkpoints.save(self.step, facts, arrays)

    def _described(self) -> dict[str, Any]:
        """All that the result depends on, as JSON can hold it."""
        model = self.model
        tokenizer = model.tokenizer_ and _digest(model.tokenizer_.to_json().encode())
        settings = {
            "esnlm": __version__,
            "reservoir": describe(model.reservoir),
            "readout": describe(model.readout),
            "features": None if model.features is None else describe(model.features),
            "reset": model.reset,
            "tokenizer": tokenizer,
            "corpus": stream_digest(self.stream),
            "held-out text": None if self.held_out is None else stream_digest(self.held_out),
        }
        return settings | asdict(self.plan)

    def _check_same(self, saved: dict[str, Any]) -> None:
        for name, now in self._settings.items():
            then = saved.get(name)
            if then != now:
                raise CheckpointError(difference_told(name, then, now))


def difference_told(name: str, then: Any, now: Any) -> str:
    """What is not as it was in the run that is to be resumed."""
    if isinstance(then, dict) and isinstance(now, dict) and then.get("class") == now.get("class"):
        for key, value in now.get("params", {}).items():
            before = then.get("params", {}).get(key)
            if before != value:
                return difference_told(f"{key} of the {name}", before, value)
    if name in ("corpus", "held-out text", "tokenizer"):
        what = f"the {name} is another one than"
    else:
        what = f"{name} is {now!r}, but was {then!r}"
    return (
        f"cannot resume: {what} when the run began: give the same, or start again with --overwrite"
    )


def stream_digest(stream: TokenStream) -> str:
    """SHA-256 of tokens and starts."""
    digest = hashlib.sha256()
    for array in (stream.tokens, stream.starts):
        digest.update(b"-" if array is None else np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
