"""Connections to a Dask cluster (extra ``scale``), and runs of a grid as its tasks."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from esnlm.runs.subprocess_run import interrupts_blocked
from esnlm.storage.json_files import read_json
from esnlm.text.corpus import CorpusError
from esnlm.text.shards import ShardsError
from esnlm.utils import __version__
from esnlm.utils.messages import log
from esnlm.utils.threads import available_cores

if TYPE_CHECKING:
    from distributed import Client

# Seconds that a scheduler and its first worker have to answer.
_PATIENCE = 30
# Bytes of an array up to which a worker keeps its memory for the next one, and of what it keeps at
# most. Left to Dask's settings all memory is new, which takes as long as to add up what is in it.
_KEPT = {"MALLOC_MMAP_THRESHOLD_": 1 << 25, "MALLOC_TRIM_THRESHOLD_": 1 << 28}
# Times that a worker process of this machine is started before it is given up.
_STARTS = 5
# What other workers may be able to do.
_OF_ONE_WORKER = (OSError, ImportError, MemoryError, ShardsError, CorpusError)
#: Variables by which libraries learn their number of threads.
THREADS = tuple(f"{name}_NUM_THREADS" for name in ("OPENBLAS", "OMP", "MKL", "NUMBA", "ESNLM"))


class LostWorkersError(ChildProcessError):
    """Workers died again and again under the same task."""


def checked(cluster: str) -> str:
    """``local:N``, a scheduler's address or its file, as given; ValueError for anything else."""
    kind, _, rest = cluster.partition(":")
    if kind == "local":
        if not rest.isdigit() or int(rest) < 1:
            raise ValueError(f"expected local:N with N of at least 1, got {cluster!r}")
    elif "://" not in cluster and not Path(cluster).is_file():
        raise ValueError(
            f"expected local:N, the address of a Dask scheduler (tcp://HOST:PORT) or its file,"
            f" got {cluster!r}"
        )
    return cluster


def results(
    cluster: str, tasks: Iterable[tuple[dict[str, Any], Any]], run: Callable[[Any], Any]
) -> Iterator[tuple[dict[str, Any], Callable[[], Any]]]:
    """Yield settings as their tasks end, each with a function that returns the result or raises.

    A task is a setting and what ``run`` is called with, on some worker, and again on another one
    if that one dies or is unfit. What is left is cancelled where the caller stops early.
    """
    from distributed import as_completed

    with connected(cluster, starts_processes=True) as client:
        unfit = UnfitWorkers(client)
        suffix = uuid4().hex[:8]  # a scheduler may hold results of earlier grids
        futures = {}
        for setting, task in tasks:
            name = " ".join(map(str, setting.values()))
            key = f"{name} {suffix}"
            future = client.submit(run_here, unfit.topic, run, task, key=key, pure=False)
            futures[future] = setting
        try:
            for future in as_completed(futures):
                yield futures[future], partial(result_of, future.result)
        finally:
            client.cancel([future for future in futures if not future.done()])


class UnfitWorkers(dict[str, str]):
    """Addresses of workers that could not do a task, which others may do, and why.

    Workers tell each other through the events of the ``topic`` at their scheduler.
    """

    def __init__(self, client: "Client") -> None:
        self.topic = uuid4().hex
        client.subscribe_topic(self.topic, self._add)

    def _add(self, event: tuple[float, tuple[str, str]]) -> None:
        _, (worker, reason) = event
        if worker not in self:
            log.warning(f"{reason}: other workers do its tasks")
        self[worker] = reason


def run_here(topic: str, run: Callable[..., Any], *arguments: Any, name: str = "") -> Any:
    """Call a function on a worker; leave to others what may fail by this worker's own fault.

    Where there are none, and for any other wrong value, ValueError names the worker.
    """
    from distributed import Reschedule, get_worker
    from distributed.utils import sync

    try:
        return run(*arguments)
    except ChildProcessError:  # a run that died would do so again
        raise
    except (ValueError, *_OF_ONE_WORKER) as error:
        worker = get_worker()
        where = f"{name}, on the worker {worker.address}".removeprefix(", ")
        reason = f"{str(error) or 'out of memory'} ({where})"
        leave = partial(_leave_to_others, worker, topic, worker.get_current_task(), reason)
        if isinstance(error, _OF_ONE_WORKER) and sync(worker.loop, leave):
            raise Reschedule from error
        raise ValueError(reason) from error


async def _leave_to_others(worker: Any, topic: str, task: Any, reason: str) -> bool:
    """Have a task done by workers that are not known to be unfit; return whether there are any."""
    scheduler = worker.scheduler
    event = worker.address, reason
    fit = set(await scheduler.ncores())
    unfit = {address for _, (address, _) in await scheduler.events(topic=topic)} | {worker.address}
    if not (fit - unfit):
        return False
    await scheduler.log_event(topic=topic, msg=event)
    await scheduler.set_restrictions(worker={task: list(fit - unfit)})
    return True


def register_relief(client: "Client") -> None:
    """Let tasks whose workers have all gone go to any other; Dask alone would keep them waiting."""
    from distributed import SchedulerPlugin

    patience = _PATIENCE  # the class travels without its module

    class Relief(SchedulerPlugin):
        name = "esnlm-relief"
        idempotent = True

        def lift(self, scheduler: Any) -> dict[Any, Any]:
            lost = [task for task in scheduler.unrunnable if task.worker_restrictions]
            for task in lost:
                task.worker_restrictions = None
            return {task.key: "processing" for task in lost}

        def add_worker(self, scheduler: Any, worker: str) -> None:
            self.lift(scheduler)  # which then gives the worker all that it may do

        def remove_worker(self, scheduler: Any, worker: str, **about: Any) -> None:
            # Later: a worker may be started in its place. Then workers that failed try again.
            again = partial(scheduler.transitions, stimulus_id=about["stimulus_id"])
            scheduler.loop.call_later(patience, lambda: again(self.lift(scheduler)))

    client.register_plugin(Relief())


def result_of(get: Callable[[], Any]) -> Any:
    """Return what a future gives; errors of the cluster in words."""
    from distributed import CancelledError
    from distributed.scheduler import KilledWorker

    try:
        return get()
    except KilledWorker as error:
        raise LostWorkersError(f"workers died again and again: {error}") from None
    except CancelledError as error:
        raise ConnectionError(f"the connection to the cluster is lost: {error}") from None


def local_cluster(n_workers: int, environment: Mapping[str, str], **options: Any) -> Any:
    """Worker processes of this machine, of one thread each, with a scheduler and a dashboard."""
    import dask
    from distributed import LocalCluster, Nanny, Status

    class PatientNanny(Nanny):
        async def instantiate(self) -> Status:
            # Distributed starts a worker anew that dies later, but gives up a cluster of which
            # one dies as it starts.
            for _ in range(_STARTS):
                status = await super().instantiate()
                if status != Status.stopped:
                    break
            return status

    class OfThisMachine(LocalCluster):
        def _update_worker_status(self, op: str, msg: Any) -> None:
            # The message that a killed worker was removed may arrive after the list of workers is
            # updated: distributed's own method then fails, and leaves the cluster open.
            if op != "remove" or msg in self.scheduler_info["workers"]:
                super()._update_worker_status(op, msg)

    with dask.config.set({f"distributed.nanny.pre-spawn-environ.{k}": n for k, n in _KEPT.items()}):
        return OfThisMachine(
            n_workers=n_workers, threads_per_worker=1, memory_limit=0,
            dashboard_address="127.0.0.1:0", env=dict(environment), worker_class=PatientNanny,
            **options,
        )  # fmt: skip


@contextmanager
def connected(cluster: str, *, starts_processes: bool) -> Iterator["Client"]:
    """Yield a client of the cluster, whose workers have this version of the package."""
    if find_spec("distributed") is None:
        raise ValueError("a cluster needs Dask: pip install 'esnlm[scale]'")
    import dask
    from distributed import Client
    from distributed.utils import LoopRunner

    kind, _, rest = checked(cluster).partition(":")
    logging.getLogger("distributed").setLevel(logging.ERROR)
    # A model is in a task.
    settings: dict[str, Any] = {"distributed.admin.large-graph-warning-threshold": "1TB"}
    # Samples of the Python stack, a hundred a second: compiled code shows nothing there.
    settings["distributed.worker.profile.enabled"] = False
    if starts_processes:
        settings["distributed.worker.daemon"] = False
    with dask.config.set(settings):
        if kind == "local":
            share = str(max(1, available_cores() // int(rest)))
            environment = dict.fromkeys(THREADS, share)
            with ExitStack() as stack:
                with interrupts_blocked():  # its processes never see one: it is this process's
                    try:
                        workers = local_cluster(int(rest), environment, silence_logs=logging.ERROR)
                    except RuntimeError as error:
                        why = error.__cause__ or error
                        raise ChildProcessError(f"{cluster} does not start: {why}") from None
                    client = stack.enter_context(Client(stack.enter_context(workers)))
                log.info(f"dashboard: {client.dashboard_link}")
                register_relief(client)
                yield client
            return
        try:
            address = cluster if "://" in cluster else read_json(Path(cluster))["address"]
            LoopRunner().run_sync(_greet, address)
            client = Client(address, timeout=_PATIENCE)
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = str(error) or f"nothing that Dask understands in {_PATIENCE} s"
            raise ValueError(f"no Dask scheduler answers at {cluster}: {reason}") from None
        with client:
            _check_workers(client, cluster, starts_processes=starts_processes)
            register_relief(client)
            yield client


async def _greet(address: str) -> None:
    """Raise OSError unless a scheduler answers; without that a client waits for any open port."""
    from distributed.comm import connect
    from distributed.security import Security

    options = Security().get_connection_args("client")
    comm = await asyncio.wait_for(connect(address, timeout=_PATIENCE, **options), _PATIENCE)
    try:
        await comm.write({"op": "identity", "reply": True})
        answer = await asyncio.wait_for(comm.read(), _PATIENCE)
    finally:
        comm.abort()
    if "workers" not in answer:
        raise OSError(f"that is the address of a {answer.get('type', 'process')}")


def _check_workers(client: "Client", cluster: str, *, starts_processes: bool) -> None:
    """Raise ValueError for an unfit worker, and warn of one with other matrix kernels."""
    for worker, answer in _answers(client, cluster).items():
        if isinstance(answer, OSError):
            raise ValueError(f"the worker {worker} does not answer: {answer}")
        if isinstance(answer, BaseException):
            raise ValueError(f"the worker {worker} cannot import esnlm: {answer}")
        version, daemonic, kernels = answer
        if version != __version__:
            raise ValueError(f"the worker {worker} has esnlm {version}, expected {__version__}")
        if daemonic and starts_processes:
            raise ValueError(
                f"the worker {worker} cannot start processes: start workers with --no-nanny, or"
                " with DASK_DISTRIBUTED__WORKER__DAEMON=False in their environment"
            )
        if kernels != (ours := _kernels()):
            log.warning(
                f"the worker {worker} multiplies matrices with {kernels}, this process with {ours}:"
                " the last bits of a result are those of the machine that made it"
            )


def _answers(client: "Client", cluster: str) -> dict[str, Any]:
    """Return what each worker says of itself; a worker that is leaving is not asked for long."""
    until = monotonic() + _PATIENCE
    while True:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise ValueError(f"the scheduler at {cluster} has no worker") from None
        answers: dict[str, Any] = client.run(_described, on_error="return")
        lost = any(isinstance(answer, OSError) for answer in answers.values())
        if (answers and not lost) or monotonic() > until:
            return answers
        sleep(0.1)


def _described() -> tuple[str, bool, str]:
    """Return the version of the package here, whether no process may be started, and the BLAS."""
    import multiprocessing

    from esnlm.utils import __version__ as version

    return version, bool(multiprocessing.current_process().daemon), _kernels()


def _kernels() -> str:
    """Return the BLAS libraries that are loaded, and the processors that their kernels are for."""
    import scipy.linalg.blas  # noqa: F401
    from threadpoolctl import threadpool_info

    loaded = [each for each in threadpool_info() if each["user_api"] == "blas"]
    names = ("internal_api", "version", "architecture")
    return ", ".join(sorted({" ".join(str(each.get(name)) for name in names) for each in loaded}))
