"""Class-factored readout: P(w|x) = P(class(w)|x) P(w|class(w), x) (Rachez eq. 35)."""

from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esnlm.readouts.base.readout import Block, Blocks
from esnlm.readouts.base.state_dict import after_start, with_start
from esnlm.readouts.base.streamed import WITHOUT_STATE
from esnlm.readouts.factored import separate_state
from esnlm.readouts.factored.factor_readouts import FactorReadouts
from esnlm.readouts.factored.separate import SeparateFactors, blocks_moments, fits_memory
from esnlm.readouts.two_level import joint_state
from esnlm.readouts.two_level.class_assignment import MANY_WORDS, ClassAssignment
from esnlm.readouts.two_level.solver import FactorSettings, JointFactors
from esnlm.readouts.two_level.surveyed import SurveyedReadout
from esnlm.utils.validation import check_count


class ClassFactoredReadout(SurveyedReadout):
    """Two small readouts in place of a large one: a word's class, then the word in its class.

    The supervised mixture of experts of Rachez & Hagiwara (2014, §3.3.2), after Morin & Bengio
    (2005): with about √V classes of about √V words, a row trains one classifier of √V outputs
    for its class and one for the word among its class, so a row costs √V times less than over
    V words.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes (at most; at least one). None: the nearest to √V.
    clustering : "auto", "clusters", "words", "frequency", mapping or sequence
        How words are put into classes. "clusters": spherical k-means on the mean of the states
        that each word follows, in classes of bounded size. "words": two thirds of the classes
        are a frequent word each, the others clusters; ``n_classes`` is then 4.5 √V where it is
        None. "frequency": bins of equal mass, frequent words first, none of more than three
        times the mean size. "auto": "clusters", and "words" for more than 256 words. A mapping
        of every label to its class, or the classes in the order of ``classes_``: those
        (``n_classes`` is not used).
    class_readout, word_readout : "softmax", "ridge", "moe" or a readout
        What predicts the class, and the word within it; a readout is cloned.
    solver : "auto", "separate" or "joint"
        "separate": a readout for the class, and one for the words of each class, on its rows.
        "joint": all factors on ``n_components`` linear maps of the state, see `JointFactors`:
        ridge solved from one set of moments, softmax in ``n_passes`` passes of steps on
        batches. Of a readout that is given, it takes the penalty (ridge: chosen by
        cross-validation unless ``selection`` is None), learning rate, momentum and passes; of
        a mixture ``n_experts``. Its words are softmax or ridge. "auto": joint for more than 256
        words or 256 MiB of rows, and for passes over a corpus; separate for readouts of other
        kinds, and otherwise.
    n_components : int
        Of the joint solver; at most the number of units.
    buffer_size : int
        Rows that ``partial_fit`` keeps before it learns from them and forgets them (at most
        256 MiB). Classes are made from these rows.
    random_state : int, RandomState instance or None
        Starts the clustering.

    Attributes
    ----------
    word_class_ : ndarray (V,)
        Class of each word.
    n_classes_used_ : int
    class_factor_ : readout for the class ("separate"; None when there is one class only)
    word_factors_ : dict of class -> readout ("separate"; classes of one word have none)
    joint_ : JointFactors ("joint")
    history_ : list of float
        Mean held-out loss after each pass ("joint", where there are held-out rows).

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> X = random.standard_normal((500, 4))
    >>> y = 2 * (X[:, 0] > 0) + (X[:, 1] > 0)
    >>> readout = ClassFactoredReadout(clustering=[0, 0, 1, 1]).fit(X, y)
    >>> readout.predict([[2.0, 2.0, 0.0, 0.0], [-2.0, 2.0, 0.0, 0.0]])
    array([3, 1])
    >>> round(float(readout.predict_proba(X[:1]).sum()), 6)
    1.0
    """

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        clustering: Any = "auto",
        class_readout: Any = "softmax",
        word_readout: Any = "softmax",
        solver: Literal["auto", "separate", "joint"] = "auto",
        n_components: int = 512,
        buffer_size: int = 65536,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_classes = n_classes
        self.clustering = clustering
        self.class_readout = class_readout
        self.word_readout = word_readout
        self.solver = solver
        self.n_components = n_components
        self.buffer_size = buffer_size
        self.random_state = random_state

    @property
    def n_parameters_(self) -> int:
        """Number of trained parameters of all factors."""
        self.to_arrays()
        if self.joint_ is not None:
            return joint_state.n_parameters(self.joint_)
        nested = [self.class_factor_, *self.word_factors_.values()]
        return sum(f.n_parameters_ for f in nested if f is not None)

    @property
    def class_factor_(self) -> Any:
        """The separate readout for the class, None where there is none."""
        return None if self._separate is None else self._separate.class_factor

    @property
    def word_factors_(self) -> dict[int, Any]:
        """The separate readouts for the words of a class, by class."""
        return {} if self._separate is None else self._separate.word_factors

    @property
    def scores_are_cheap(self) -> bool:  # type: ignore[override]
        """Whether a score along the way needs no solving: of softmax factors and mixtures."""
        return not self._factors.any_ridge

    @property
    def training_passes(self) -> int:
        """Passes over the corpus that it wants; asked after `begin`, more where rows are few."""
        joint = self.__dict__.get("joint_")
        return 1 if joint is None else joint.n_passes

    @property
    def survey_rows(self) -> int:
        """Rows that components and classes are made from."""
        joint = self.__dict__.get("joint_")
        return 0 if joint is None else joint.survey_rows

    def begin(
        self,
        classes: ArrayLike,
        n_units: int,
        *,
        n_rows: int,
        counts: NDArray[np.int64] | None = None,
        dtype: str = "float32",
    ) -> Self:
        """See `StreamingReadout.begin`; factors are learned jointly where that is possible."""
        super().begin(classes, n_units, n_rows=n_rows, counts=counts, dtype=dtype)
        if self.solver != "separate" and self._factors.may_be_joint:
            self._streaming = True
            self._plan(n_rows, counts)
        return self

    def survey(self, X: NDArray[Any], codes: NDArray[Any]) -> None:
        """Rows for components and classes."""
        self._joint_made().survey(X, codes)

    def end_survey(self) -> None:
        """Solve the components, and make the classes."""
        self._joint_made().end_survey()

    def learn(self, X: NDArray[Any], codes: NDArray[Any]) -> None:
        """Learn from the next rows of the pass."""
        if self.joint_ is None:
            super().learn(X, codes)
        else:
            self.joint_.learn(X, codes.astype(np.intp, copy=False))

    def end_pass(self, held_out: Iterable[Block] | None = None) -> bool:
        """Note the held-out loss of joint factors."""
        if self.joint_ is not None and held_out is not None:
            self.joint_.settle()
            self.history_.append(self._mean_loss(held_out))
        return True

    def finish(self, held_out: Iterable[Block] | None = None) -> None:
        """Learn the rows still waiting, and solve."""
        if self.joint_ is None:
            super().finish(held_out)
            return
        self.joint_.finish()
        self._show_classes(self.joint_.layout.word_class)

    def _start(self) -> None:
        if self.solver not in ("auto", "separate", "joint"):
            raise ValueError(f"solver must be 'auto', 'separate' or 'joint', got {self.solver!r}")
        for name in ("buffer_size", "n_components"):
            check_count(name, getattr(self, name))
        if self.n_classes is not None:
            check_count("n_classes", self.n_classes)
        self._factors = FactorReadouts.of(self.class_readout, self.word_readout)
        self._can_learn = True
        self.history_: list[float] = []
        self.joint_: JointFactors | None = None
        self._separate: SeparateFactors | None = None
        if self.solver == "joint" and not self._factors.may_be_joint:
            raise ValueError(
                "solver 'joint' takes words by softmax or ridge, and classes by these or a mixture"
                f" of softmax experts, got {type(self._factors.words).__name__} for words and"
                f" {type(self._factors.classes).__name__} for classes: choose 'separate'"
            )

    def _solve(self, blocks: Blocks, held_out: Blocks | None) -> None:
        if self.solver == "joint" or (
            self.solver == "auto"
            and self._factors.may_be_joint
            and (len(self.classes_) > MANY_WORDS or not fits_memory(blocks))
        ):
            super()._solve(blocks, held_out)
            return
        moments = blocks_moments(blocks, len(self.classes_))
        self.n_features_in_ = moments.n_units
        self._begin_separate(self._assignment().by_moments(moments)).fit(blocks, held_out)

    def _plan(self, n_rows: int, counts: NDArray[Any] | None) -> None:
        sizes = self.n_features_in_, len(self.classes_), n_rows
        assign = self._assignment().by_vectors
        self.joint_ = JointFactors(self._settings(), assign, *sizes, counts)
        self.joint_.begin_survey()

    def _joint_made(self) -> JointFactors:
        assert self.joint_ is not None, "begin comes first"
        return self.joint_

    def _begin_separate(self, word_class: NDArray[np.intp]) -> SeparateFactors:
        """Separate factors that have learned nothing."""
        self._separate = SeparateFactors(word_class, self._factors.classes, self._factors.words)
        self._show_classes(word_class)
        return self._separate

    def _separate_made(self) -> SeparateFactors:
        assert self._separate is not None, "no rows were learned"
        return self._separate

    @property
    def _learned(self) -> JointFactors | SeparateFactors:
        """The factors that predict."""
        return self._separate_made() if self.joint_ is None else self.joint_

    def _settings(self) -> FactorSettings:
        return self._factors.joint_settings(self.n_components, self._seed())

    def _assignment(self) -> ClassAssignment:
        return ClassAssignment(self.clustering, self.n_classes, self.classes_, self._seed)

    def _show_classes(self, word_class: NDArray[np.intp]) -> None:
        self.word_class_ = word_class
        self.n_classes_used_ = int(word_class.max()) + 1

    def _update(self, X: NDArray[Any], codes: NDArray[np.intp]) -> None:
        if self.joint_ is None:
            self._separate_made().learn(X, codes)
        elif self._can_learn:
            self.joint_.learn_later(X, codes)
        else:
            raise ValueError(WITHOUT_STATE)

    def _settle(self) -> None:
        super()._settle()
        if self.joint_ is not None:
            self.joint_.settle()

    def _log_probabilities(self, X: NDArray[Any]) -> NDArray[Any]:
        return self._learned.log_probabilities(X)

    def _log_probabilities_of(self, X: NDArray[Any], codes: NDArray[np.intp]) -> NDArray[Any]:
        """Computes the classes, and the words of one class a row: not the whole vocabulary."""
        return self._learned.log_probability_of(X, codes)

    def _learner_arrays(self) -> dict[str, NDArray[Any]]:
        if self.joint_ is None:
            return {} if self._separate is None else separate_state.training_arrays(self._separate)
        if not self._can_learn:
            raise ValueError(WITHOUT_STATE)
        return with_start("joint.", joint_state.training_arrays(self.joint_))

    def _restore_learner(self, arrays: dict[str, NDArray[Any]]) -> None:
        if own := after_start("joint.", arrays):
            assign = self._assignment().by_vectors
            sizes = self.n_features_in_, len(self.classes_)
            self.joint_ = joint_state.restored(self._settings(), assign, *sizes, own)
            self._can_learn = True
            if self.joint_.surveyed is None:
                self._show_classes(self.joint_.layout.word_class)
        elif "word_class" in arrays:
            separate = self._begin_separate(arrays["word_class"].astype(np.intp))
            separate_state.restore(separate, self.n_features_in_, arrays)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that predictions need: `parameter_arrays` of joint or separate factors."""
        arrays = super().to_arrays()
        if self.joint_ is not None:
            return arrays | joint_state.parameter_arrays(self.joint_)
        return arrays | separate_state.parameter_arrays(self._separate_made())

    def _restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore(arrays)
        if "directions_" in arrays:
            assign = self._assignment().by_vectors
            self.joint_ = joint_state.with_parameters(self._settings(), assign, arrays)
            self._can_learn = False
            self._show_classes(self.joint_.layout.word_class)
            return
        separate = self._begin_separate(np.asarray(arrays["word_class_"]).astype(np.intp))
        separate_state.set_parameters(separate, arrays)
