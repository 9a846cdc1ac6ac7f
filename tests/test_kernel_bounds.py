"""Compiled code reads and writes its arrays alone.

Run as a script, this file copies every array that a kernel is given into memory that ends, and once
more into memory that begins, at a page that nobody may touch. What reaches out ends the process.
"""

import ctypes
import mmap
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import esnlm
from esnlm.kernels.vectors import adam_rows, decayed_sums

PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)
UNITS = (1, 2, 7, 8, 15, 16, 17, 33, 64, 65, 130)
DTYPES = ("float32", "float64")

Kernel = Callable[..., Any]


def fenced(array: Any, at_end: bool) -> Any:
    """A copy of an array, of the same strides, whose memory ends (or begins) at a closed page."""
    extent = int(sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)))
    extent = extent + array.itemsize if array.size else 0
    room = -(-extent // PAGE) * PAGE
    memory = np.frombuffer(mmap.mmap(-1, room + 2 * PAGE), dtype=np.uint8)
    first = memory.ctypes.data
    for page in (first, first + PAGE + room):
        if LIBC.mprotect(ctypes.c_void_p(page), PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    start = PAGE + (room - extent if at_end else 0)
    inside = memory[start : start + extent].view(array.dtype)
    made = np.lib.stride_tricks.as_strided(inside, array.shape, array.strides)
    made[...] = array
    if not array.flags.writeable:
        made.flags.writeable = False
    return made


class Fences:
    """Kernels in place of the compiled ones, and which of them were called."""

    def __init__(self) -> None:
        self.called: set[str] = set()

    def around(self, kernel: Any) -> Kernel:
        name = f"{kernel.py_func.__module__}.{kernel.__name__}"

        def call(*arguments: Any) -> Any:
            self.called.add(name)
            results = []
            for at_end in (True, False):
                given = [fenced(a, at_end) if isinstance(a, np.ndarray) else a for a in arguments]
                results.append(kernel(*given))
            for made, argument in zip(given, arguments, strict=True):
                if isinstance(argument, np.ndarray) and argument.flags.writeable:
                    argument[...] = made
            assert results[0] == results[1]
            return results[0]

        return call

    def set_up(self) -> None:
        """Replace every kernel that a module of the package calls from Python."""
        here = sys.modules[__name__]
        package = [m for name, m in sys.modules.items() if name.startswith("esnlm.")]
        for module in (here, *package):
            if module.__name__.startswith("esnlm.kernels"):
                continue
            for name, value in list(vars(module).items()):
                if hasattr(value, "py_func"):
                    setattr(module, name, self.around(value))
                elif isinstance(value, ModuleType) and value.__name__.startswith("esnlm.kernels."):
                    setattr(module, name, self.around_all(value))

    def around_all(self, kernels: ModuleType) -> ModuleType:
        made = ModuleType(kernels.__name__)
        for name, value in vars(kernels).items():
            setattr(made, name, self.around(value) if hasattr(value, "py_func") else value)
        return made


def kernels_called_from_python() -> set[str]:
    """Compiled functions of the package but those that only compiled code calls."""
    inner = {"activations.activated", "activations._exp"}
    inner |= {"features.advance", "features.backpropagate"}
    inner |= {"ngrams.find", "ngrams.find_contexts", "ngrams.kept_counts"}
    found = set()
    for path in (Path(esnlm.__file__).parent / "kernels").glob("*.py"):
        module = __import__(f"esnlm.kernels.{path.stem}", fromlist=["_"])
        found |= {
            f"{path.stem}.{name}"
            for name, value in vars(module).items()
            if hasattr(value, "py_func") and value.py_func.__module__ == module.__name__
        }
    return {f"esnlm.kernels.{name}" for name in found - inner}


def reservoirs() -> Iterator[tuple[Any, Any]]:
    from esnlm import Reservoir

    for n_units, dtype, topology in product(UNITS, DTYPES, ("random", "offsets")):
        activation = ("tanh", "relu", "identity")[n_units % 3]
        yield (
            Reservoir(
                n_units,
                degree=1 + n_units % 5,
                spectral_radius=0.5,
                leak_rate=("uniform", 0.2, 1.0),
                topology=topology,
                dtype=dtype,
                activation=activation,
                random_state=0,
            ).fit(n_inputs=5),
            np.random.default_rng(n_units),
        )


def harvest() -> Iterator[Any]:
    for reservoir, rng in reservoirs():
        tokens = rng.integers(0, 5, 83)
        starts = np.array([0, 3, 4, 20, 21, 50, 80])
        yield reservoir.transform(tokens)
        for n_streams, block_size, at in (
            (1, 10, None),
            (3, 10, None),
            (17, None, starts),
            (7, 14, starts),
            (40, 40, None),
        ):
            blocks = reservoir.harvest(
                tokens,
                n_streams=n_streams,
                block_size=block_size,
                starts=at,
                warmup=2,
                n_threads=1,
            )
            yield [(states.copy(), following) for states, following in blocks]


def statistics() -> Iterator[Any]:
    from esnlm.readouts.base.moments import Moments

    for n_units, dtype, n_classes, n in product(UNITS, DTYPES, (1, 9, 50), (2, 30, 1100)):
        rng = np.random.default_rng(n)
        wide = rng.standard_normal((n, n_units + 3)).astype(dtype)
        for X in (wide[:, :n_units].copy(), wide[:, :n_units].copy("F"), wide[:, :n_units]):
            made = Moments(n_units, n_classes)
            for part in (X[: n // 2], X[n // 2 :]):
                made.add(part, rng.integers(0, n_classes, len(part)))
            yield made.sums, made.gram()


def readouts() -> Iterator[Any]:
    from esnlm import LowRankReadout, SoftmaxReadout

    for n_units, dtype, n_classes in product((1, 7, 16, 33), DTYPES, (2, 5, 16, 33)):
        rng = np.random.default_rng(n_units)
        X = rng.standard_normal((40, n_units)).astype(dtype)
        y = np.r_[np.arange(n_classes), rng.integers(0, n_classes, 40 - n_classes)]
        for solver in ("newton-cg", "incremental"):
            yield SoftmaxReadout(alpha=1.0, solver=solver).fit(X, y).predict_proba(X)
        yield LowRankReadout(random_state=0).fit(X, y).predict_proba(X)


def mixtures() -> Iterator[Any]:
    from esnlm import MixtureOfExpertsReadout

    for n, dtype, n_classes in product((40, 1061), DTYPES, (2, 5, 17)):
        rng = np.random.default_rng(n)
        X = rng.standard_normal((n, 7)).astype(dtype)
        y = np.r_[np.arange(n_classes), rng.integers(0, n_classes, n - n_classes)]
        made = MixtureOfExpertsReadout(n_experts=3, max_iter=2, random_state=0)
        yield made.fit(X, y).predict_proba(X)


def features() -> Iterator[Any]:
    from esnlm import Reservoir, WordFeatures

    activations = ("tanh", "relu", "identity")
    for n_units, n_features, activation in product((1, 7, 16, 33), (1, 2, 5), activations):
        reservoir = Reservoir(
            n_units, spectral_radius=0.3, activation=activation, random_state=0
        ).fit(n_inputs=n_features)
        made = WordFeatures(n_features=n_features, n_passes=2, random_state=0)
        tokens = np.random.default_rng(n_units).integers(0, 7, 60)
        yield made.fit(tokens, reservoir=reservoir, n_tokens=7).embedding_


def ngrams() -> Iterator[Any]:
    from esnlm.readouts.token_gated.ngram_connections import NgramConnections

    for n_last, n_tokens, n_classes in product((1, 2, 7), (1, 3, 66), (1, 4, 66)):
        rng = np.random.default_rng(n_last)
        last = rng.integers(-1, n_tokens, (200, n_last))
        codes = rng.integers(0, n_classes, 200)
        made = NgramConnections(n_last, n_tokens, n_classes)
        made.count(last[:150], codes[:150])
        made.settle()
        for first, given in ((0, codes[:150]), (50, None)):
            Z = np.zeros((150, n_classes), dtype=np.float32)
            tiles = made.add_to(Z, last[first : first + 150], given)
            made.learn(tiles, np.ones_like(Z), 1.0)
            yield Z, made.gradient.copy()


def vectors() -> Iterator[Any]:
    """Steps of Adam and traces, which the package takes where torch is installed alone."""
    for n, width, dtype in product((1, 3, 40), UNITS, DTYPES):
        rng = np.random.default_rng(n)
        ids = rng.integers(0, 5, n)
        arrays = rng.random((3, 5, width)).astype(dtype)
        gradients, betas = rng.random((n, width)).astype(dtype), np.array([0.9, 0.98], dtype)
        order, rate, epsilon = np.argsort(ids), betas.dtype.type(0.1), betas.dtype.type(1e-8)
        adam_rows(*arrays, ids, order, gradients, betas, rate, epsilon)
        ends = np.unique(rng.integers(0, n, 3) + 1)
        for backwards in (False, True):
            decayed_sums(gradients[: ends[-1]], rng.random(width).astype(dtype), ends, backwards)
        yield arrays


def direct() -> Iterator[Any]:
    from esnlm.readouts.class_based.direct_connections import DirectConnections

    for n_tokens, n_components in product((1, 3, 40), UNITS):
        rng = np.random.default_rng(n_components)
        ngrams = np.arange(0, n_tokens**2 + n_tokens**3, 3)
        made = DirectConnections(3, n_tokens, n_components, ngrams)
        last, Z = rng.integers(-1, n_tokens, (50, 3)), np.zeros((50, n_components), np.float32)
        made.step(last, rng.standard_normal(Z.shape).astype(np.float32), 0.1)
        made.add_to(Z, last)
        yield Z, made.ngram_squares


_ALL = (harvest, statistics, readouts, mixtures, features, ngrams, direct, vectors)
CASES = {case.__name__: case for case in _ALL}


def stray() -> None:
    """Kernels that reach out of their array, told by the last argument of the process."""
    from numba import njit

    from esnlm.kernels.simd import load, store

    @njit
    def read(array: Any, place: int) -> Any:
        store(array, 0, load(array, place))

    @njit
    def write(array: Any, place: int) -> Any:
        store(array, place, load(array, 0))

    kernel = Fences().around({"read": read, "write": write}[sys.argv[1]])
    kernel(np.ones(40, dtype=np.float32), 24)
    print("inside", flush=True)
    kernel(np.ones(40, dtype=np.float32), int(sys.argv[2]))


def main() -> None:
    if sys.argv[1:]:
        return stray()
    fences = Fences()
    expected = {name: list(case()) for name, case in CASES.items()}
    fences.set_up()
    for name, case in CASES.items():
        print(name, file=sys.stderr)
        for made, known in zip(case(), expected[name], strict=True):
            np.testing.assert_equal(made, known)
    print(*sorted(fences.called))
    return None


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "faulthandler", __file__, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.slow
def test_kernels_stay_within_their_arrays() -> None:
    done = run()
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == kernels_called_from_python()


@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("place", [25, -1])
def test_a_step_outside_ends_the_process(kind: str, place: int) -> None:
    done = run(kind, str(place))
    assert done.stdout == "inside\n"
    assert done.returncode == -signal.SIGSEGV


if __name__ == "__main__":
    main()
