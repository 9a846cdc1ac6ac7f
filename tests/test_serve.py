"""``esnlm serve``: its routes against the model's numbers, its bounds, and what it refuses."""

import asyncio
import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import numpy as np
import pytest
from serve_models import counts_model, reservoir_model

from esnlm import LanguageModel, NgramLanguageModel
from esnlm.__main__ import main
from esnlm.app.answers import ShownModel
from esnlm.evaluation.minimal_pairs.scores import sentence_log_likelihoods

pytest.importorskip("fastapi", reason="needs the app extra")
pytest.importorskip("uvicorn", reason="needs the app extra")
pytest.importorskip("httpx2", reason="needs httpx2")
pytestmark = pytest.mark.app

import uvicorn  # noqa: E402
from fastapi.testclient import TestClient  # noqa: E402
from uvicorn.server import ServerState  # noqa: E402

from esnlm.app import routes, server  # noqa: E402
from esnlm.app.guard import MOST_BYTES, Guard  # noqa: E402
from esnlm.app.server import guarded, listening  # noqa: E402

_HALF_BODY = (
    b"POST /api/next HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 40\r\n\r\n{"
)
EXACT = {"rtol": 1e-12, "atol": 1e-12}
TEXT = "the boy sees the dog"
QUESTIONS: dict[str, dict[str, Any]] = {
    "surprisal": {"model": "esn", "text": TEXT},
    "next": {"model": "esn", "text": TEXT, "k": 3},
    "states": {"model": "esn", "text": TEXT},
    "pair": {"model": "esn", "first": TEXT, "second": "a boy walks"},
}


@pytest.fixture(scope="module")
def models() -> list[ShownModel]:
    return [ShownModel("esn", reservoir_model()), ShownModel("counts", counts_model())]


@pytest.fixture
def client(models: list[ShownModel]) -> Iterator[TestClient]:
    with TestClient(guarded(models, "127.0.0.1"), base_url="http://127.0.0.1:8000") as made:
        yield made


def answer(client: TestClient, route: str, question: Any) -> Any:
    found = client.post(f"/api/{route}", json=question)
    assert found.status_code == 200, found.text
    return found.json()


def problem(response: Any, status: int) -> str:
    """The one line of what was wrong."""
    assert response.status_code == status, response.text
    found = response.json()
    assert list(found) == ["error"]
    message: str = found["error"]
    assert message
    assert "\n" not in message
    assert "Traceback" not in message
    assert len(message) < 300
    return message


def test_the_models_and_limits(client: TestClient) -> None:
    found = client.get("/api/models").json()
    assert [(m["name"], m["kind"], m["n_units"]) for m in found["models"]] == [
        ("esn", "reservoir", 30),
        ("counts", "n-grams", None),
    ]
    assert (found["most_characters"], found["most_tokens"]) == (2000, 256)


@pytest.mark.parametrize("place", [0, 1], ids=["esn", "counts"])
def test_answers_are_the_model_s_numbers(
    client: TestClient, models: list[ShownModel], place: int
) -> None:
    name, model = models[place].name, models[place].model
    (scores,) = model.log_likelihood([TEXT])
    found = answer(client, "surprisal", {"model": name, "text": TEXT})
    bits = [word["bits"] for word in found["words"]]
    np.testing.assert_allclose(bits, -scores / np.log(2), **EXACT)
    assert [word["string"] for word in found["words"]] == [*TEXT.split(), "</s>"]

    found = answer(client, "next", {"model": name, "text": TEXT, "k": 4})
    distribution = model.predict_proba(TEXT)
    got = [each["probability"] for each in found["candidates"]]
    np.testing.assert_allclose(got, np.sort(distribution)[::-1][:4], **EXACT)
    total = sum(got) + found["rest_probability"]
    np.testing.assert_allclose(total, distribution.sum(), **EXACT)

    first, second = TEXT, "a boy dog"
    found = answer(client, "pair", {"model": name, "first": first, "second": second})
    got = [found["first_bits"], found["second_bits"]]
    sums = sentence_log_likelihoods(model, [first, second]) / -np.log(2)
    np.testing.assert_allclose(got, sums, **EXACT)
    # Each sentence alone, in arithmetic of single precision.
    alone = [-model.log_likelihood([text])[0][:-1].sum() / np.log(2) for text in (first, second)]
    np.testing.assert_allclose(got, alone, rtol=1e-5)
    assert found["likelier"] == ("first" if sums[0] < sums[1] else "second")


def test_the_path_of_a_reservoir_and_of_none(client: TestClient, models: list[ShownModel]) -> None:
    found = answer(client, "states", QUESTIONS["states"])
    expected = models[0].state_path(TEXT)
    got = [(step["x"], step["y"]) for step in found["steps"]]
    np.testing.assert_allclose(got, [(step.x, step.y) for step in expected.steps], **EXACT)
    wrong = client.post("/api/states", json={"model": "counts", "text": TEXT})
    assert problem(wrong, 422) == "counts has no reservoir, so there is no state to follow"


@pytest.mark.parametrize("route", QUESTIONS)
@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"model": "none"}, 404, "no model 'none': served are esn, counts"),
        ({"text": "a" * 2001}, 422, "text must have at most 2000 characters, got 2001"),
        ({"text": "a " * 257}, 422, "text must have at most 256 tokens, got 257 of esn"),
        ({"text": 3}, 422, "text is wrong: input should be a valid string, got 3"),
        ({"text": None}, 422, "text is wrong: input should be a valid string, got None"),
        ({"text": "\ud800"}, 422, "text is wrong: input should be a valid string"),
        ({"k": 0}, 422, r"k must lie in \[1, 50\], got 0"),
        ({"k": 51}, 422, r"k must lie in \[1, 50\], got 51"),
        ({"k": "3"}, 422, "k is wrong: input should be a valid integer, got '3'"),
        ({"more": 1}, 422, "more is wrong: extra inputs are not permitted, got 1"),
        ({"second": " "}, 422, "second must hold a word, got ' '"),
        ({"model": ...}, 422, "model is missing"),
    ],
)
def test_wrong_questions(
    client: TestClient, route: str, change: dict[str, Any], status: int, message: str
) -> None:
    question = QUESTIONS[route]
    (name,) = change
    if name not in question and name != "more":
        return
    changed = {key: value for key, value in {**question, **change}.items() if value is not ...}
    response = client.post(
        f"/api/{route}", content=json.dumps(changed), headers={"content-type": "application/json"}
    )
    assert re.search(message, problem(response, status))


@pytest.mark.parametrize("body", ["", "{", "3", "[]", "null", '{"model": "esn"}', "\x00"])
def test_bodies_that_are_no_question(client: TestClient, body: str) -> None:
    headers = {"content-type": "application/json"}
    problem(client.post("/api/next", content=body, headers=headers), 422)


@pytest.mark.parametrize("body", [b'{"model": "na\xefve"}', b"[" * 30_000])
def test_bodies_that_cannot_be_read_are_called_so(client: TestClient, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    message = problem(client.post("/api/next", content=body, headers=headers), 422)
    assert message == "the request is not JSON in UTF-8, or nests too deep"


def test_other_routes_and_methods(client: TestClient) -> None:
    assert problem(client.get("/none"), 404) == "no such page: /none"
    assert problem(client.get("/docs"), 404) == "no such page: /docs"
    assert problem(client.get("/page/../../setup.cfg"), 404)
    assert problem(client.get("/api/next"), 405) == "GET is not for: /api/next"
    assert problem(client.request("PUT", "/api/next", json={}), 405)
    headers = {"origin": "http://127.0.0.1:8000", "access-control-request-method": "POST"}
    problem(client.options("/api/next", headers=headers), 415)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "",
        "[",
        "localhost.",
        "10.0.0.1",
    ],
)
def test_a_host_that_is_not_this_machine_is_refused(client: TestClient, host: str) -> None:
    for path in ("/", "/api/models"):
        assert "this server is not" in problem(client.get(path, headers={"host": host}), 400)


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST"])
def test_the_loopback_is_this_machine(client: TestClient, host: str) -> None:
    assert client.get("/api/models", headers={"host": host}).status_code == 200


def test_a_server_for_the_network_is_found_by_its_addresses(models: list[ShownModel]) -> None:
    client = TestClient(guarded(models, "0.0.0.0"))
    for host, status in (("10.0.0.1:8000", 200), ("localhost", 200), ("evil.example", 400)):
        assert client.get("/api/models", headers={"host": host}).status_code == status
    client = TestClient(guarded(models, "Lab.example"))
    assert client.get("/api/models", headers={"host": "lab.example:80"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_scripts_of_other_pages_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    asked = client.post("/api/next", json=QUESTIONS["next"], headers=headers)
    assert problem(asked, 403) == "another page may not use this server"
    assert client.get("/", headers=headers).status_code == 200  # a link to the page


def test_only_json_of_a_bounded_size_is_read(client: TestClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        content = json.dumps(QUESTIONS["next"])
        wrong = client.post("/api/next", content=content, headers={"content-type": kind})
        assert "must be application/json" in problem(wrong, 415)
    large = {**QUESTIONS["next"], "text": "a" * MOST_BYTES}
    assert str(MOST_BYTES) in problem(client.post("/api/next", json=large), 413)
    # The longest text that is answered, in the longest form that JSON has.
    text = "\U0001f600" * 2000
    answer(client, "pair", {"model": "esn", "first": text, "second": text})


def test_a_body_that_does_not_come(
    models: list[ShownModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("esnlm.app.guard._SECONDS", 0.05)
    sent: list[Any] = []

    async def never() -> Any:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/api/next", "headers": [(b"host", b"localhost")]
    }  # fmt: skip
    asyncio.run(Guard(routes.application(models))(scope, never, send))
    assert sent[0]["status"] == 408


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/api/models", "/none"])
def test_every_answer_has_the_headers_of_security(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_the_page_loads_nothing_from_elsewhere(client: TestClient) -> None:
    for path, kind in (("/", "text/html"), ("/page.js", "javascript"), ("/page.css", "text/css")):
        found = client.get(path)
        assert kind in found.headers["content-type"]
        text = found.text.replace("http://www.w3.org/2000/svg", "")  # the name of a format
        assert "http://" not in text
        assert "https://" not in text
        assert "innerHTML" not in text
        head = client.head(path)
        assert (head.status_code, head.content, dict(head.headers)) == (200, b"", found.headers)
    page = client.get("/").text
    assert "<script>" not in page
    assert "style=" not in page


def test_the_page_works_under_any_path_of_a_proxy(models: list[ShownModel]) -> None:
    # nginx passes requests on with the Host of the server behind it, and the browser's other heads.
    browser = {"origin": "https://lab.example", "sec-fetch-site": "same-origin"}
    with TestClient(guarded(models, "127.0.0.1"), base_url="http://127.0.0.1:8000") as client:
        page, script = (client.get(path).text for path in ("/", "/page.js"))
        links = [
            *re.findall(r'(?:href|src)="([^"#]+)"', page),
            *re.findall(r"fetch\(`([^`]+)", script),
        ]
        addresses = [urljoin("https://lab.example/any/prefix/", link) for link in links]
        paths = [path for path in addresses if not path.startswith("data:")]
        assert len(paths) == 4
        for path in paths:
            assert path.startswith("https://lab.example/any/prefix/")
            inner = path.removeprefix("https://lab.example/any/prefix")
            inner = inner.replace("${route}", "models")
            assert client.get(inner, headers=browser).status_code == 200
        assert client.post("/api/next", json=QUESTIONS["next"], headers=browser).status_code == 200


def test_routes_and_types_are_described(client: TestClient) -> None:
    found = client.get("/api/openapi.json").json()
    assert set(found["paths"]) == {f"/api/{route}" for route in ("models", *QUESTIONS)}
    for path in found["paths"].values():
        for operation in path.values():
            schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
            assert schema["$ref"].rpartition("/")[2] in found["components"]["schemas"]
            assert operation["description"]
    text = found["components"]["schemas"]["TextQuestion"]["properties"]["text"]
    assert text["maxLength"] == 2000


class _Slow:
    """A model that works on a text until it is let go, and counts how many do at a time."""

    def __init__(self, model: Any) -> None:
        self.model, self.go = model, threading.Event()
        self.now, self.most = 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def predict_proba(self, text: str) -> Any:
        self.now += 1
        self.most = max(self.most, self.now)
        assert self.go.wait(30)
        self.now -= 1
        return self.model.predict_proba(text)


def test_one_request_at_a_time_a_few_wait_and_more_are_refused() -> None:
    slow = _Slow(counts_model())
    application = guarded([ShownModel("slow", slow)], "localhost")
    statuses: list[int] = []
    with TestClient(application, base_url="http://localhost") as client:

        def ask() -> None:
            found = client.post("/api/next", json={"model": "slow", "text": "the"})
            statuses.append(found.status_code)
            if found.status_code == 503:
                assert problem(found, 503) == "the model is busy: try again"
                assert found.headers["retry-after"] == "1"
            if len(statuses) == 3:  # those that were refused: nobody waits for them
                slow.go.set()

        askers = [threading.Thread(target=ask) for _ in range(routes.MOST_WAITING + 4)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join(60)
    assert sorted(statuses) == [200] * (routes.MOST_WAITING + 1) + [503] * 3
    assert slow.most == 1


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ValueError("a\n b"), 422, "a b"),
        (FloatingPointError("not a number"), 422, "not a number"),
        (MemoryError(), 503, "out of memory: try a shorter text"),
        (RuntimeError("secret"), 500, "the server failed; its terminal says why"),
    ],
)
def test_errors_of_a_model_are_one_message(
    models: list[ShownModel], monkeypatch: pytest.MonkeyPatch, error: Exception, status: int,
    message: str,
) -> None:  # fmt: skip
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(LanguageModel, "predict_proba", fails)
    client = TestClient(guarded(models, "localhost"), raise_server_exceptions=False)
    asked = client.post("http://localhost/api/next", json=QUESTIONS["next"])
    assert problem(asked, status) == message


def test_an_infinite_surprisal_is_an_error(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impossible(_: Any, stream: Any) -> Any:
        return np.full(len(stream.tokens), -np.inf)

    monkeypatch.setattr(NgramLanguageModel, "_log_probabilities", impossible)
    for route in ("surprisal", "pair"):
        wrong = client.post(f"/api/{route}", json={**QUESTIONS[route], "model": "counts"})
        assert "the surprisal is infinite" in problem(wrong, 422)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    counts_model().save("counts")
    counts_model().save("other/counts")
    NgramLanguageModel(order=2).fit([[0, 1, 0, 1]]).save("integers")
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["integers", "--port", "0"], "integers was trained on integers"),
        (["counts", "./counts"], "a model is given twice"),
        (["none", "--port", "0"], "none"),
        (["counts", "--port", "65536"], "--port must lie in [0, 65535], got 65536"),
        (["counts", "--port", "-1"], "--port must lie in [0, 65535], got -1"),
        (["counts", "--host", "no.such.host.invalid"], "cannot listen at no.such.host.invalid"),
        (["counts", "--host", "203.0.113.7"], "cannot listen at 203.0.113.7"),
        (["counts", "--host", "x" * 300], "xx: expected the name of a host"),
        ([], "MODEL"),
    ],
)
def test_wrong_commands(
    folders: Path, capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    assert main(["serve", *argv]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert (err.count("\n"), out) == (1, "")


def test_a_taken_port_is_one_message(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "counts", "--port", str(port)]) == 2
    message = f"esnlm: error: port {port} of 127.0.0.1 is taken: give another port\n"
    assert capsys.readouterr().err == message


def test_without_the_extra_the_command_says_what_is_missing(
    folders: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("esnlm.commands.serve.find_spec", lambda _: None)
    assert main(["serve", "counts"]) == 2
    assert "pip install 'esnlm[app]'" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_it_serves_until_it_is_interrupted(folders: Path, number: int, status: int) -> None:
    command = [sys.executable, "-m", "esnlm", "serve", "counts", "other/counts", "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving counts, other/counts at http://127.0.0.1:")
        address = line.split()[4]
        with urllib.request.urlopen(f"{address}api/models", timeout=60) as found:
            names = [model["name"] for model in json.load(found)["models"]]
        assert names == ["counts", "other/counts"]
        large = urllib.request.Request(f"{address}api/next", b"a" * 20_000_000)
        with pytest.raises(urllib.error.HTTPError, match="413") as refusal:  # and no reset
            urllib.request.urlopen(large, timeout=60)
        refusal.value.close()
        with socket.create_connection(("127.0.0.1", int(address.split(":")[2][:-1]))):
            process.send_signal(number)  # an idle connection holds nothing up
            _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == status
    assert err == ("esnlm: interrupted\n" if number == signal.SIGINT else "")


@pytest.mark.parametrize("rounds", range(6))  # of the event loop, in which connections are made
def test_a_connection_that_comes_as_the_server_ends_is_closed(
    models: list[ShownModel], rounds: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def ended() -> None:
        listener = listening("127.0.0.1", 0)
        config = uvicorn.Config(
            guarded(models, "127.0.0.1"), http=server._Connection, ws="none", lifespan="off",
            log_config=None, timeout_graceful_shutdown=1,
        )  # fmt: skip
        config.load()
        serving = server._Server(config)
        serving.lifespan = config.lifespan_class(config)
        await serving.startup([listener])
        with socket.create_connection(listener.getsockname()):
            for _ in range(rounds):
                await asyncio.sleep(0)
            await serving.shutdown([listener])
        assert not serving.server_state.connections

    with warnings.catch_warnings():
        # In one of the rounds asyncio itself leaves the socket to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(ended())
        gc.collect()
    assert not caplog.records


def test_a_server_for_the_network_comes_with_a_warning(
    folders: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    monkeypatch.setattr("webbrowser.open", shown.append)
    assert main(["serve", "counts", "--port", "0", "--host", "0.0.0.0", "--open"]) == 0
    out, err = capsys.readouterr()
    assert "esnlm: warning: 0.0.0.0 is not this machine alone" in err
    address = out.split()[3]
    assert address.startswith("http://localhost:")
    assert shown == [address]
    assert main(["serve", "counts", "--port", "0", "--host", "LocalHost"]) == 0
    assert capsys.readouterr().err == ""
    with listening("127.0.0.1", 0) as listener:  # "::" listens to no other family
        assert server.address_of(listener, "::").startswith("http://[::1]:")


@pytest.mark.parametrize("half", [b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", _HALF_BODY])
def test_connections_that_ask_nothing_make_room_and_end_quietly(folders: Path, half: bytes) -> None:
    command = [sys.executable, "-m", "esnlm", "serve", "counts", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with ExitStack() as stack:
        stack.callback(process.kill)
        assert process.stdout is not None
        address = process.stdout.readline().split()[3]
        port = int(address.rstrip("/").rpartition(":")[2])
        for _ in range(64):
            other = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            other.sendall(half)
        time.sleep(0.5)
        for _ in range(3):
            with urllib.request.urlopen(f"{address}api/models", timeout=5) as found:
                assert found.status == 200
        ask = partial(urllib.request.urlopen, f"{address}api/models", timeout=20)
        with ThreadPoolExecutor(100) as pool:  # their requests come, so none is closed
            found = [each.result() for each in [pool.submit(ask) for _ in range(100)]]
        assert {each.status for each in found} == {200}
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "esnlm: interrupted\n")


def test_a_connection_without_a_request_is_closed(models: list[ShownModel]) -> None:
    async def closed_after() -> float:
        config = uvicorn.Config(guarded(models, "localhost"), lifespan="off")
        loop = asyncio.get_running_loop()
        new = partial(server._Connection, config, ServerState(), {})
        listener = await loop.create_server(new, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n")
        since = loop.time()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        listener.close()
        return loop.time() - since

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "_PATIENCE", 0.2)
        assert 0.1 < asyncio.run(closed_after()) < 5
