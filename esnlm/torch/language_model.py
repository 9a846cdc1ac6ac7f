"""A network and a tokenizer as a language model: scores, samples, save and load."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch

from esnlm.models.base import ROWS_AT_ONCE, SequenceModel
from esnlm.models.language_model import LanguageModel
from esnlm.models.saving import Contents
from esnlm.storage.model_folder import WEIGHTS, ModelFormatError, read_config
from esnlm.text.boundaries import RESETS
from esnlm.text.corpus import TokenStream
from esnlm.text.tokenizers import Tokenizer
from esnlm.torch.networks.network import Network
from esnlm.torch.networks.registry import name_of, network_class
from esnlm.torch.scoring import log_probabilities, width_of, windows
from esnlm.utils.arrays import Array, Floats, Ints64
from esnlm.utils.state_dict import Arrays
from esnlm.utils.validation import OneOf


class TorchLanguageModel(SequenceModel):
    """Next-token distributions of a network; documents are those of `esnlm.LanguageModel`.

    ``run_`` is the digest of the run of `esnlm.torch.training.trainer.NetworkTrainer` that trained
    the network, or None.
    """

    _kind: ClassVar[str | None] = "torch"

    def __init__(
        self, network: Network, tokenizer: Tokenizer | None = None, reset: str = "sentence"
    ) -> None:
        OneOf(RESETS).check("reset", reset)
        self.network, self.reset = network, reset
        self.tokenizer = self.tokenizer_ = tokenizer
        self.n_tokens_ = network.n_tokens
        self.run_: str | None = None

    @property
    def n_parameters_(self) -> int:
        """Number of trained parameters."""
        return self.network.n_trained

    def save(self, folder: str | Path) -> None:
        """Write a model folder; a network that the core can compute, as the core's model.

        See `esnlm.LanguageModel.save`.
        """
        core = self.network.language_model(self.tokenizer_, self.reset_)
        if core is None:
            return super().save(folder)
        core.run_ = self.run_
        return core.save(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Return the model that `save` wrote, on the CPU; also the core's, for torch to compute."""
        if "reservoir" not in read_config(Path(folder)):
            return super().load(folder)
        from esnlm.torch.networks.esn import EchoStateNetwork

        core = LanguageModel.load(folder)
        return cls(EchoStateNetwork.of_core(core).eval(), core.tokenizer_, core.reset_)

    def _contents(self) -> Contents:
        config = {
            "kind": self._kind,
            "model": name_of(self.network),
            "network": self.network.settings(),
            "n_tokens": self.n_tokens_,
            "settings": {"reset": self.reset},
        }
        weights = {name: array.cpu().numpy() for name, array in self.network.state_dict().items()}
        return config, {WEIGHTS: weights | self.network.given_weights()}

    @classmethod
    def _rebuilt(
        cls, config: dict[str, Any], arrays: dict[str, Arrays], tokenizer: Tokenizer | None
    ) -> Self:
        """Return the model of config and weights; raise ModelFormatError where they do not fit."""
        kind = network_class(config["model"])
        n_trained = kind.count(**config["network"])
        if n_trained > (n_numbers := sum(array.size for array in arrays[WEIGHTS].values())):
            raise ModelFormatError(
                f"the settings are those of {n_trained} parameters, and the weights {n_numbers}"
            )
        network = kind.of_saved(config["network"], arrays[WEIGHTS])
        names = arrays[WEIGHTS].keys() - network.given_weights().keys()
        try:
            network.load_state_dict(
                {name: torch.from_numpy(arrays[WEIGHTS][name]) for name in names}
            )
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise ModelFormatError(f"the weights do not fit the settings: {reason}") from error
        return cls(network.eval(), tokenizer, **config["settings"])

    def _log_probabilities(self, stream: TokenStream) -> Floats:
        return log_probabilities(self.network, stream.tokens, stream.starts)

    def _distributions(self, stream: TokenStream) -> Iterator[tuple[Floats, Ints64]]:
        longest = self.network.longest
        starts = np.zeros(1, dtype=np.int64) if stream.starts is None else stream.starts
        all_new = np.zeros(len(starts), dtype=np.int64)
        read = windows(starts, len(stream.tokens), longest, self.network.stride, all_new)
        # A network that carries a state has one window a sequence, which it reads in parts.
        at_once = longest or ROWS_AT_ONCE
        for start, length, skip in read.T.tolist():
            state, end = None, start + length
            for first in range(start, end, at_once):
                after = min(first + at_once, end)
                rows, state = self._run(stream.tokens[first:after], state)
                yield rows[skip:], np.arange(first + skip + 1, after + 1)

    @torch.inference_mode()
    def _run(self, tokens: Array, state: Any) -> tuple[Floats, Any]:
        """Return distributions (n, V) after each of n tokens, and the network's state."""
        network = self.network.eval()
        ids = torch.from_numpy(tokens.astype(np.int64)).to(network.device)
        hidden, state = network.encode(ids[None], state)
        return np.asarray(torch.softmax(network.head(hidden[0]).double(), dim=-1).cpu()), state

    def _read(self, ids: Array, state: Any = None) -> "_Reading":
        ids = np.asarray(ids, dtype=np.int64)
        if self.network.longest is not None:
            before = np.empty(0, dtype=np.int64) if state is None else state.ids
            window = np.concatenate([before, ids])[-self.network.longest :]
            return _Reading(window, None, self._hidden(window, None)[1])
        if state is not None and not len(ids):
            return _Reading(ids, state.carried, state.hidden)
        return _Reading(ids, *self._hidden(ids, None if state is None else state.carried))

    @torch.inference_mode()
    def _hidden(self, ids: Ints64, state: Any) -> tuple[Any, torch.Tensor]:
        """Return the network's state after ids (n,), and its hidden vector (D,)."""
        network = self.network.eval()
        if not len(ids):
            return None, network.start(width_of(network))
        hidden, carried = network.encode(torch.from_numpy(ids).to(network.device)[None], state)
        return carried, hidden[0, -1]

    @torch.inference_mode()
    def _next_log_probabilities(self, state: "_Reading") -> Floats:
        logits = self.network.head(state.hidden[None])[0].double()
        return np.asarray(torch.log_softmax(logits, dim=-1).cpu())


class _Reading(NamedTuple):
    """State of reading: the tokens of the window, the network's state, the last hidden vector."""

    ids: Ints64
    carried: Any
    hidden: torch.Tensor
