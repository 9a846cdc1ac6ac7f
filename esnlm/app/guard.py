"""What stands before every route: whose requests are answered, and how large they may be."""

import asyncio
import ipaddress
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


@dataclass(frozen=True)
class Guard:
    """An ASGI application behind checks, with headers of security on all that it answers.

    Refused, with one message as JSON: a Host that does not name this machine (400), whereby a page
    whose name was pointed here learns nothing; requests to ``/api`` that another page's script
    sent (403); a body that is not JSON (415), is larger than `MOST_BYTES` (413), or does not come
    (408). ``names`` are hosts allowed beside the loopback's; with ``any_address`` every IP address
    is one, for a server that others on the network may use.
    """

    application: ASGIApp
    names: frozenset[str] = frozenset()
    any_address: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then pass it to the application or answer with a refusal."""
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        request = Request(scope, receive)
        try:
            self._check(request)
            messages = [{"type": "http.request", "body": await _body(request)}]
        except HTTPException as error:
            refusal = {"error": error.detail}
            response = JSONResponse(refusal, error.status_code, {"connection": "close"})
            await response(scope, receive, send_guarded)
            return

        async def receive_read() -> Message:
            return messages.pop() if messages else await receive()

        await self.application(scope, receive_read, send_guarded)

    def _check(self, request: Request) -> None:
        """Raise HTTPException where the host is not this machine's, or another page asks."""
        host = request.headers.get("host", "")
        if not self._is_here(host):
            message = (
                f"this server is not {host[:80]!r}: open the address it printed; a proxy must send"
                " that as the Host"
            )
            raise HTTPException(400, message)
        site = request.headers.get("sec-fetch-site", "none")
        origin = request.headers.get("origin", f"http://{host}")
        # Behind a proxy the origin is another, but a browser says that the page is of the same.
        here = site == "same-origin" or (site == "none" and origin == f"http://{host}")
        if not here and request.scope["path"].startswith("/api"):
            raise HTTPException(403, "another page may not use this server")

    def _is_here(self, host: str) -> bool:
        """Return whether a Host header names the loopback or another allowed host."""
        with suppress(ValueError):
            name = urlsplit(f"//{host}").hostname or ""
            if name in self.names or is_local(name):
                return True
            ipaddress.ip_address(name)  # ValueError: a name
            return self.any_address
        return False


def is_local(host: str) -> bool:
    """Return whether only this machine reaches a server at ``host``.

    >>> is_local("localhost"), is_local("127.0.0.1"), is_local("::1"), is_local("0.0.0.0")
    (True, True, True, False)
    """
    with suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


async def _body(request: Request) -> bytes:
    """Return the whole body of a request, of which no more than `MOST_BYTES` are kept.

    A larger one is read to its end: a client that still writes would see a reset, not the answer.
    """
    if request.method in ("GET", "HEAD"):
        return b""
    body, message = b"", {"more_body": True}
    try:
        async with asyncio.timeout(_SECONDS):
            while message.get("more_body"):
                message = await request.receive()
                body = (body + message.get("body", b""))[: MOST_BYTES + 1]
    except TimeoutError:
        raise HTTPException(408, f"the request did not come within {_SECONDS} seconds") from None
    if len(body) > MOST_BYTES:
        raise HTTPException(413, f"a request must have at most {MOST_BYTES} bytes")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"a request must be application/json, got {kind[:80]!r}")
    return body
