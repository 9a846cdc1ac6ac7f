"""A network and a tokenizer as a language model that scores, samples and lives in a folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from esnlm import __version__, persistence
from esnlm.corpus import TokenStream
from esnlm.framing import RESETS
from esnlm.sequence_model import SequenceModel
from esnlm.tokenizers import Tokenizer
from esnlm.torch.network import Network
from esnlm.torch.registry import name_of, network_class
from esnlm.validation import check_choice

#: What the configuration of a saved network calls its kind.
KIND = "torch"
_TOKENS_AT_ONCE = 1 << 14


class TorchLanguageModel(SequenceModel):
    """Next-token distributions of a network; documents are those of `esnlm.LanguageModel`.

    Parameters
    ----------
    network : Network
        Trained by `esnlm.torch.training`; moved to where it is to compute by its ``to``.
    tokenizer : Tokenizer, optional
    reset : {"sentence", "document", "never"}
        Where the network's state begins anew; see `esnlm.LanguageModel`.

    Attributes
    ----------
    tokenizer_ : Tokenizer or None
    n_tokens_ : int
        V; every distribution has this many entries, the token's id its place.
    """

    def __init__(
        self, network: Network, tokenizer: Tokenizer | None = None, reset: str = "sentence"
    ) -> None:
        check_choice("reset", reset, RESETS)
        self.network = network
        self.tokenizer = tokenizer
        self.reset = reset
        self.tokenizer_ = tokenizer
        self.n_tokens_ = network.n_tokens

    @property
    def n_parameters_(self) -> int:
        """Number of trained parameters."""
        return sum(p.numel() for p in self.network.parameters() if p.requires_grad)

    def save(self, folder: str | Path) -> None:
        """Write ``config.json``, ``weights.safetensors`` and, with a tokenizer, ``tokenizer.json``.

        The folder appears whole or not at all; a model that was there is replaced.

        Raises
        ------
        FileExistsError
            ``folder`` is a file, or a folder with anything but a model in it.
        """
        config: dict[str, Any] = {
            "esnlm": __version__,
            "kind": KIND,
            "model": name_of(self.network),
            "network": self.network.settings(),
            "n_tokens": self.n_tokens_,
            "settings": {"reset": self.reset},
            "tokenizer": None,
        }
        texts = {}
        if self.tokenizer_ is not None:
            texts[persistence.TOKENIZER] = self.tokenizer_.to_json()
            config["tokenizer"] = {"bos": self.tokenizer_.bos, "eos": self.tokenizer_.eos}
        arrays = {persistence.WEIGHTS: weights_of(self.network)}
        persistence.write_model(Path(folder), config, arrays, texts)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The model that `save` wrote, on the CPU.

        Raises
        ------
        ModelFormatError
            The folder is missing, incomplete, altered, of another version, or of another kind.
        """
        config, arrays, texts = persistence.read_model(Path(folder))
        if config.get("kind") != KIND:
            raise persistence.ModelFormatError(
                f"{folder} holds no network: load it with esnlm.models.load_model"
            )
        try:
            return cls._rebuilt(config, arrays[persistence.WEIGHTS], texts)
        except (KeyError, TypeError, IndexError) as error:
            raise persistence.ModelFormatError(f"{folder} is not a whole model: {error}") from error

    @classmethod
    def _rebuilt(
        cls, config: dict[str, Any], arrays: persistence.Arrays, texts: dict[str, str]
    ) -> Self:
        tokenizer = None
        if config["tokenizer"] is not None:
            tokenizer = Tokenizer.from_json(texts[persistence.TOKENIZER], **config["tokenizer"])
        network = network_class(config["model"])(**config["network"])
        set_weights(network, arrays)
        return cls(network.eval(), tokenizer, **config["settings"])

    def _log_probabilities(self, stream: TokenStream) -> NDArray[np.float64]:
        scores = np.zeros(len(stream.tokens))
        starts = np.array([0]) if stream.starts is None else stream.starts
        for first, last in zip(starts, [*starts[1:], len(stream.tokens)], strict=True):
            ids = stream.tokens[first:last].astype(np.int64)
            scores[first + 1 : last] = self._sequence_scores(ids)
        return scores

    @torch.inference_mode()
    def _sequence_scores(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Natural-log probabilities (T - 1,) of ids (T,) after the first."""
        network = self.network.eval()
        tokens = torch.from_numpy(ids).to(network.device)
        scores = []
        state = None
        for first in range(0, len(ids) - 1, _TOKENS_AT_ONCE):
            part = tokens[first : min(first + _TOKENS_AT_ONCE, len(ids) - 1)]
            hidden, state = network.encode(part[None], state)
            following = tokens[first + 1 : first + 1 + len(part)]
            scores.append(-network.loss(hidden[0], following).double().cpu().numpy())
        return np.concatenate([*scores, np.zeros(0)])

    @torch.inference_mode()
    def _read(self, ids: NDArray[Any], state: Any = None) -> Any:
        """What the network carries, and its last hidden vector (1, D), after ids (n,)."""
        network = self.network.eval()
        if not len(ids):
            if state is not None:
                return state
            nothing = torch.zeros((1, 1), dtype=torch.int64, device=network.device)
            return None, torch.zeros_like(network.encode(nothing)[0][:, -1])
        tokens = torch.from_numpy(np.asarray(ids).astype(np.int64)).to(network.device)
        hidden, carried = network.encode(tokens[None], None if state is None else state[0])
        return carried, hidden[:, -1]

    @torch.inference_mode()
    def _next_log_probabilities(self, state: Any) -> NDArray[np.float64]:
        logits = self.network.head(state[1])[0].double()
        found: NDArray[np.float64] = torch.log_softmax(logits, dim=-1).cpu().numpy()
        return found


def weights_of(network: Network) -> persistence.Arrays:
    """Parameters and persistent buffers as arrays; shared ones once."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in _stored(network)}


def set_weights(network: Network, arrays: persistence.Arrays) -> None:
    """Copy arrays of `weights_of` into a network of the same settings.

    Raises
    ------
    ModelFormatError
        Names or shapes are not the network's.
    """
    stored = dict(_stored(network))
    if stored.keys() != arrays.keys():
        wrong = sorted(stored.keys() ^ arrays.keys())[0]
        raise persistence.ModelFormatError(f"the weights do not fit the settings: {wrong}")
    for name, tensor in stored.items():
        if tuple(tensor.shape) != arrays[name].shape:
            raise persistence.ModelFormatError(
                f"the weights {name} have shape {arrays[name].shape}, expected"
                f" {tuple(tensor.shape)}"
            )
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(arrays[name]))


def _stored(network: Network) -> Iterator[tuple[str, torch.Tensor]]:
    yield from network.named_parameters()
    kept = network.state_dict(keep_vars=True)
    yield from ((name, buffer) for name, buffer in network.named_buffers() if name in kept)
