"""Settings of a training run by gradient: batches, optimiser, schedule; recipes of networks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from esnlm.torch.networks.registry import check_names, network_class
from esnlm.torch.networks.windowed import WindowedNetwork
from esnlm.utils.validation import (
    Count,
    Flag,
    Number,
    OneOf,
    check_parameters,
    limited,
    unused_parameters,
)  # fmt: skip

_WARMS, _FALLS = OneOf(("warmup-hold-cosine",)), OneOf(("cosine", "warmup-hold-cosine"))
# Steps in which decay forgets a weight, at the least: with fewer nothing is learned of short texts.
_LEAST_KEPT = 20
_STREAMS, _WINDOWS = OneOf(("streams",)), OneOf(("windows",))


@dataclass(frozen=True)
class Plan:
    """Settings of a run; the defaults are those of Ueda et al. (2025): AdamW as torch has it."""

    #: ``sentences``: whole sequences in random order, padded. ``streams``: the corpus as one text
    #: cut in ``batch_size`` parallel ones, read ``length`` tokens a step, the state carried.
    #: ``windows``: pieces of ``length`` tokens in random order, each from the start state.
    batching: str = limited("sentences", OneOf(("sentences", "streams", "windows")))
    #: Sequences, streams or windows of a step, on each of several processes.
    batch_size: int = limited(32, Count())
    #: Tokens read of a stream in a step, or of a window; sequences are cut. Of a network that
    #: reads fewer tokens than the default, the default is as many as it reads.
    length: int = limited(512, Count())
    #: With streams: the pieces' lengths are drawn, normal about ``length`` or, one in twenty,
    #: about half of it, in another order in each pass; the learning rate of a step is in
    #: proportion to its length (Merity et al. 2018, section 4.1).
    vary_length: bool = limited(False, Flag(), batching=_STREAMS)
    #: From one window's beginning to the next's; None: ``length``.
    stride: int | None = limited(None, Count(none=True), batching=_WINDOWS)
    #: Of a window, predict only the token after its last.
    last_only: bool = limited(False, Flag(), batching=_WINDOWS)
    #: Sequences of ``pool`` batches are sorted by length and cut anew into as many batches, of
    #: about equally many tokens, which saves padding.
    pool: int = limited(1, Count(), batching=OneOf(("sentences",)))
    #: Contiguous parts of the windows, of equal size: ``n_passes`` over the first, then over the
    #: next (Köster et al. 2025, section II.6). Windows at the end that fill no part are left out.
    parts: int = limited(1, Count(), batching=_WINDOWS)
    n_passes: int = limited(1, Count(), steps=OneOf((None,)))
    #: Steps of the run, which may end inside a pass; None: ``n_passes`` times those of a pass.
    steps: int | None = limited(None, Count(none=True))
    optimizer: str = limited("adamw", OneOf(("adamw", "muon", "sgd")))
    learning_rate: float = limited(1e-3, Number(0, open="low"))
    weight_decay: float = limited(0.01, Number(0))
    #: In a run of more than one pass, the passes in which decay forgets a weight: the decay is then
    #: 1 / (``learning_rate`` ``decay_passes`` steps a pass), less the more text there is (Wang &
    #: Aitchison 2025), and never forgets within fewer than 20 steps. None: ``weight_decay``.
    decay_passes: float | None = limited(None, Number(0, open="low", none=True))
    betas: tuple[float, float] = limited((0.9, 0.999), None, optimizer=OneOf(("adamw", "muon")))
    #: With SGD: weights are averaged over the steps once a held-out loss is above the least of
    #: those more than ``patience`` losses ago (NT-ASGD; Merity et al. 2018, algorithm 1). From
    #: then on the averages are scored, and they are the result. None: never.
    patience: int | None = limited(None, Count(none=True), optimizer=OneOf(("sgd",)))
    #: Of the learning rate; ``cosine`` falls from the first step on.
    schedule: str = limited("constant", OneOf(("constant", "cosine", "warmup-hold-cosine")))
    #: Shares of the steps: the rate rises linearly, then stays (Köster et al. 2025: 0.01, 0.10).
    warmup: float = limited(0.0, Number(0, 1), schedule=_WARMS)
    hold: float = limited(0.0, Number(0, 1), schedule=_WARMS)
    #: Share of the learning rate at the end of a cosine.
    final: float = limited(0.0, Number(0, 1), schedule=_FALLS)
    #: Largest norm of the gradient.
    clip: float | None = limited(None, Number(0, open="low", none=True))
    accumulate: int = limited(1, Count())  #: batches whose gradients make one step
    #: Compute in bfloat16 where autocast does; weights stay in float32.
    bf16: bool = limited(False, Flag())
    #: Steps from one held-out loss to the next. None: a tenth of all; 0: the end alone.
    score_every: int | None = limited(None, Count(0, none=True))
    held_out_tokens: int = limited(1 << 15, Count())  #: about this many are scored, taken evenly
    random_state: int = 0  #: of the order, and of dropout

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.warmup + self.hold > 1:
            raise ValueError(f"warmup and hold must add up to 1, got {self.warmup + self.hold}")

    def decay(self, n_steps: int, steps_a_pass: int) -> float:
        """Weight decay of a run of ``n_steps``.

        >>> plan = Plan(learning_rate=0.002, decay_passes=0.5)
        >>> plan.decay(100, 100), plan.decay(200, 100)
        (0.01, 10.0)
        """
        if self.decay_passes is None or n_steps <= steps_a_pass:
            return self.weight_decay
        n_kept = max(self.decay_passes * steps_a_pass, _LEAST_KEPT)
        return 1 / (self.learning_rate * n_kept)

    def rate(self, step: int, n_steps: int) -> float:
        """Learning rate of step ``step`` (from 0) of ``n_steps``."""
        if self.schedule == "constant":
            return self.learning_rate
        warms = self.schedule == "warmup-hold-cosine"
        warm = math.ceil(self.warmup * n_steps) if warms else 0
        hold = math.ceil(self.hold * n_steps) if warms else 0
        if step < warm:
            return self.learning_rate * (step + 1) / warm
        along = max(0.0, step - warm - hold) / max(1.0, n_steps - warm - hold)
        fall = 0.5 * (1 + math.cos(math.pi * along))
        return self.learning_rate * (self.final + (1 - self.final) * fall)


def check_readable(plan: Plan, most: int) -> None:
    """Raise ValueError if pieces of text may be longer than the ``most`` that a network reads."""
    if plan.batching == "streams":
        raise ValueError(
            f"batching must be sentences or windows for a network that reads {most} tokens at most,"
            " got streams"
        )
    if plan.length > most:
        raise ValueError(
            f"length must be at most {most}, the tokens that the network reads, got {plan.length}"
        )


def plan_settings(
    model: str, settings: Mapping[str, Any], changes: Mapping[str, Any], *, one_text: bool = False
) -> dict[str, Any]:
    """Return settings of `Plan` for a network: the recipe of its paper, overridden by ``changes``.

    ``settings`` are the network's constructor arguments; windows are as long as its context. With
    ``one_text`` the corpus has no sentence boundaries: windows or streams of the text take the
    place of sentences. ValueError for a setting that is unknown, out of range, or without effect.
    """
    kind = network_class(model)
    plan = {**kind.RECIPE, **changes}
    if "weight_decay" in changes and "decay_passes" not in changes:
        plan.pop("decay_passes", None)
    context = settings.get("context", kind.arguments().get("context"))
    if "context" in kind.arguments():
        Count().check("context", context)
    slides = issubclass(kind, WindowedNetwork)
    if one_text and plan.get("batching", "sentences") == "sentences":
        if "batching" in changes:
            raise ValueError("batching='sentences' needs sentences or documents: not reset='never'")
        batching = "windows" if context else "streams"
        plan = {"length": context or 128, **plan, "batching": batching}
    if "length" not in changes and (slides or (context and context < Plan.length)):
        plan["length"] = context
    check_names(plan, Plan.__dataclass_fields__, "a plan")
    unused = unused_parameters(Plan, plan)
    plan = {name: value for name, value in plan.items() if name in changes or name not in unused}
    try:
        checked = Plan(**plan)
    except TypeError as error:
        raise ValueError(f"the plan of training: {error}") from None
    if context and not slides:
        check_readable(checked, context)
    return plan
