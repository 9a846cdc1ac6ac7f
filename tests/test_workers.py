"""Workers of a cluster: sums, states and versions, and workers that die."""

import os
import platform
import random
import resource
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training_in_parts import PLAN, model_of, trained

from esnlm.models.states import StateBlocks
from esnlm.text.prepare import prepare
from esnlm.text.shard_parts import PartedCorpus
from esnlm.training import parts_trainer as parts_training
from esnlm.training.parts_trainer import PartsTrainer
from esnlm.utils.sums import reduce_here

distributed = pytest.importorskip("distributed")


def test_a_worker_that_is_gone_already_may_be_removed(cluster: Any) -> None:
    before = dict(cluster.scheduler_info["workers"])
    cluster._update_worker_status("remove", "tcp://127.0.0.1:1")
    assert cluster.scheduler_info["workers"] == before


@dataclass(frozen=True)
class Bracketed:
    """What was added to what; `began` takes down when."""

    text: str

    def __add__(self, other: "Bracketed") -> "Bracketed":
        began.append("+")
        return Bracketed(f"({self.text}{other.text})")


began: list[str] = []


def bracketed(given: None, item: int) -> Bracketed:
    began.append(str(item))
    return Bracketed(f"{item},")


def began_here() -> list[str]:
    found = began.copy()
    began.clear()
    return found


@pytest.mark.parametrize("n", [5, 37])
def test_parts_are_added_as_soon_as_their_neighbours_are_there(cluster: Any, n: int) -> None:
    from esnlm.runs.workers import workers

    cluster.scale(1)
    cluster.wait_for_workers(1)
    with workers(cluster.scheduler_address) as reduce:
        done: list[int] = []
        found = reduce("order", bracketed, None, range(n), done.append)
        (order,) = reduce.client.run(began_here).values()
    began.clear()
    assert found == reduce_here("order", bracketed, None, range(n))
    assert sorted(done) == list(range(n))
    assert [each for each in order if each != "+"] == [str(i) for i in range(n)]
    waiting = np.cumsum([-1 if each == "+" else 1 for each in order])
    assert waiting[-1] == 1
    assert waiting.max() <= np.ceil(np.log2(n)) + 2, "a task may begin before a sum is asked for"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc's malloc")
def test_workers_keep_the_memory_of_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    from esnlm.runs.workers import workers

    # Dask leaves its own there when a cluster starts, which go before what is configured.
    for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    with workers("local:1") as reduce:
        for _ in range(2):  # the first time it is new
            (faults,) = reduce.client.run(faults_of_arrays).values()
    assert faults < 10_000, "512 pages of 4 KiB are written a hundred times over"


def faults_of_arrays() -> int:
    """Pages of memory that are new to this process where it makes arrays of 2 MiB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.ones(1 << 18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_sums_come_by_the_scheduler_where_no_worker_answers(
    shards: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from esnlm.runs.workers import workers

    with workers(cluster.scheduler_address) as reduce:
        assert reduce._is_near
    with workers(cluster.scheduler_address) as reduce:
        connect = reduce.client.rpc.connect

        async def scheduler_alone(address: str, *given: Any, **options: Any) -> Any:
            if address != cluster.scheduler_address:
                raise OSError("no route to host")
            return await connect(address, *given, **options)

        monkeypatch.setattr(reduce.client.rpc, "connect", scheduler_alone)
        assert not reduce._is_near
        assert trained(shards, reduce=reduce) == trained(shards)


def keeping(given: dict[str, Any], item: int) -> int:
    """Keep in what is given something that cannot be sent."""
    given.setdefault("lock", threading.Lock())
    time.sleep(0.05)
    return item


def test_what_is_given_travels_as_it_was(cluster: Any) -> None:
    from esnlm.runs.workers import workers

    cluster.scale(3)
    cluster.wait_for_workers(3)
    with workers(cluster.scheduler_address) as reduce:
        assert list(reduce.map("keep", keeping, {}, range(30))) == list(range(30))
        assert reduce("add", keeping, {}, range(30)) == sum(range(30))


def slowly(context: Any, parts: Any) -> Any:
    """`_learn_parts`, in time enough to be killed."""
    time.sleep(0.1)
    return parts_training._learn_parts(context, parts)


@pytest.mark.parametrize("n_runs", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_workers_change_nothing(
    shards: Path, cluster: Any, n_runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from esnlm.runs.workers import workers

    dice = random.Random(n_runs)
    for number in range(n_runs):
        readout = ["factored ridge", "low rank"][number % 2]
        expected = trained(shards, readout, 16)
        cluster.scale(3)
        cluster.wait_for_workers(3)
        killed: list[int] = []

        def kill(delay: float, killed: list[int] = killed) -> None:
            time.sleep(delay)
            nanny = dice.choice(list(cluster.workers.values()))
            if nanny.process is not None and nanny.process.pid:
                killed.append(nanny.process.pid)
                os.kill(nanny.process.pid, signal.SIGKILL)

        with workers(cluster.scheduler_address) as reduce, monkeypatch.context() as patched:
            patched.setattr(parts_training, "_learn_parts", slowly)
            killer = threading.Thread(target=kill, args=(dice.uniform(0.05, 1.5),))
            killer.start()
            found = trained(shards, readout, 16, reduce=reduce)
            killer.join()
        assert killed
        assert found == expected


def test_states_stay_on_the_workers(
    shards: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from esnlm.runs.workers import workers

    def refuse(self: Any) -> None:
        raise AssertionError("states on the client")

    monkeypatch.setattr(StateBlocks, "__iter__", refuse)
    with pytest.raises(AssertionError, match="states on the client"):
        trained(shards)
    with workers(cluster.scheduler_address) as reduce:
        assert trained(shards, reduce=reduce)


def test_shards_that_a_worker_lacks_or_has_otherwise_are_named(
    shards: Path, cluster: Any, tmp_path: Path
) -> None:
    from esnlm.runs.workers import workers

    place = tmp_path / "shards"
    place.symlink_to(shards)
    corpus = PartedCorpus(place)
    model = model_of(corpus)
    (tmp_path / "text").write_text("w1 w2 w3\nw4 w5\n")
    other = prepare(tmp_path / "text", tmp_path / "other", corpus.tokenizer)
    with workers(cluster.scheduler_address) as reduce:
        run = PartsTrainer(model, corpus, None, PLAN, n_parts=5, reduce=reduce)
        place.unlink()
        with pytest.raises(
            ValueError,
            match=r"tokens.bin is missing \(counts part \d, on the worker tcp://",
        ):
            run.run()
        place.symlink_to(other.folder)
        with pytest.raises(
            ValueError, match="damaged, or of other shards than where the run began"
        ):
            run.run()


def fails_on_one(address: str, item: int) -> int:
    if distributed.get_worker().address == address:
        raise OSError("no shards here")
    time.sleep(0.02)
    return item


def test_parts_that_one_worker_cannot_do_are_done_by_others(
    cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from esnlm.runs.workers import workers

    cluster.scale(3)
    cluster.wait_for_workers(3)
    with workers(cluster.scheduler_address) as reduce:
        unfit, *_ = reduce.client.nthreads()
        for _ in range(2):  # then it is known
            assert reduce("add", fails_on_one, unfit, range(40)) == sum(range(40))
            assert list(reduce.map("each", fails_on_one, unfit, range(10))) == list(range(10))
        assert unfit not in reduce._threads()
        ours = [each.message for each in caplog.records if each.name == "esnlm"]
        assert [message.partition("(")[0] for message in ours] == ["no shards here "]


def test_a_task_that_was_left_to_workers_that_are_gone_is_done_by_a_new_one() -> None:
    from esnlm.runs.cluster import connected, local_cluster

    # A cluster that has lost no worker yet: that would let the task go some time later.
    with (
        local_cluster(1, {"OMP_NUM_THREADS": "1"}) as cluster,
        connected(cluster.scheduler_address, starts_processes=False) as client,
    ):
        future = client.submit(abs, -7, workers=["tcp://127.0.0.1:1"], pure=False)
        with pytest.raises(TimeoutError):
            future.result(timeout=0.5)
        cluster.scale(2)
        assert future.result(timeout=60) == 7


def limit_files(n_bytes: int) -> None:
    """Let this process write no file of more bytes, as on a disk that is full; -1: any."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if n_bytes < 0 else n_bytes, hard))


def writing(given: str, item: int) -> int:
    Path(given).write_text("a line")
    return item


def test_workers_need_no_room_on_their_disks(shards: Path, cluster: Any, tmp_path: Path) -> None:
    from esnlm.runs.workers import workers

    expected = trained(shards)
    cluster.scale(2)
    cluster.wait_for_workers(2)
    with workers(cluster.scheduler_address) as reduce:
        trained(shards, reduce=reduce)  # compiled functions are on the disk
        reduce.client.run(limit_files, 0)
        assert trained(shards, reduce=reduce) == expected
        with pytest.raises(ValueError, match=r"too large.* \(notes part 1, on the worker tcp://"):
            reduce("notes", writing, str(tmp_path / "notes"), [1])
        reduce.client.run(limit_files, -1)


def test_workers_of_another_version_are_refused(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from esnlm.runs import cluster as module
    from esnlm.runs.workers import workers

    monkeypatch.setattr(module, "__version__", "9.9")
    with (
        pytest.raises(ValueError, match=r"has esnlm .*, expected 9\.9"),
        workers(cluster.scheduler_address),
    ):
        pass


def test_a_worker_that_came_later_is_of_the_same_version() -> None:
    from esnlm.runs.workers import _apply

    with pytest.raises(ImportError, match=r"a worker has esnlm .*, expected 9\.9"):
        _apply("9.9", (max, 1), 2)


def test_a_lost_scheduler_is_an_error_of_one_line(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from esnlm.runs.workers import workers

    monkeypatch.setattr("esnlm.runs.cluster._PATIENCE", 3)
    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as made,
        workers(made.scheduler_address) as reduce,
    ):
        made.close()
        with pytest.raises(ConnectionError, match="the connection to the cluster is lost"):
            trained(shards, reduce=reduce)
