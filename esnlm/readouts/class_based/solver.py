"""Two-level learner: classes and the words within them, on CCA components of the states."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from esnlm.readouts.base.blocks import NO_HELD_OUT, Block, Rows
from esnlm.readouts.base.last_tokens import n_state_columns, split_last_tokens
from esnlm.readouts.base.moments import Moments
from esnlm.readouts.class_based import unigrams
from esnlm.readouts.class_based.cca import canonical_variables
from esnlm.readouts.class_based.direct_connections import DirectConnections, NgramCounts
from esnlm.readouts.class_based.pilot_sample import LEAST_SCALE, Assignment, PilotSample, Schedule
from esnlm.readouts.class_based.softmaxes import ClassSoftmax, WordSoftmax
from esnlm.readouts.class_based.word_factors import ClassLayout, WordFactors, shared_ridge
from esnlm.utils.arrays import Array, Floats32, Ints, Ints64
from esnlm.utils.state_dict import Arrays, Stateful, saved
from esnlm.utils.sums import Sums
from esnlm.utils.threads import map_tiles, one_blas_thread

# Learning rates of rows after the passes, relative to those of the first ones.
_LATER_RATE = 0.1
# Batches of classes to one batch of words, and their first learning rate.
_WORD_BATCHES, _WORD_RATE = 4, 6.0
# Added to the occurrences of each word: classes of rare words have many.
_PSEUDOCOUNT = 0.5
# Products of fewer operations are not worth threads.
_WORTH_THREADS = 1 << 22
_TILE = 1024
# Waiting rows: components (n, P), words (n,), last tokens (n, n_direct).
_WAITING = "Z", "words", "last"
# Where states tell nothing, components are made by direct connections alone: deviation of the
# first weights, and of a component as it is taken to be: the best of nine on held-out lines.
_BLANK_WEIGHT, _BLANK_SCALE = 0.1, 0.3
_NO_STEPS = 1e15


class _Rates(NamedTuple):
    """Learning rates of a step."""

    classes: float
    words: float
    direct: float


class TwoLevelSettings(NamedTuple):
    """Hyper-parameters of a `TwoLevelLearner`.

    ``n_experts`` softmaxes over classes behind a gate; None: one without a gate; 0: ridge. Words
    within classes by softmax, or by ridge. ``alpha`` and ``word_alpha`` are penalties (ridge:
    None chooses them by cross-validation). ``rate(share, n_rows, n_components, n_steps)`` is the
    learning rate of the classes when a ``share`` of all rows is left, for batches of ``n_rows``
    rows. ``prior`` rows of mean length are in the squared gradients that a word starts with.
    ``discounted``: targets are those of `discounts`; for softmax over classes without a gate.
    """

    n_components: int
    n_experts: int | None
    softmax_words: bool
    alpha: float | None
    word_alpha: float | None
    rate: Callable[[float, int, int, int], float]
    momentum: float
    n_passes: int
    seed: int = 0
    prior: float = 1.0
    n_direct: int = 0
    n_ngrams: int = 0
    direct_rate: float = 0.0
    batches: int = 64
    discounted: bool = False


class TwoLevelLearner(Stateful):
    """P(class | z) and P(w | class, z) of every class, learned together from streamed rows.

    1. From a `PilotSample` of rows: the linear maps z of a state that tell the next words apart
       best, and the classes.
    2. Passes over all rows: softmaxes take steps on batches of components, the words one for
       every four of the classes; direct connections, which add what the last tokens say to z,
       follow the gradients of both with respect to z. Ridge adds up moments of the components,
       from which it is solved at the end (one pass; P x V sums, whatever the units).

    Results do not depend on how rows are cut into calls.

    ``assign`` makes classes from counts (V,) and vectors (V, P) of the words. X has ``n_columns``:
    units, and last tokens where there are direct connections. ``n_rows`` are those of a pass, 0 if
    they are not known; ``counts`` (V,) the occurrences of the words, None: those in the sample.
    """

    classes: ClassSoftmax | WordFactors
    words: WordFactors
    #: Copies that take steps side by side, so that each takes so many fewer.
    n_copies = 1
    _saved = saved(
        "n_seen", "n_rows", "counts", "pilot", "ngram_counts", "directions", "shift", "word_class",
        "moments", "class_solver", "word_solver", "direct", "rows", "word_rows", "n_word_rows",
        "discounts", "unigrams",
    )  # fmt: skip

    def __init__(
        self,
        settings: TwoLevelSettings,
        assign: Assignment,
        n_columns: int,
        n_words: int,
        n_rows: int,
        counts: Array | None = None,
    ) -> None:
        """Begin with an empty pilot sample; raise ValueError where X has no columns of states."""
        n_units = n_state_columns(n_columns, settings.n_direct)
        self.settings, self.assign = settings, assign
        self.n_words, self.n_rows, self.counts = n_words, n_rows, counts
        self.schedule = Schedule(n_rows, settings.n_passes, settings.batches)
        self.n_seen = self.n_word_rows = 0
        self.pilot: PilotSample | None = PilotSample(n_units, n_words, counts)
        self.ngram_counts: NgramCounts | None = NgramCounts(n_words) if settings.n_ngrams else None
        self.moments: Moments | None = None
        self.class_solver: ClassSoftmax | None = None
        self.word_solver: WordSoftmax | None = None
        self.discounts: Floats32 | None = None
        self.unigrams: Floats32 | None = None
        self.ridge_behind = False
        self.rows, self.word_rows = Rows(*_WAITING), Rows(*_WAITING)

    @property
    def is_ridge(self) -> bool:
        """Whether classes and words are solved from moments, without steps."""
        return self.settings.n_experts == 0 and not self.settings.softmax_words

    def after_merge(self, sums: Sums) -> None:
        """Follow moments that were taken from ``sums``: those of the sample, or of all rows."""
        if self.ngram_counts is not None:
            ngrams = sums.keyed["ngrams"]
            self.ngram_counts.totals = np.stack([ngrams.keys, ngrams.values[0]])
        if self.pilot is None and self.moments is not None:
            self.n_seen, self.ridge_behind = self.moments.n, True

    def survey(self, X: Array, codes: Array) -> None:
        """Add rows X (n, n_columns), words (n,) to the pilot sample."""
        assert self.pilot is not None, "the pilot sample is complete"
        states, last = self._split(X)
        self.pilot.moments.add(states, self.pilot.rank[codes])
        if self.ngram_counts is not None:
            self.ngram_counts.add(last)

    def end_survey(self) -> None:
        """Solve the directions, and make the classes."""
        assert self.pilot is not None, "the pilot sample is complete"
        ngrams = None
        if self.ngram_counts is not None:
            ngrams = self.ngram_counts.most_frequent(self.settings.n_ngrams)
        self.begin(*self.pilot.solve(self.settings.n_components, self.assign), ngrams)

    def begin(
        self,
        directions: Array,
        shift: Array,
        word_class: Array,
        scale: Array | None = None,
        counts: Array | None = None,
        ngrams: Ints64 | None = None,
    ) -> None:
        """Initialise parameters: see `PilotSample.solve`; n-grams of last tokens have vectors.

        Without ``scale`` (P,) and ``counts`` (V,) the first weights are good for loading alone.
        """
        settings, n_components = self.settings, len(shift)
        if settings.discounted and counts is not None:
            self.unigrams = unigrams.discounted_unigrams(counts)
        scale = np.ones(n_components) if scale is None else scale
        blank = settings.n_direct > 0 and not (scale > LEAST_SCALE).any()
        if blank:
            scale = np.full(n_components, _BLANK_SCALE)
        counts = np.zeros(self.n_words) if counts is None else counts
        self.directions, self.shift, self.word_class = directions, shift, word_class
        self.layout = layout = ClassLayout(word_class.astype(np.intp))
        self.pilot = self.ngram_counts = None
        self.direct = DirectConnections(settings.n_direct, self.n_words, n_components, ngrams)
        if settings.n_experts == 0 or not settings.softmax_words:
            self.moments = Moments(n_components, self.n_words)
        if settings.n_experts != 0:
            self.classes = self.class_solver = ClassSoftmax(
                n_components,
                settings.n_experts,
                np.bincount(layout.word_class, counts + _PSEUDOCOUNT, layout.n_classes),
                momentum=settings.momentum,
                penalty=(settings.alpha or 0.0) / max(1, self.n_rows),
                informative=scale > LEAST_SCALE,
                seed=settings.seed,
            )
            if blank:  # from weights of zero direct connections would have no gradient either
                random, weights = np.random.default_rng(settings.seed), self.class_solver.weights
                weights[:-1] = _BLANK_WEIGHT * random.standard_normal(weights[:-1].shape)
        if settings.discounted:
            self.discounts = unigrams.discounts(counts)
        if settings.softmax_words:
            prior = settings.prior * float(np.mean(scale**2))
            if not (scale > LEAST_SCALE).any():  # frequencies are all that there is to learn
                prior = _NO_STEPS
            penalty = (settings.word_alpha or 0.0) / max(1, self.n_rows)
            self.words = self.word_solver = WordSoftmax(
                layout, n_components, counts, prior=prior, penalty=penalty
            )

    def learn(self, X: Array, codes: Ints) -> None:
        """Learn from the next rows X (n, n_columns), words (n,) of a pass."""
        if self.pilot is not None:
            self.end_survey()
        in_first_pass = self.n_seen < max(1, self.n_rows)
        self._learn(X, codes, self._rates_now, with_moments=in_first_pass)
        self.n_seen += len(X)

    def learn_later(self, X: Array, codes: Ints) -> None:
        """Learn from rows that come after the passes."""
        rates = self._rates(_LATER_RATE, len(X))
        self._learn(X, codes, rates, with_moments=True)
        self._flush(rates)

    def settle(self) -> None:
        """Solve ridge factors that do not contain all rows yet."""
        if not self.ridge_behind:
            return
        moments, settings = self.moments, self.settings
        assert moments is not None
        if self.class_solver is None:
            pooled = moments.pooled(self.layout.word_class)
            doubt = _PSEUDOCOUNT * self.layout.sizes
            one_class = ClassLayout(np.zeros(self.layout.n_classes, dtype=np.intp))
            self.classes, _ = shared_ridge(pooled, one_class, settings.alpha, doubt)
        if self.word_solver is None:
            self.words, _ = shared_ridge(moments, self.layout, settings.word_alpha)
        self.ridge_behind = False

    def flush(self) -> None:
        """Learn the rows still waiting."""
        if self.pilot is None:
            self._flush(self._rates_now)

    def components(self, X: Array) -> Array:
        """Components (n, P) of X (n, n_columns), in X's dtype."""
        states, last = self._split(X)
        Z = canonical_variables(states, self.directions, self.shift)
        self.direct.add_to(Z, last)
        return Z

    def log_probabilities(self, X: Array) -> Array:
        """Return log P(w | x) of every word: X (n, n_columns) -> (n, V)."""
        Z = self.components(X)
        logs = self.words.log_probabilities(Z, self.classes.log_probabilities(Z))
        if self.unigrams is not None:
            unigrams.interpolate_all(logs, self.unigrams)
        return logs

    def log_probability_of(self, X: Array, words: Ints) -> Array:
        """Return log P(w | x) (n,) of one word a row; computes only that word's class."""
        logs = self._log_probability_of(X, words)
        return logs if self.unigrams is None else unigrams.interpolate(logs, self.unigrams, words)

    def judge(self, blocks: Iterable[Block]) -> float:
        """Mean nats of held-out rows, with the share of the unigrams that is likeliest on them."""
        self.settle()
        rows = [(self._log_probability_of(X, words), words) for X, words in blocks]
        if not rows:
            raise ValueError(NO_HELD_OUT)
        logs, words = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        if self.unigrams is not None:
            self.unigrams[:] = unigrams.with_likeliest_share(self.unigrams, logs, words)
            logs = unigrams.interpolate(logs, self.unigrams, words)
        return -float(logs.mean(dtype=np.float64))

    def _log_probability_of(self, X: Array, words: Ints) -> Array:
        """`log_probability_of` without unigrams."""
        Z = self.components(X)
        classes = self.layout.word_class[words]
        out = np.empty(len(Z), dtype=Z.dtype)

        def tile(start: int) -> None:
            part = slice(start, start + _TILE)
            logs = self.classes.log_probabilities(Z[part])
            out[part] = logs[np.arange(len(logs)), classes[part]]

        with one_blas_thread():
            map_tiles(tile, range(0, len(Z), _TILE), self._n_threads(len(Z)))
        inside = self.layout.sizes[classes] > 1
        out[inside] += self.words.log_probability_of(Z[inside], words[inside])
        return out

    def _before_loading(self, arrays: Arrays, training: bool) -> Arrays:
        if "directions" in arrays:
            self.begin(*(arrays[name] for name in ("directions", "shift", "word_class")))
        return arrays

    def _loaded(self, training: bool) -> None:
        self.ridge_behind = self.moments is not None

    def _split(self, X: Array) -> tuple[Array, Ints64]:
        return split_last_tokens(X, self.settings.n_direct, self.n_words)

    @property
    def _rates_now(self) -> _Rates:
        return self._rates(self.schedule.share_left(self.n_seen), self.schedule.batch)

    def _rates(self, share: float, n_rows: int) -> _Rates:
        """Learning rates when a ``share`` of the rows is left, for steps on ``n_rows`` rows."""
        n_steps = max(1, self.schedule.n_steps // self.n_copies)
        classes = self.settings.rate(share, n_rows, len(self.shift), n_steps)
        return _Rates(classes, share * _WORD_RATE, share * self.settings.direct_rate)

    def _learn(self, X: Array, codes: Ints, rates: _Rates, *, with_moments: bool) -> None:
        """Add moments if ``with_moments``, and take a step on each full batch of components."""
        states, last = self._split(X.astype(np.float32, copy=False))
        Z = canonical_variables(states, self.directions, self.shift)
        if self.moments is not None and with_moments:
            self.moments.add(Z, codes)
            self.ridge_behind = True
        if self.class_solver is None and self.word_solver is None:
            return
        batch, start = self.schedule.batch, 0
        with one_blas_thread():
            while start < len(Z):
                part = slice(start, min(len(Z), start + batch - self.rows.n))
                self.rows.add(Z[part], codes[part], last[part])
                start = part.stop
                if self.rows.n == batch:
                    self._step(rates)

    def _flush(self, rates: _Rates) -> None:
        with one_blas_thread():
            if self.rows.n:
                self._step(rates)
            if self.n_word_rows:
                self._step_words(rates)

    def _step(self, rates: _Rates) -> None:
        """Take a step of the classes on the waiting rows; of the words when there are enough."""
        Z, words, last = self.rows.joined()
        self.rows = Rows(*_WAITING)
        self.direct.add_to(Z, last)
        if self.class_solver is not None:
            in_z = np.empty_like(Z) if self.settings.n_direct else None
            classes = self.layout.word_class[words]
            less = None if self.discounts is None else (self.discounts[words], self.layout.shares)
            self.class_solver.step(Z, classes, rates.classes, self._n_threads(), in_z, less)
            if in_z is not None:
                self.direct.step(last, in_z, rates.direct)
        if self.word_solver is not None:
            inside = self.layout.sizes[self.layout.word_class[words]] > 1
            self.word_rows.add(Z[inside], words[inside], last[inside])
            self.n_word_rows += len(Z)
        if self.n_word_rows >= _WORD_BATCHES * self.schedule.batch:
            self._step_words(rates)

    def _step_words(self, rates: _Rates) -> None:
        assert self.word_solver is not None
        Z, words, last = self.word_rows.joined()
        in_z = np.empty_like(Z) if self.settings.n_direct else None
        less = None if self.discounts is None else self.discounts[words]
        self.word_solver.step(
            Z, words, self.n_word_rows, rates.words, self._n_threads(), in_z, less
        )
        self.word_rows, self.n_word_rows = Rows(*_WAITING), 0
        if in_z is not None:
            self.direct.step(last, in_z, rates.direct)

    def _n_threads(self, n_rows: int | None = None) -> int | None:
        """Return the threads of tiles of rows, of a batch where None: one for small steps."""
        n_rows = self.schedule.batch if n_rows is None else n_rows
        width = max(self.settings.n_experts or 1, 1) * self.layout.n_classes
        return None if n_rows * width * len(self.shift) >= _WORTH_THREADS else 1
