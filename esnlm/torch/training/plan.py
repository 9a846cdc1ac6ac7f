"""What decides a training run by gradient, beside the network and the corpus."""

import math
from dataclasses import dataclass

from esnlm.utils.validation import check_choice, check_count, check_finite, check_flag

BATCHINGS = ("sentences", "streams", "windows")
SCHEDULES = ("constant", "cosine", "warmup-hold-cosine")
OPTIMIZERS = ("adamw", "sgd")


@dataclass(frozen=True)
class Plan:
    """Settings of a run; the defaults are those of Ueda et al. (2025): AdamW as torch has it.

    Parameters
    ----------
    batching : {"sentences", "streams", "windows"}
        ``sentences``: whole sequences in random order, padded. ``streams``: the corpus as one text
        cut in ``batch_size`` parallel ones, read ``length`` tokens at a time, the state carried.
        ``windows``: pieces of ``length`` tokens in random order, each from the start state.
    batch_size : int
        Sequences, streams or windows of a step, on each of several processes.
    length : int
        Tokens read of a stream in a step, or of a window; sequences longer than that are cut.
    vary_length : bool
        Of streams: the pieces' lengths are drawn, normal about ``length`` or, one in twenty, about
        half of it, and come in another order in each pass; the learning rate of a step is in
        proportion to its length (Merity et al. 2018, section 4.1).
    stride : int, optional
        From the beginning of a window to that of the next; None: ``length``.
    last_only : bool
        Of a window, predict only the token after its last.
    pool : int
        Sequences of so many batches are sorted by length and cut anew into as many, of about as
        many tokens each, which saves padding.
    epochs : int
    optimizer : {"adamw", "sgd"}
    learning_rate, weight_decay : float
    betas : pair of float
        Of AdamW.
    patience : int, optional
        Of SGD: weights are averaged over the steps from where a held-out loss is above the least
        of those more than so many losses ago (NT-ASGD; Merity et al. 2018, algorithm 1). Then it
        is the averages that are scored, and that remain at the end. None: never.
    schedule : {"constant", "cosine", "warmup-hold-cosine"}
        Of the learning rate over all steps. ``cosine`` falls from the first step on.
    warmup, hold : float
        Shares of the steps: the rate rises linearly, then stays (Köster et al. 2025: 0.01, 0.10).
    final : float
        Share of the learning rate that a cosine ends at.
    clip : float, optional
        Largest norm of the gradient.
    accumulate : int
        Batches whose gradients make one step.
    bf16 : bool
        Compute in bfloat16 where autocast does; weights stay in float32.
    score_every : int, optional
        Steps from one held-out loss to the next. None: a tenth of all; 0: the end alone.
    held_out_tokens : int
        About so many held-out tokens are scored, taken evenly.
    seed : int
        Of the order, and of dropout.
    """

    batching: str = "sentences"
    batch_size: int = 32
    length: int = 512
    vary_length: bool = False
    stride: int | None = None
    last_only: bool = False
    pool: int = 1
    epochs: int = 1
    optimizer: str = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    patience: int | None = None
    schedule: str = "constant"
    warmup: float = 0.0
    hold: float = 0.0
    final: float = 0.0
    clip: float | None = None
    accumulate: int = 1
    bf16: bool = False
    score_every: int | None = None
    held_out_tokens: int = 1 << 15
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("batching", self.batching, BATCHINGS)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        for name in ("batch_size", "length", "pool", "epochs", "accumulate", "held_out_tokens"):
            check_count(name, getattr(self, name))
        for name in ("vary_length", "last_only", "bf16"):
            check_flag(name, getattr(self, name))
        if self.vary_length and self.batching != "streams":
            raise ValueError(f"vary_length is of the batching streams, not of {self.batching}")
        if self.stride is not None:
            check_count("stride", self.stride)
        if self.score_every is not None:
            check_count("score_every", self.score_every, least=0)
        if self.patience is not None:
            check_count("patience", self.patience)
            if self.optimizer != "sgd":
                raise ValueError(f"patience is of the optimizer sgd, not of {self.optimizer}")
        for name in ("learning_rate", "weight_decay", "warmup", "hold", "final"):
            check_finite(name, getattr(self, name))
        if self.clip is not None:
            check_finite("clip", self.clip)
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must be at least 0, got {self.weight_decay}")
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"clip must be positive, got {self.clip}")
        for name in ("warmup", "hold", "final"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in [0, 1], got {getattr(self, name)}")
        if self.warmup + self.hold > 1:
            raise ValueError(f"warmup and hold must add up to 1, got {self.warmup + self.hold}")

    def rate(self, step: int, n_steps: int) -> float:
        """Learning rate of step ``step`` (from 0) of ``n_steps``.

        Examples
        --------
        >>> plan = Plan(learning_rate=1.0, schedule="warmup-hold-cosine", warmup=0.2, hold=0.2,
        ...     final=0.1)
        >>> [round(plan.rate(step, 10), 3) for step in range(10)]
        [0.5, 1.0, 1.0, 1.0, 1.0, 0.94, 0.775, 0.55, 0.325, 0.16]
        """
        if self.schedule == "constant":
            return self.learning_rate
        warm, held = 0.0, 0.0
        if self.schedule == "warmup-hold-cosine":
            warm = math.ceil(self.warmup * n_steps)
            held = math.ceil(self.hold * n_steps)
        if step < warm:
            return self.learning_rate * (step + 1) / warm
        along = max(0.0, step - warm - held) / max(1.0, n_steps - warm - held)
        fall = 0.5 * (1 + math.cos(math.pi * along))
        return self.learning_rate * (self.final + (1 - self.final) * fall)
