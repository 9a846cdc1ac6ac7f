"""Networks that read a window of text and predict what follows it."""

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from esnlm.torch.networks.network import Network, State

_WINDOWS_AT_ONCE = 4096


class WindowedNetwork(Network):
    """A network whose every prediction reads the last ``window`` tokens, and nothing else.

    A subclass defines `read`, which is all that training on windows calls. `encode` gives every
    position of a text the hidden vector of its own window, and the first positions that of the
    shorter text there is.
    """

    #: Adam, 1 024 windows a step, five epochs over every window of the text.
    RECIPE: ClassVar[dict[str, Any]] = {
        "batching": "windows", "length": 32, "stride": 1, "last_only": True, "batch_size": 1024,
        "epochs": 5, "learning_rate": 1e-4, "weight_decay": 0.0,
    }  # fmt: skip

    window: int

    @property
    def longest(self) -> None:
        """`encode` cuts text of any length in windows."""
        return None

    @abstractmethod
    def read(self, tokens: Tensor) -> Tensor:
        """Hidden (n, D) after the last of tokens (n, L) int64, 1 <= L <= ``window``."""

    def last(self, tokens: Tensor) -> Tensor:
        """Hidden (n, D) after the last of tokens (n, T) int64, of which the window is read."""
        return self.read(tokens[:, -self.window :])

    def encode(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Tokens (B, T) int64 -> hidden (B, T, D); the state is the last ``window`` - 1 tokens."""
        before = 0 if state is None else state.shape[1]
        text = tokens if state is None else torch.cat([state, tokens], dim=1)
        parts = [self.prefixes(text[:, : self.window], before)]
        if text.shape[1] > self.window:
            parts.append(self._full_windows(text[:, 1:]))
        carried = text[:, max(0, text.shape[1] - self.window + 1) :]
        return torch.cat(parts, dim=1), carried

    def prefixes(self, tokens: Tensor, first: int) -> Tensor:
        """Hidden (B, L - first, D) after tokens[:, : first + 1] ... tokens, L <= ``window``."""
        lengths = range(first + 1, tokens.shape[1] + 1)
        return torch.stack([self.read(tokens[:, :length]) for length in lengths], dim=1)

    def _full_windows(self, text: Tensor) -> Tensor:
        """Hidden (B, S - window + 1, D) after each whole window of text (B, S)."""
        windows = text.unfold(1, self.window, 1)
        rows = windows.reshape(-1, self.window).split(_WINDOWS_AT_ONCE)
        return torch.cat([self.read(part) for part in rows]).unflatten(0, windows.shape[:2])
