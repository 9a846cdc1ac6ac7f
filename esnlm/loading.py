"""Load model folders of every kind: a reservoir's language model, n-grams, a network of torch."""

from pathlib import Path

from esnlm.models.arpa import read_arpa
from esnlm.models.base import SequenceModel
from esnlm.models.interpolated import KIND as INTERPOLATED
from esnlm.models.interpolated import InterpolatedModel
from esnlm.models.language_model import LanguageModel
from esnlm.models.ngram import KIND, NgramLanguageModel
from esnlm.storage.atomic import put_back
from esnlm.storage.model_folder import unchecked_config


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
    put_back(Path(folder))
    # Unchecked: the class that loads the folder says what is wrong with it.
    config = unchecked_config(Path(folder))
    kind, gpt2 = config.get("kind"), config.get("model_type") == "gpt2"
    if kind == INTERPOLATED:
        return _on_device(InterpolatedModel.load(folder), device)
    if kind == KIND:
        return NgramLanguageModel.load(folder)
    if device is None and kind != "torch" and not gpt2:
        return LanguageModel.load(folder)
    from esnlm.torch import require_torch

    require_torch(f"the model {folder}")
    from esnlm.torch.device import chosen_device
    from esnlm.torch.language_model import TorchLanguageModel
    from esnlm.torch.networks.gpt2 import pretrained

    place = chosen_device(device or "auto")
    model = pretrained(folder) if gpt2 else TorchLanguageModel.load(folder)
    model.network.to(place)
    return model


def _on_device(model: InterpolatedModel, device: str | None) -> InterpolatedModel:
    """Move the networks of a model of several to a device; the core computes the others."""
    networks = [part.network for part in model.models if hasattr(part, "network")]
    if networks:
        from esnlm.torch.device import chosen_device

        for network in networks:
            network.to(chosen_device(device or "auto"))
    return model
