"""Error messages for missing optional libraries."""

from importlib.util import find_spec


def require_torch(what: str) -> None:
    """Raise ValueError if torch, which ``what`` needs, is not installed.

    The message is one line: ``--model lstm needs torch: pip install 'esnlm[torch]'``.
    """
    if find_spec("torch") is None:
        raise ValueError(f"{what} needs torch: pip install 'esnlm[torch]'")


def require_transformers(what: str) -> None:
    """Raise ValueError if transformers is not installed; as `require_torch`."""
    if find_spec("transformers") is None:
        raise ValueError(f"{what} needs transformers: pip install 'esnlm[hf]'")
