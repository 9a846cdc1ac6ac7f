"""Model folders of either kind: a reservoir's language model, or n-grams."""

from pathlib import Path

from esnlm.language_model import LanguageModel


def load_model(folder: str | Path) -> LanguageModel:
    """The model that ``save`` wrote into ``folder``, of whichever kind.

    Raises
    ------
    ModelFormatError
        The folder is missing, incomplete, altered or of another version.
    """
    return LanguageModel.load(folder)
