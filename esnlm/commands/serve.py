"""``esnlm serve``: a page on this machine that shows what models say of a sentence."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from esnlm.options.common import Device, Models
from esnlm.options.values import number
from esnlm.utils.messages import as_text, log

Port = Annotated[int, number("N", "lie in [0, 65535]", lambda value: 0 <= value < 1 << 16, int)]


def serve(
    model: Models,
    /,
    *,
    port: Port = 8000,
    host: Annotated[str, Parameter(metavar="NAME")] = "127.0.0.1",
    open: bool = False,
    device: Device = None,
) -> int:
    """Serve until Ctrl-C; the exit status.

    Parameters
    ----------
    port
        Where the page is; 0 takes any that is free.
    host
        Address to listen at; any but this machine's own lets others on the network use the models.
    open
        Open the page in a browser.
    """
    if not all(map(find_spec, ("fastapi", "uvicorn"))):
        raise ValueError("esnlm serve needs FastAPI and uvicorn: pip install 'esnlm[app]'")
    from esnlm.app.answers import ShownModel
    from esnlm.app.guard import is_local
    from esnlm.app.server import address_of, listening, run
    from esnlm.loading import load_model

    names = _names(model)
    with listening(host, port) as listener:
        models = [
            ShownModel(name, load_model(path, device=device))
            for name, path in zip(names, model, strict=True)
        ]
        if not is_local(listener.getsockname()[0]):  # of a name, where it was found
            log.warning(f"{host} is not this machine alone: others on the network use the models")
        address = address_of(listener, host)
        print(f"serving {', '.join(names)} at {address} (Ctrl-C ends it)", flush=True)
        run(models, listener, host, show=open)
    return 0


def _names(paths: tuple[Path, ...]) -> list[str]:
    """Return what models are called: their folders' names, or whole paths where those are alike."""
    if len({path.resolve() for path in paths}) < len(paths):
        raise ValueError("a model is given twice: name each once")
    names = [path.resolve().name for path in paths]
    names = names if len(set(names)) == len(names) else list(map(str, paths))
    return list(map(as_text, names))
