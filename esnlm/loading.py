"""Load model folders of every kind: a reservoir's language model, n-grams, a network of torch."""

from pathlib import Path
from typing import Any

from esnlm.models.arpa import read_arpa
from esnlm.models.base import SequenceModel
from esnlm.models.interpolated import class_of
from esnlm.storage.model_folder import read_config, unchecked_config
from esnlm.torch import require_torch


def load_model(folder: str | Path, *, device: str | None = None) -> SequenceModel:
    """Load the model, of any kind, that ``save`` wrote into ``folder``, or transformers' GPT-2.

    A file of n-grams in the ARPA format, plain or ``.gz``, is a model, too.

    With ``device`` (auto, cpu, cuda or cuda:N) torch computes it there, a reservoir with a softmax
    too, but no n-grams. Without one, networks are computed where
    `esnlm.torch.device.chosen_device` finds best, and all else by the core. ModelFormatError: the
    folder is missing, incomplete, altered or of another version; CorpusError: the file is no ARPA
    file; ValueError: torch is not installed, cannot compute the model or has no such device.
    """
    if Path(folder).is_file():
        return read_arpa(folder)
    if unchecked_config(Path(folder)).get("model_type") == "gpt2":
        require_torch(f"the model {folder}")
        from esnlm.torch.networks.gpt2 import pretrained

        return _on_device(pretrained(folder), device)
    config = read_config(Path(folder))
    if device is not None and config.get("kind") is None:
        config = {"kind": "torch"}  # which computes a reservoir's model, too
    if config.get("kind") == "torch":
        require_torch(f"the model {folder}")
    return _on_device(class_of(config).load(folder), device)


def _on_device(model: Any, device: str | None) -> SequenceModel:
    """Move the networks among a model and its parts to a device; the core computes the others."""
    networks = [
        each.network for each in (model, *getattr(model, "models", ())) if hasattr(each, "network")
    ]
    if networks:
        from esnlm.torch.device import chosen_device

        for network in networks:
            network.to(chosen_device(device or "auto"))
    return model
