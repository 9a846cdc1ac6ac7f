"""Grids on a Dask cluster: the rows of one process, workers that die, clusters that cannot be."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed")

from distributed import Client, LocalCluster, get_worker

from esnlm.runs import cluster
from esnlm.runs.grid import Row, run_grid, run_grid_apart

GRID = [{"name": name, "n": n} for name in ("a", "b") for n in (3, 1, 2)]
SHARED: Any = {"key": ["name", "n"], "columns": ["name", "n", "square"]}
SCRIPT = """
import sys, time
from functools import partial
from test_cluster import GRID, SHARED, slow
from esnlm.runs.grid import run_grid

if __name__ == "__main__":
    try:
        run_grid(GRID, slow, sys.argv[1], cluster="local:1", **SHARED)
    except KeyboardInterrupt:
        sys.exit(130)
"""


def square(setting: Row) -> Row:
    return {"square": setting["n"] ** 2 / 3}


def slow(setting: Row) -> Row:
    import time

    time.sleep(0.4)
    return square(setting)


def fail_at_two(setting: Row) -> Row:
    if setting["n"] == 2:
        raise ValueError("two is too many")
    return square(setting)


def die_once(folder: str, setting: Row) -> Row:
    """Kill this worker in the first attempt at each run with n = 2."""
    mark = Path(folder) / f"{setting['name']}-{setting['n']}"
    if setting["n"] == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return square(setting)


def fail_on_one_worker(address: str, setting: Row) -> Row:
    """Fail as where the disk of this worker is full."""
    if get_worker().address == address:
        raise OSError(errno.ENOSPC, "No space left on device", "model")
    return square(setting)


def die(setting: Row) -> Row:
    os._exit(3)


def measure(setting: Row, lifeline: Any) -> Row:
    """A run in a process of its own, as `run_apart` calls it."""
    parts = os.getppid() != int(setting["client"]), os.getcwd(), os.environ["ESNLM_NUM_THREADS"]
    return square(setting) | {"place": "|".join(map(str, parts))}


@pytest.fixture(autouse=True)
def _no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TQDM_DISABLE", "1")


def test_a_cluster_writes_the_file_of_one_process(tmp_path: Path) -> None:
    alone = run_grid(GRID, square, tmp_path / "one.csv", jobs=1, **SHARED)
    run_grid(GRID[:2], square, tmp_path / "many.csv", cluster="local:2", **SHARED)
    assert run_grid(GRID, square, tmp_path / "many.csv", cluster="local:2", **SHARED) == alone
    assert (tmp_path / "many.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()


def test_nothing_but_this_machine_reaches_local_workers(cluster: Client) -> None:
    psutil = pytest.importorskip("psutil")
    here = psutil.Process()
    addresses = {
        connection.laddr.ip
        for process in (here, *here.children(recursive=True))
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses == {"127.0.0.1"}


def test_runs_of_a_worker_that_dies_are_done_again(tmp_path: Path) -> None:
    run = partial(die_once, str(tmp_path))
    rows = run_grid(GRID, run, tmp_path / "grid.csv", cluster="local:2", **SHARED)
    assert rows == [setting | square(setting) for setting in GRID]
    assert len(list(tmp_path.glob("?-2"))) == 2


def test_runs_that_one_worker_cannot_do_are_done_by_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalCluster(n_workers=2, processes=False, dashboard_address=None) as made:
        options = SHARED | {"cluster": made.scheduler_address}
        unfit = made.workers[0].address
        rows = run_grid(GRID, partial(fail_on_one_worker, unfit), tmp_path / "a.csv", **options)
        assert rows == [setting | square(setting) for setting in GRID]
        (warning,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
        assert f"No space left on device: 'model' (on the worker {unfit})" in warning
        made.scale(1)
        while len(made.workers) > 1 or len(made.scheduler_info["workers"]) > 1:
            time.sleep(0.1)
        (alone,) = [each.address for each in made.workers.values()]
        with pytest.raises(ValueError, match=f"No space .* {alone}\\) \\(in the run name=a n=3"):
            run_grid(GRID[:1], partial(fail_on_one_worker, alone), tmp_path / "b.csv", **options)


def test_a_run_that_kills_every_worker_is_named(tmp_path: Path) -> None:
    with pytest.raises(ChildProcessError, match="in the run name=a n=3"):
        run_grid(GRID[:1], die, tmp_path / "grid.csv", cluster="local:1", **SHARED)


def test_an_error_of_a_run_is_its_message_and_rows_stay(tmp_path: Path) -> None:
    path = tmp_path / "grid.csv"
    message = r"two is too many \(on the worker .*\) \(in the run name=[ab] n=2\)"
    with pytest.raises(ValueError, match=message):
        run_grid(GRID, fail_at_two, path, cluster="local:1", **SHARED)
    assert len(path.read_text().splitlines()) > 1


def test_runs_apart_have_a_process_of_their_own_in_the_folder_of_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    monkeypatch.chdir(tmp_path)
    columns = [*SHARED["columns"], "place", "commit"]
    rows = run_grid_apart(
        GRID[:2], "test_cluster", tmp_path / "grid.csv", key=["name", "n"], columns=columns,
        extras=lambda setting: {"client": os.getpid()}, cluster="local:2",
    )  # fmt: skip
    assert [row["square"] for row in rows] == [3.0, 1 / 3]
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    assert {row["place"] for row in rows} == {f"True|{tmp_path}|{share}"}


def test_an_interrupt_keeps_rows_and_the_rest_is_done_later(tmp_path: Path) -> None:
    path, here = tmp_path / "grid.csv", str(Path(__file__).parent)
    (tmp_path / "script.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "script.py", path],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])},
    )
    while not path.exists() or len(path.read_text().splitlines()) < 3:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert 3 <= len(path.read_text().splitlines()) < 7
    rows = run_grid(GRID, square, path, jobs=1, **SHARED)
    assert rows == [setting | square(setting) for setting in GRID]


def test_a_scheduler_of_ones_own_runs_the_grid(tmp_path: Path) -> None:
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as made:
        address = made.scheduler_address
        rows = run_grid(GRID, square, tmp_path / "a.csv", cluster=address, **SHARED)
        assert rows == [setting | square(setting) for setting in GRID]


def test_workers_of_another_version_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "__version__", "9.9")
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=None) as made,
        pytest.raises(ValueError, match=r"has esnlm .*, expected 9\.9"),
    ):
        run_grid(GRID, square, tmp_path / "a.csv", cluster=made.scheduler_address, **SHARED)


def test_workers_that_may_start_no_process_are_refused(tmp_path: Path) -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as made,
        pytest.raises(ValueError, match="cannot start processes: start workers with --no-nanny"),
    ):
        run_grid(GRID, square, tmp_path / "a.csv", cluster=made.scheduler_address, **SHARED)


def test_a_scheduler_that_is_not_there_or_has_no_worker_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_PATIENCE", 1)
    with pytest.raises(ValueError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"):
        run_grid(GRID, square, tmp_path / "a.csv", cluster="tcp://127.0.0.1:1", **SHARED)
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=None) as made,
        pytest.raises(ValueError, match="has no worker"),
    ):
        run_grid(GRID, square, tmp_path / "a.csv", cluster=made.scheduler_address, **SHARED)
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize("kind", ["silent", "http", "worker"])
def test_a_port_that_is_no_scheduler_is_not_waited_for(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_PATIENCE", 1)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server,
        LocalCluster(n_workers=1, processes=False, dashboard_address=None) as made,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ports = {"silent": silent.getsockname()[1], "http": server.server_port}
        address = f"tcp://127.0.0.1:{ports.get(kind)}"
        if kind == "worker":
            address = made.workers[0].address
        with pytest.raises(ValueError, match=f"no Dask scheduler answers at {address}: "):
            next(cluster.results(address, [], square))
        server.shutdown()


def test_a_worker_that_leaves_while_it_is_asked_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_PATIENCE", 1)
    closed = OSError("Stream is closed")
    answers = [closed]

    def run(client: Client, function: Any, **options: Any) -> dict[str, Any]:
        return {"tcp://a": answers.pop() if answers else cluster._described()}

    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as made:
        monkeypatch.setattr(Client, "run", run)
        address, path = made.scheduler_address, tmp_path / "a.csv"
        rows = run_grid(GRID, square, path, cluster=address, **SHARED)
        assert rows == [setting | square(setting) for setting in GRID]
        answers[:] = [closed] * 100
        with pytest.raises(ValueError, match="worker tcp://a does not answer: Stream is closed"):
            run_grid(GRID, square, tmp_path / "b.csv", cluster=address, **SHARED)


@pytest.mark.parametrize("given", ["local:0", "local:x", "local", "nowhere.json"])
def test_what_is_no_cluster_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match=r"^expected local:N"):
        cluster.checked(given)


def test_without_dask_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'esnlm\[scale\]'"):
        run_grid(GRID, square, tmp_path / "a.csv", cluster="local:1", **SHARED)
