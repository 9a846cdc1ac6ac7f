"""The interface of all networks: settings, hidden vectors, loss and parameter counts."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from esnlm.torch.device import share_of_memory
from esnlm.torch.networks.two_level_softmax import TwoLevelSoftmax, n_classes
from esnlm.utils.arrays import Arrays, Bools, Ints64
from esnlm.utils.memory import check_memory
from esnlm.utils.validation import Count, Number, check_parameters

if TYPE_CHECKING:
    from esnlm.models.language_model import LanguageModel
    from esnlm.text.corpus import TokenStream
    from esnlm.text.tokenizers import Tokenizer

#: Recurrent state: None, a tensor whose first dimension is the batch, or a tuple of states.
State = Any
Settings = dict[str, Any]

#: What may be dropped out.
SHARE = Number(0, 1, open="high")

_LOGITS_AT_ONCE = 1 << 26


class ParameterCounts(NamedTuple):
    """Numbers of parameters: trained, all, and all that are not zeros of a frozen matrix.

    Ueda et al. (2025, table 3) give ``trainable`` and ``nonzero``, rounded to millions; Ueda et
    al. (2025b, table 1) give ``trainable`` and ``total``, truncated to millions.
    """

    trainable: int
    total: int
    nonzero: int


@dataclass(eq=False, repr=False)
class Network(nn.Module, ABC):
    """Tokens to distributions of the next one: `encode` to hidden vectors, `head` to logits.

    A subclass is a dataclass whose fields are its settings, given by keyword after ``n_tokens`` and
    `limited` to what they may be; its ``__post_init__`` makes the layers. Names are those of the
    command line's options where there is one: ``n_units``, ``n_layers``, ``n_heads``, ``rank``,
    ``dropout``. Weights are drawn from torch's global generator, which the caller seeds. Padding
    after the end of a sequence must not change the hidden vectors before it.
    """

    #: The training settings of the paper that differ from `esnlm.torch.training.plan.Plan`'s.
    RECIPE: ClassVar[Settings] = {}
    #: Settings of the sizes in the paper.
    PUBLISHED: ClassVar[tuple[Settings, ...]] = ()
    #: Hidden vectors take no gradient, and `harvest` computes those of many sequences at once.
    reads_ahead: ClassVar[bool] = False

    n_tokens: int = field(metadata={"constraint": Count()})  #: size of the vocabulary V
    output: Any = field(init=False)
    #: Most tokens that `encode` reads, in all pieces of a text together; None: any number. Longer
    #: text is read in overlapping windows, each ``stride`` tokens after the one before; the last
    #: ``stride`` predictions of a window count.
    longest: int | None = field(default=None, init=False)
    stride: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        super().__init__()
        check_parameters(self)
        settings = self.settings()
        n_weights = self.count(**settings) + self.count_frozen(**settings)
        what = f"the {n_weights} weights of {type(self).__name__} with {self.n_tokens} tokens"
        check_memory(what, 4 * n_weights, "lower one of its sizes")

    @classmethod
    def require(cls) -> None:
        """Raise ValueError if a library that the network needs beside torch is missing."""

    @classmethod
    def arguments(cls) -> dict[str, Any]:
        """Arguments of the constructor by name, and their defaults."""
        return {argument.name: argument.default for argument in fields(cls) if argument.init}

    @classmethod
    def family(cls) -> Iterator[Settings]:
        """Yield settings of increasing numbers of trained parameters."""
        yield from ({"n_units": n} for n in range(1, 1 << 20))

    @staticmethod
    @abstractmethod
    def count(n_tokens: int, **settings: Any) -> int:
        """Return the number of trained parameters of a network with these settings."""

    @staticmethod
    def count_frozen(n_tokens: int, **settings: Any) -> int:
        """Return number of frozen weights that a network with these settings draws."""
        return 0

    def settings(self) -> Settings:
        """Return constructor arguments as JSON-compatible values."""
        return {name: getattr(self, name) for name in self.arguments()}

    def given_weights(self) -> Arrays:
        """Frozen weights by name that no settings draw again: they are saved with the others."""
        return {}

    @classmethod
    def of_saved(cls, settings: Settings, weights: Arrays) -> "Network":
        """Return the network of saved settings, with `given_weights` from saved weights."""
        return cls(**settings)

    @abstractmethod
    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Tokens (B, T) int64 -> hidden (B, T, D), and the state after the last token.

        ``state`` is that of the piece of text before, None at the start. It is neither detached
        nor changed here.
        """

    def hidden_of(self, harvested: Tensor, lengths: Ints64) -> Tensor:
        """Return hidden vectors (n, D), with gradient, of what `harvest` gave (n, D').

        For networks that read ahead: what is trained between the harvest and `head`.
        """
        return harvested

    def start(self, width: int) -> Tensor:
        """Hidden (D,) before any token, D being ``width``: zeros."""
        return next(self.parameters()).new_zeros(width)

    @staticmethod
    def through(layers: Iterable[Any], hidden: Tensor, state: State) -> tuple[Tensor, State]:
        """Hidden of the last of recurrent layers, each called with its state; their new states."""
        states = []
        for layer, before in zip(layers, state or repeat(None), strict=False):
            hidden, after = layer(hidden, before)
            states.append(after)
        return hidden, tuple(states)

    def survey(self, stream: "TokenStream") -> None:
        """Take from the training text what training starts from: here, classes of words."""
        if self.in_two_levels:
            self.output.survey(stream)

    @property
    def in_two_levels(self) -> bool:
        """Whether the output layer predicts a class of words, then a word."""
        return isinstance(getattr(self, "output", None), TwoLevelSoftmax)

    def before_output(self, hidden: Tensor) -> Tensor:
        """Return what the output layer reads of hidden vectors (..., D)."""
        return hidden

    def penalty(self, real: Bools | None = None) -> Tensor | None:
        """Return a scalar that the last `encode` in training adds to the mean loss, once.

        ``real`` (B, T) is false where the text that was read is padding; None: nowhere.
        """
        return None

    def last(self, tokens: Tensor) -> Tensor:
        """Tokens (n, T) int64 -> hidden (n, D) after the last of each row, read from the start."""
        return self.encode(tokens)[0][:, -1]

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden (..., D) -> logits (..., V) of the token that follows, by the layer ``output``."""
        hidden = self.before_output(hidden)
        output = self.output.log_probabilities if self.in_two_levels else self.output
        logits: Tensor = output(hidden)
        return logits

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Negative log-likelihood (n,) float32, in nats, of targets (n,) after hidden (n, D).

        Without gradient, (n, V) is never in memory. With one, the caller passes `rows_at_once`
        rows at a time and takes the gradient of each part before the next.
        """
        rows = self.rows_at_once()
        if not torch.is_grad_enabled() and len(hidden) > rows:
            parts = zip(hidden.split(rows), targets.split(rows), strict=True)
            return torch.cat([self._losses(*part) for part in parts])
        return self._losses(hidden, targets)

    def _losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Losses (n,) of rows that fit in memory together."""
        if self.in_two_levels:
            losses: Tensor = self.output.losses(self.before_output(hidden), targets)
            return losses
        logits = self.head(hidden)
        # The dtype, and no copy of half-precision logits in float32 before.
        kind = None if logits.dtype == torch.float64 else torch.float32
        scores = functional.log_softmax(logits, dim=-1, dtype=kind)
        return functional.nll_loss(scores, targets, reduction="none")

    def rows_at_once(self) -> int:
        """Rows of logits whose loss and gradient take about a sixteenth of a CUDA device.

        In two levels on a CPU a row has the logits of the classes alone.
        """
        logits = share_of_memory(self.device, 256, otherwise=_LOGITS_AT_ONCE)
        few = self.in_two_levels and self.device.type == "cpu"
        return max(1, logits // (n_classes(self.n_tokens) if few else self.n_tokens))

    def trained_parameters(self) -> dict[str, nn.Parameter]:
        """Return the trained parameters by name; shared ones once."""
        return {name: p for name, p in self.named_parameters() if p.requires_grad}

    @property
    def n_trained(self) -> int:
        """Number of trained parameters; those that two layers share count once."""
        return sum(p.numel() for p in self.trained_parameters().values())

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Return the trained parameters for an optimiser; matrices decay unless overridden.

        Biases and the scales of normalised layers do not: a decay that is of use over several
        passes would pull scales from one to zero. The gradients of a group with ``sparse`` are
        sparse. A group's learning rate is ``times`` the run's, its decay is not.
        """
        return decaying(self.trained_parameters().values(), weight_decay)

    def frozen_weights(self) -> list[Any]:
        """Return the frozen weights: here the parameters that take no gradient."""
        return [parameter for parameter in self.parameters() if not parameter.requires_grad]

    def parameter_counts(self) -> ParameterCounts:
        """Numbers of parameters; those that two layers share count once."""
        trained, frozen = self.n_trained, self.frozen_weights()
        entries = sum(math.prod(matrix.shape) for matrix in frozen)
        nonzero = sum(int((matrix != 0).sum()) for matrix in frozen)
        return ParameterCounts(trained, trained + entries, trained + nonzero)

    def language_model(self, tokenizer: "Tokenizer | None", reset: str) -> "LanguageModel | None":
        """Return the same model as the core's, or None if the core cannot compute it."""
        return None

    @property
    def device(self) -> torch.device:
        """Return the device of the network's parameters."""
        return next(iter(self.parameters())).device


def decaying(
    parameters: Iterable[nn.Parameter],
    weight_decay: float,
    decays: Callable[[nn.Parameter], bool] = lambda parameter: parameter.dim() > 1,
) -> list[dict[str, Any]]:
    """Return groups of an optimiser: parameters that decay, matrices by default, and others."""
    parameters = list(parameters)
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if decays(p)], "weight_decay": weight_decay},
        {"params": [p for p in parameters if not decays(p)], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
