"""Settings that every test shares."""

import gc
import importlib
import importlib.util
import inspect
import os
import re
import runpy
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from esnlm import NgramLanguageModel
from esnlm.text.prepare import prepare

# Workers share the cores: one thread of matrix products each, set before numpy is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

#: Modules whose examples need torch, beside those that import it and are then left out whole.
NEEDS_TORCH = re.compile(r"/esnlm/(torch/[\w/]+|studies/networks/\w+)\.py$")

#: What a test does, or its whole file, that Windows cannot: signals, limits, pipes, links, shells.
POSIX = re.compile(
    r"\b(SIG(INT|KILL|STOP|TERM)|os\.kill|RLIMIT\w*|mkfifo|symlink_to|chmod|bash)\b|/dev/|/proc/"
)
POSIX_FILES = ["grid", "kernel_bounds", "natural", "shards", "workers"]
IS_POSIX = hasattr(signal, "SIGKILL")

collect_ignore = [] if IS_POSIX else [f"test_{name}.py" for name in POSIX_FILES]

ROOT = Path(__file__).parents[1]

#: Models of the fixture `folders`.
FOLDERS = (
    "ridge", "low_rank", "low_rank_direct", "factored_separate_moe", "characters", "ngrams",
    "network_esn",
)  # fmt: skip

# Compilation on first use makes single examples slow; what is tested does not depend on time.
settings.register_profile("esnlm", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("esnlm")

# A suite started in the background ignores interrupts, and so would every process that it starts
# to see one interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a model of each of these kinds, and of shards."""
    root = tmp_path_factory.mktemp("folders")
    names = [name for name in FOLDERS if name != "network_esn" or importlib.util.find_spec("torch")]
    path = ROOT / "benchmarks" / "_fault_folders.py"
    runpy.run_path(str(path))["write_folders"](root, names)
    return root


@pytest.fixture(autouse=True)
def same_weights() -> None:
    """Networks without a seed have the same weights in every order of the tests."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Path of a text of two lines."""
    path = tmp_path / "text.txt"
    path.write_text("boys see the dog\nthe dog sees\n")
    return path


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep clients of Hugging Face from the network and from the cache of the user."""
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    cache = str(tmp_path_factory.getbasetemp() / "hf")  # one: its modules are imported once
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", cache)


@pytest.fixture
def in_folder_of_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a text and a model, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("the boy sees the dog\nthe dog sees Mary\n" * 5)
    NgramLanguageModel(order=2, tokenizer="word").fit(
        ["the boy sees the dog", "the dog sees Mary"]
    ).save("model")
    return tmp_path


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do runs of a comparison here, where torch is loaded, and not in processes of their own."""
    from esnlm.runs.subprocess_run import Lifeline

    monkeypatch.setattr(
        "esnlm.runs.subprocess_run.run_apart",
        lambda module, setting, *_: importlib.import_module(module).measure(setting, Lifeline()),
    )


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 1 500 sentences in which a word says much about the next."""
    folder, rng = tmp_path_factory.mktemp("scale"), np.random.default_rng(0)
    lines = []
    for length in rng.integers(2, 10, 1500):
        words = np.cumsum(rng.integers(1, 4, length)) % 20
        lines.append(" ".join(f"w{word}" for word in words))
    (folder / "text").write_text("\n".join(lines))
    prepare(folder / "text", folder / "shards", "word")
    return folder / "shards"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    pytest.importorskip("distributed")
    from esnlm.runs.cluster import local_cluster

    with local_cluster(1, {"OMP_NUM_THREADS": "1", "ESNLM_NUM_THREADS": "1"}) as client:
        yield client


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Debian's Chromium, driven by Playwright; tests that ask for it are skipped without."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name bytes by their kind: packed ones hold the time, and workers would name them apart."""
    return "bytes" if isinstance(val, bytes) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Examples of what needs torch are marked as its tests are, and skipped without it.

    Tests of what only POSIX has are skipped elsewhere.
    """
    for item in () if IS_POSIX else items:
        if isinstance(item, pytest.Function) and POSIX.search(inspect.getsource(item.function)):
            item.add_marker(pytest.mark.skip(reason="needs POSIX"))
    lacks_torch = importlib.util.find_spec("torch") is None
    for item in items:
        if item.path.suffix == ".py" and NEEDS_TORCH.search(item.path.as_posix()):
            item.add_marker("torch")
            if lacks_torch:
                item.add_marker(pytest.mark.skip(reason="needs the torch extra"))


def pytest_collection_finish() -> None:
    """Spare what is imported by now from garbage collection: a search collects after each trial."""
    gc.freeze()
