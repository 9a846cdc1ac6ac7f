"""The routes of ``esnlm serve``: the page, and JSON about texts, one request at a time."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException as StarletteException

from esnlm.app.answers import (
    MOST_CHARACTERS,
    MOST_TOKENS,
    About,
    NextTokens,
    ShownModel,
    StatePath,
    Surprisal,
    Verdict,
)
from esnlm.utils import __version__

T = TypeVar("T")

#: Requests that may wait for the model, beside the one that it works on.
MOST_WAITING = 8
MOST_CANDIDATES = 50
_PAGE = Path(__file__).parent / "page"
_FILES = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}

_Text = Annotated[str, Field(max_length=MOST_CHARACTERS)]


class _Question(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    model: str = Field(max_length=MOST_CHARACTERS, description="Name of a model that is served.")


class TextQuestion(_Question):
    """A text, whose lines are sentences."""

    text: _Text


class NextQuestion(TextQuestion):
    """A text to continue, which may be empty."""

    k: int = Field(10, ge=1, le=MOST_CANDIDATES, description="Candidates to give.")


class PairQuestion(_Question):
    """Two sentences, of a line each."""

    first: _Text
    second: _Text


class Served(BaseModel):
    """The models that are served, and the limits of a text."""

    models: list[About]
    most_characters: int = MOST_CHARACTERS
    most_tokens: int = MOST_TOKENS


class Problem(BaseModel):
    """What was wrong with a request, in one line."""

    error: str


class _Worker:
    """One thread that works on the models, a request at a time; a few wait, more are refused."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="esnlm")
        self._n_there = 0

    async def result(self, work: Callable[..., T], *arguments: Any) -> T:
        """Return what the work returns; HTTPException where it refuses its arguments."""
        if self._n_there > MOST_WAITING:
            raise HTTPException(503, "the model is busy: try again", {"Retry-After": "1"})
        self._n_there += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, partial(work, *arguments))
        except (ValueError, FloatingPointError) as error:
            raise HTTPException(422, " ".join(str(error).split())) from error
        except MemoryError as error:
            raise HTTPException(503, "out of memory: try a shorter text") from error
        finally:
            self._n_there -= 1


def application(models: Sequence[ShownModel]) -> FastAPI:
    """Return the page and the routes of these models, whose names differ.

    Texts are sent by POST as JSON. A wrong request gets one message, ``{"error": ...}``: status
    404 for a model or route that is not there, 422 for a text that cannot be scored, 503 when too
    many others wait. ``/api/openapi.json`` describes routes and types.
    """
    app = FastAPI(
        title="esnlm",
        version=__version__,
        summary="What language models say of a sentence.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # its page is loaded from elsewhere
        redoc_url=None,
        responses={status: {"model": Problem} for status in (404, 422, 503)},
    )
    for path, name in _FILES.items():
        # HEAD too, by which others ask whether the page is there.
        app.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)(partial(_file, name))
    _add_routes(app, {model.name: model for model in models}, _Worker())
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(StarletteException)(_refused)  # of routes and methods too
    app.exception_handler(Exception)(_failed)
    return app


def _add_routes(app: FastAPI, models: Mapping[str, ShownModel], worker: _Worker) -> None:
    """Add the routes of ``/api`` that list the models and answer questions about texts."""

    def named(name: str) -> ShownModel:
        if name not in models:
            raise HTTPException(404, f"no model {name!r:.80}: served are {', '.join(models)}")
        return models[name]

    @app.get("/api/models")
    async def served() -> Served:
        """Return the models, and the limits of a text."""
        return Served(models=[model.about() for model in models.values()])

    @app.post("/api/surprisal")
    async def surprisal(question: TextQuestion) -> Surprisal:
        """Return the surprisal of each word of a text, in bits."""
        return await worker.result(named(question.model).surprisal, question.text)

    @app.post("/api/next")
    async def next_tokens(question: NextQuestion) -> NextTokens:
        """Return the most probable tokens after a text."""
        return await worker.result(named(question.model).next_tokens, question.text, question.k)

    @app.post("/api/states")
    async def states(question: TextQuestion) -> StatePath:
        """Return the path of a reservoir's state along a text, on two principal components."""
        return await worker.result(named(question.model).state_path, question.text)

    @app.post("/api/pair")
    async def pair(question: PairQuestion) -> Verdict:
        """Which of two sentences is likelier."""
        return await worker.result(named(question.model).pair, question.first, question.second)


async def _file(name: str) -> FileResponse:
    return FileResponse(_PAGE / name)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    """Return the first thing that is wrong with a request, in the words of the other messages."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"][1:])) or "the request"
    context, got = first.get("ctx", {}), first.get("input")
    if first["type"] == "string_too_long":
        message = f"must have at most {context['max_length']} characters, got {len(str(got))}"
    elif first["type"] in ("greater_than_equal", "less_than_equal"):
        message = f"must lie in [1, {MOST_CANDIDATES}], got {got}"
    elif first["type"] == "missing":
        message = "is missing"
    elif first["type"] == "json_invalid":
        name, message = "the request", "is not JSON"
    else:
        wrong = first["msg"][:1].lower() + first["msg"][1:]
        message = f"is wrong: {wrong}, got {got!r:.80}"
    return _problem(422, f"{name} {message}")


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StarletteException)
    status, message = error.status_code, error.detail
    if status == 400 and "parsing the body" in message:  # of FastAPI
        status, message = 422, "the request is not JSON in UTF-8, or nests too deep"
    elif message in ("Not Found", "Method Not Allowed"):  # of routes
        wrong = "no such page" if status == 404 else f"{request.method} is not for"
        message = f"{wrong}: {request.url.path[:80]}"
    return _problem(status, message, error.headers)


async def _failed(_: Request, __: Exception) -> JSONResponse:
    return _problem(500, "the server failed; its terminal says why")


def _problem(status: int, message: str, headers: Any = None) -> JSONResponse:
    text = message.encode(errors="replace").decode()  # half a character is no JSON
    return JSONResponse({"error": text}, status, headers)
