"""Serving the page: the address, and one process until it is interrupted."""

import errno
import os
import socket
import webbrowser
from collections.abc import Sequence
from threading import Thread

import uvicorn

from esnlm.app.answers import ShownModel
from esnlm.app.guard import Guard, is_local
from esnlm.app.routes import application

_MOST_CONNECTIONS = 64


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0 is any that is free.

    ValueError where the port is taken, or the host is not this machine's.
    """
    try:
        kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=kind)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ValueError(f"port {port} of {host} is taken: give another port") from error
        is_system = error.errno is not None and error.errno > 0  # else of the look-up of the name
        reason = os.strerror(error.errno or 0) if is_system else error.strerror
        raise ValueError(f"cannot listen at {host}, port {port}: {reason}") from error


def guarded(models: Sequence[ShownModel], host: str) -> Guard:
    """Return the application of these models for a server at ``host``."""
    return Guard(application(models), frozenset({host.lower()}), any_address=not is_local(host))


def address_of(listener: socket.socket, host: str) -> str:
    """Where a browser on this machine finds the server."""
    unspecified = host in ("", "0.0.0.0", "::")
    name = "localhost" if unspecified else f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}/"


def run(models: Sequence[ShownModel], listener: socket.socket, host: str, *, show: bool) -> None:
    """Serve until KeyboardInterrupt, which is raised after open requests are answered.

    With ``show`` the page is opened in a browser.
    """
    config = uvicorn.Config(
        guarded(models, host),
        http="h11",
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=5,
    )
    if show:
        Thread(target=webbrowser.open, args=[address_of(listener, host)], daemon=True).start()
    uvicorn.Server(config).run(sockets=[listener])
