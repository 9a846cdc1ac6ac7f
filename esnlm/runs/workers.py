"""The workers of a Dask cluster (extra ``scale``), who work on parts and add up what they find."""

import operator
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from esnlm.runs.cluster import UnfitWorkers, connected, result_of, run_here
from esnlm.utils import __version__
from esnlm.utils.messages import phase
from esnlm.utils.sums import in_pairs, reduce_here, runs

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")
# Seconds that a worker has to answer a process that would ask it itself.
_PATIENCE = 2
# Tasks for a thread, at most: each costs milliseconds, and is done again where its worker dies.
_TASKS = 8


class Workers:
    """The workers of a cluster as a `Reduce` of `esnlm.utils.sums`.

    A function and what it is given travel once to each worker, items with their tasks, sums from
    worker to worker, and the last one to this process. Items that are added first make one task
    where there are many for each thread. A task whose worker dies, or is unfit, is done on another
    one.
    The dashboard shows tasks called ``name`` and ``reduce``.
    """

    def __init__(self, client: "Client") -> None:
        self.client = client
        self._unfit = UnfitWorkers(client)

    def map(
        self, name: str, function: Callable[[Any, Any], T], context: Any, items: Sequence[Any]
    ) -> Iterator[T]:
        """``function(context, item)`` of each item, in their order; later ones wait on workers."""
        by_part = {f"part {n}": item for n, item in enumerate(items, start=1)}
        shared, tasks = self._submitted(name, function, context, by_part, len(items))
        try:
            while tasks:
                result = result_of(tasks[0].result)
                tasks.pop(0).release()
                yield result
        finally:
            for future in (shared, *tasks):
                future.release()

    def _submitted(
        self,
        name: str,
        function: Callable[[Any, Any], Any],
        context: Any,
        items: Mapping[str, Any],
        n_parts: int,
    ) -> tuple[Any, list[Any]]:
        """Return the context of every task, and the tasks of the items, named by their parts."""
        import cloudpickle

        of = f"{n_parts}-{uuid4().hex}"  # a scheduler may hold results of earlier runs
        submit = partial(self.client.submit, pure=False)
        # In a task, not scattered: it is there again where the workers that held it died.
        shared = submit(_Shared, cloudpickle.dumps((function, context)), key=f"given-{name} {of}")
        apply = partial(submit, run_here, self._unfit.topic, _apply, __version__, shared)
        threads, tasks = self._threads(), list[Any]()
        for number, (parts, item) in enumerate(items.items()):
            # In their order: otherwise sums of parts whose neighbours come late would wait.
            options: Any = {"key": f"{name}-{parts} of {of}", "priority": -number}
            if len({*threads}) > 1:  # one that is started anew has another address
                # Neighbours, which are added first, on one thread. Left to itself the scheduler
                # gives few tasks to whoever holds what is shared.
                place = threads[number * len(threads) // len(items)]
                options |= {"workers": [place], "allow_other_workers": True}
            tasks.append(apply(item, name=f"{name} {parts}", **options))
        return shared, tasks

    def _threads(self) -> list[str]:
        """Return the address of its worker for each thread of the cluster, unfit ones left out."""
        try:
            threads = self.client.nthreads()
        except OSError as error:
            raise ConnectionError(f"the connection to the cluster is lost: {error}") from None
        return [place for place, n in threads.items() if place not in self._unfit for _ in range(n)]

    @cached_property
    def _is_near(self) -> bool:
        """Whether workers answer this process, which spares sums the way through the scheduler.

        They need not, where this process is outside of their network.
        """

        async def answers(address: str) -> None:
            pool = self.client.rpc
            pool.reuse(address, await pool.connect(address, timeout=_PATIENCE))

        try:
            self.client.sync(answers, next(iter(self.client.nthreads())))
        except (OSError, StopIteration):
            return False
        return True

    def __call__(
        self,
        name: str,
        function: Callable[[Any, Any], T],
        context: Any,
        items: Sequence[Any],
        progress: Callable[[Any], None] = lambda item: None,
    ) -> T:
        """``function(context, item)`` of each item, added in pairs as `in_pairs` says."""
        from distributed import as_completed

        most = _TASKS * len(self._threads()) or len(items)
        groups = {_parts(run): [items[i] for i in run] for run in runs(len(items), most)}
        of_group = partial(reduce_here, name, function)
        shared, tasks = self._submitted(name, of_group, context, groups, len(items))
        run, n_adds = uuid4().hex, count(1)

        def add(a: Any, b: Any) -> Any:
            # Before parts that wait, lest their sums be held all at once.
            key = f"reduce-{name} {next(n_adds)}-{run}"
            return self.client.submit(operator.add, a, b, key=key, pure=False, priority=1)

        total = in_pairs(len(tasks), tasks.__getitem__, add)
        waiting = dict(zip(tasks, groups.values(), strict=True))
        tasks.clear()
        try:
            for future in as_completed(list(waiting)):
                if future.status != "finished":
                    result_of(future.result)
                for item in waiting.pop(future):
                    progress(item)
            sums: T = result_of(partial(self.client.gather, total, direct=self._is_near))
            return sums
        finally:
            for future in (total, shared, *waiting):
                future.release()


def _parts(run: range) -> str:
    return f"part {run[0] + 1}" if len(run) == 1 else f"parts {run[0] + 1} to {run[-1] + 1}"


class _Shared:
    """A function and what it is given, which go from worker to worker as the client packed them.

    Functions keep in a worker's own copy what they need again.
    """

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    def __reduce__(self) -> tuple[type, tuple[bytes]]:
        return _Shared, (self.packed,)

    @cached_property
    def unpacked(self) -> tuple[Callable[[Any, Any], Any], Any]:
        return pickle.loads(self.packed)


def _apply(version: str, shared: _Shared, item: Any) -> Any:
    """Apply the shared function to an item on a worker."""
    if version != __version__:  # a worker that came after the others were asked
        raise ImportError(f"a worker has esnlm {__version__}, expected {version}")
    _limit_blas()
    function, context = shared.unpacked
    return function(context, item)


@cache
def _limit_blas() -> None:
    """Multiply matrices with one thread, for as long as the process lives.

    A limit that ended with a task would end for those beside it.
    """
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, "blas")


@contextmanager
def workers(cluster: str) -> Iterator[Workers]:
    """Yield the workers of a cluster, which may have any number of threads and start no process."""
    with ExitStack() as stack:
        with phase("starting workers"):
            client = stack.enter_context(connected(cluster, starts_processes=False))
        yield Workers(client)
