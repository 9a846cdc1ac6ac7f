"""What every network of this package offers to training and scoring."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from esnlm.torch.device import share_of_memory

if TYPE_CHECKING:
    from esnlm.models.reservoir import LanguageModel
    from esnlm.text.tokenizers import Tokenizer

#: What a network carries from one piece of text to the next: None, a tensor whose first dimension
#: is the batch, or a tuple of states.
State = Any

_LOGITS_AT_ONCE = 1 << 26


class Network(nn.Module, ABC):
    """Tokens to distributions of the next one: `encode` to hidden vectors, `head` to logits.

    The constructor takes ``n_tokens`` first and all else by keyword, in the names that options
    of the command line have where they fit: ``n_units``, ``n_layers``, ``n_heads``, ``rank``,
    ``dropout``. It draws weights from torch's global generator, which the caller seeds. What
    follows the end of a sequence (padding) must not change what comes before it.

    Attributes
    ----------
    n_tokens : int
        Size of the vocabulary V.
    window : int or None
        A prediction reads the last ``window`` tokens at most, from the start state; None: all.
    stride : int
        Predictions that may share a window on text longer than it: a window moves on by so many
        tokens and its last ``stride`` predictions count.
    reads_ahead : bool
        Hidden vectors take no gradient, and `harvest` gives those of many sequences at once.
    RECIPE : dict
        How the paper trained it: settings of `esnlm.torch.training.plan.Plan` that differ from its
        defaults.
    """

    RECIPE: ClassVar[dict[str, Any]] = {}

    n_tokens: int
    window: int | None = None
    stride: int = 1
    reads_ahead: ClassVar[bool] = False

    @classmethod
    def require(cls) -> None:
        """Raise ValueError where a library that the network needs beside torch is missing."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Constructor arguments, as JSON holds them: the same class takes the same weights."""

    @abstractmethod
    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Tokens (B, T) int64 -> hidden (B, T, D), and the state after the last token.

        ``state`` is what an earlier call returned, for text that is read in pieces; None: the
        start. It is neither detached nor changed here.
        """

    def penalty(self) -> Tensor | None:
        """What the last `encode`, in training, adds to the mean loss: a scalar, told once."""
        return None

    def last(self, tokens: Tensor) -> Tensor:
        """Tokens (n, T) int64 -> hidden (n, D) after the last of each row, read from the start."""
        return self.encode(tokens)[0][:, -1]

    def harvest(self, tokens: NDArray[np.int64], starts: NDArray[np.int64]) -> Tensor:
        """Hidden (n, D) after each of tokens (n,), sequences beginning at ``starts`` (n_seq,)."""
        raise NotImplementedError(f"{type(self).__name__} does not read ahead")

    @property
    def longest(self) -> int | None:
        """Most tokens that `encode` reads, in all pieces of a text together; None: any number."""
        return self.window

    @abstractmethod
    def head(self, hidden: Tensor) -> Tensor:
        """Hidden (..., D) -> logits (..., V) of the token that follows."""

    def loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Negative log-likelihood (n,) float32, in nats, of targets (n,) after hidden (n, D).

        Without gradient, (n, V) is never in memory. What takes one is given `rows_at_once` rows
        at a time, each part's gradient taken before the next part.
        """
        if torch.is_grad_enabled() or len(hidden) <= self.rows_at_once():
            return self._loss_of_rows(hidden, targets)
        rows = self.rows_at_once()
        parts = zip(hidden.split(rows), targets.split(rows), strict=True)
        return torch.cat([self._loss_of_rows(*part) for part in parts])

    def _loss_of_rows(self, hidden: Tensor, targets: Tensor) -> Tensor:
        logits = self.head(hidden)
        # The dtype, and no copy of half-precision logits in float32 before.
        kind = None if logits.dtype == torch.float64 else torch.float32
        scores = functional.log_softmax(logits, dim=-1, dtype=kind)
        return functional.nll_loss(scores, targets, reduction="none")

    def rows_at_once(self) -> int:
        """Rows of logits whose loss and gradient take about a sixteenth of a CUDA device."""
        logits = share_of_memory(self.device, 256, otherwise=_LOGITS_AT_ONCE)
        return max(1, logits // self.n_tokens)

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """The trained parameters as an optimiser takes them; weights decay unless overridden."""
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return [{"params": trained, "weight_decay": weight_decay}]

    def frozen_weights(self) -> tuple[int, int]:
        """Entries of the frozen weight matrices: all, and those that are not zero.

        Here those of parameters that take no gradient; a network that keeps frozen weights in
        buffers, or sparse, counts them itself.
        """
        frozen = [parameter for parameter in self.parameters() if not parameter.requires_grad]
        return sum(p.numel() for p in frozen), sum(int(p.count_nonzero()) for p in frozen)

    def language_model(self, tokenizer: "Tokenizer | None", reset: str) -> "LanguageModel | None":
        """The same model as the core's, where the core can compute it."""
        return None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(iter(self.parameters())).device
