"""What is said where an optional library is missing."""

from importlib.util import find_spec


def require_torch(what: str) -> None:
    """Raise, in one line, where torch is not installed.

    Parameters
    ----------
    what : str
        What needs it, as the message begins.

    Raises
    ------
    ValueError
        torch cannot be imported.

    Examples
    --------
    >>> import esnlm.torch.optional as needed
    >>> needed.find_spec = lambda name: None
    >>> require_torch("--model lstm")
    Traceback (most recent call last):
    ...
    ValueError: --model lstm needs torch: pip install 'esnlm[torch]'
    >>> needed.find_spec = find_spec
    """
    if find_spec("torch") is None:
        raise ValueError(f"{what} needs torch: pip install 'esnlm[torch]'")


def require_transformers(what: str) -> None:
    """Raise, in one line, where transformers is not installed; as `require_torch`.

    Raises
    ------
    ValueError
        transformers cannot be imported.
    """
    if find_spec("transformers") is None:
        raise ValueError(f"{what} needs transformers: pip install 'esnlm[hf]'")
