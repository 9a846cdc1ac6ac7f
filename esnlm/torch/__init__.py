"""The optional extra: networks trained by gradient, and what says that their library is missing."""

from importlib.util import find_spec


def require_torch(what: str) -> None:
    """Raise ValueError if torch, which ``what`` needs, is not installed."""
    if find_spec("torch") is None:
        raise ValueError(f"{what} needs torch: pip install 'esnlm[torch]'")


def require_transformers(what: str) -> None:
    """Raise ValueError if transformers, which ``what`` needs, is not installed."""
    if find_spec("transformers") is None:
        raise ValueError(f"{what} needs transformers: pip install 'esnlm[hf]'")
