"""Model folders of every kind: a reservoir's language model, n-grams, or a network of torch."""

import json
from pathlib import Path
from typing import Any

from esnlm.language_model import LanguageModel
from esnlm.ngram_model import KIND, NgramLanguageModel
from esnlm.persistence import CONFIG
from esnlm.sequence_model import SequenceModel


def load_model(folder: str | Path) -> SequenceModel:
    """The model that ``save`` wrote into ``folder``, of whichever kind, or transformers' GPT-2.

    Raises
    ------
    ModelFormatError
        The folder is missing, incomplete, altered or of another version.
    ValueError
        It holds a network, and torch is not installed.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "model"
    >>> NgramLanguageModel(2).fit([[0, 1, 2]]).save(folder)
    >>> load_model(folder).order
    2
    """
    config = _config(Path(folder))
    kind = config.get("kind")
    if kind == KIND:
        return NgramLanguageModel.load(folder)
    if kind == "torch":
        from esnlm.torch.needed import require_torch

        require_torch(f"the model {folder}")
        from esnlm.torch.language_model import TorchLanguageModel

        return TorchLanguageModel.load(folder)
    if config.get("model_type") == "gpt2":
        from esnlm.torch.needed import require_torch

        require_torch(f"the model {folder}")
        from esnlm.torch.gpt2 import pretrained

        return pretrained(folder)
    return LanguageModel.load(folder)


def _config(folder: Path) -> dict[str, Any]:
    """The configuration, unchecked: the class that loads the folder says what is wrong with it."""
    try:
        config = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}
