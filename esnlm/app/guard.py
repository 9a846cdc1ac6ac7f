"""What stands before every route: whose requests are answered, and how large they may be."""

import asyncio
import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Bytes of a request's body, at most, and seconds in which it must have come.
MOST_BYTES = 1 << 16
_SECONDS = 10
#: Nothing but this server's own files; styles and scripts come from files alone.
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class _RefusedError(Exception):
    """A request that goes no further: the status and the message of its answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Guard:
    """An ASGI application behind checks, with headers of security on all that it answers.

    Refused, with one message as JSON: a Host that does not name this machine (400), whereby a page
    whose name was pointed here learns nothing; requests to ``/api`` that another page's script
    sent (403); a body that is not JSON (415), is larger than `MOST_BYTES` (413), or does not come
    (408). ``names`` are hosts allowed beside the loopback's; with ``any_address`` every IP address
    is one, for a server that others on the network may use.
    """

    application: Application
    names: frozenset[str] = frozenset()
    any_address: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then pass it to the application or answer with a refusal."""
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                added = ((name.encode(), value.encode()) for name, value in _HEADERS.items())
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        headers = {name.decode("latin-1"): v.decode("latin-1") for name, v in scope["headers"]}
        try:
            self._check(scope, headers)
            body = await _body(scope, headers, receive)
        except _RefusedError as error:
            await _answer(error.status, str(error), send_guarded)
        else:
            await self.application(scope, _once(body, receive), send_guarded)

    def _check(self, scope: Scope, headers: Mapping[str, str]) -> None:
        host = headers.get("host", "")
        if not self._is_here(host):
            raise _RefusedError(
                400, f"this server is not {host[:80]!r}: open the address it printed"
            )
        here = headers.get("sec-fetch-site", "none") in ("same-origin", "none")
        here &= headers.get("origin", f"http://{host}") == f"http://{host}"
        if not here and scope["path"].startswith("/api"):
            raise _RefusedError(403, "another page may not use this server")

    def _is_here(self, host: str) -> bool:
        """Return whether a Host header names the loopback or another allowed host."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name == "localhost" or name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self.any_address


def is_local(host: str) -> bool:
    """Whether only this machine reaches a server at ``host``.

    >>> is_local("localhost"), is_local("127.0.0.1"), is_local("::1"), is_local("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _body(scope: Scope, headers: Mapping[str, str], receive: Receive) -> bytes:
    """Return the whole body of a request."""
    if scope["method"] in ("GET", "HEAD"):
        return b""
    body = b""
    try:
        async with asyncio.timeout(_SECONDS):
            while True:
                message = await receive()
                body += message.get("body", b"")
                if len(body) > MOST_BYTES:
                    raise _RefusedError(413, f"a request must have at most {MOST_BYTES} bytes")
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise _RefusedError(408, f"the request did not come within {_SECONDS} seconds") from None
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise _RefusedError(415, f"a request must be application/json, got {kind[:80]!r}")
    return body


def _once(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that gives the body that was read, and then what comes after it."""
    left: list[MutableMapping[str, Any]] = [
        {"type": "http.request", "body": body, "more_body": False}
    ]

    async def next_message() -> MutableMapping[str, Any]:
        return left.pop() if left else await receive()

    return next_message


async def _answer(status: int, message: str, send: Send) -> None:
    body = json.dumps({"error": message}).encode()
    headers: Iterable[tuple[bytes, bytes]] = (
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    )
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
