"""Serving the page: the address, and one process until it is interrupted."""

import asyncio
import errno
import os
import socket
import webbrowser
from collections.abc import Sequence
from threading import Thread

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from esnlm.app.answers import ShownModel
from esnlm.app.guard import Guard, is_local
from esnlm.app.routes import application

# Connections at once, and seconds in which each must have sent a whole request.
_MOST_CONNECTIONS, _PATIENCE = 64, 10
# Seconds in which a request may have come and not been read yet, and connections of such a moment.
_UNREAD, _MOST_AT_ONCE = 0.25, 512


class _Connection(H11Protocol):
    """A connection that is closed where its request does not come, or others need its place."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._since = self.loop.time()
        self._watch = self.loop.call_later(_PATIENCE, self._close_idle)
        if (n_more := len(self.connections) - _MOST_CONNECTIONS) >= 0:
            idle = [
                each
                for each in self.connections
                if each.is_idle and self._since - each._since > _UNREAD
            ]
            for each in sorted(idle, key=lambda each: each._since)[: n_more + 1]:
                each.transport.abort()
                self.connections.discard(each)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Whether no whole request is being answered."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = self.loop.time()

    def _close_idle(self) -> None:
        """Close the connection where its request has not come, else look again later."""
        if self.is_idle and self.loop.time() - self._since >= _PATIENCE:
            self.transport.abort()
        else:
            self._watch = self.loop.call_later(_PATIENCE, self._close_idle)

    def shutdown(self) -> None:
        if self.is_idle:
            self.transport.abort()
        else:
            super().shutdown()


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
    except UnicodeError as error:
        raise ValueError(f"cannot listen at {host:.80}: expected the name of a host") from error


def guarded(models: Sequence[ShownModel], host: str) -> Guard:
    """Return the application of these models for a server at ``host``."""
    return Guard(application(models), frozenset({host.lower()}), any_address=not is_local(host))


def address_of(listener: socket.socket, host: str) -> str:
    """Where a browser on this machine finds the server."""
    host = {"0.0.0.0": "localhost", "::": "::1"}.get(host, host)
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}/"


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ending = asyncio.ensure_future(super().shutdown(sockets))
        while not ending.done():
            await asyncio.wait({ending}, timeout=0.1)
            # Those that were accepted before and made since, which nothing else would close.
            for connection in list(self.server_state.connections):
                connection.shutdown()
        await ending


def run(models: Sequence[ShownModel], listener: socket.socket, host: str, *, show: bool) -> None:
    """Serve until KeyboardInterrupt, which is raised after open requests are answered.

    With ``show`` the page is opened in a browser.
    """
    config = uvicorn.Config(
        guarded(models, host),
        http=_Connection,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_AT_ONCE,
        timeout_graceful_shutdown=5,
    )
    if show:
        Thread(target=webbrowser.open, args=[address_of(listener, host)], daemon=True).start()
    _Server(config).run(sockets=[listener])
