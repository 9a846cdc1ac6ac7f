"""Other systems, as far as Linux can imitate them: what `windows_like` refuses, and processors."""

import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from command_line import refused
from windows_like import REFUSED

from esnlm.__main__ import main
from esnlm.storage import atomic
from esnlm.storage.atomic import folder_aside, write_whole
from esnlm.utils import memory

TESTS = Path(__file__).parent
LINES = ["Łódź śpi", "the dog sees Mary", "Mary sees the dogs"]
SPACE = "units = 12\n[readout.ridge]\nalpha = {low = 0.1, high = 10, log = true}\n"
SMALL = ["--units", "20", "--seed", "1"]
COMMANDS = [
    line.split()
    for line in """
prepare text --tokenizer word --out shards
train text --units 20 --seed 1 --readout ridge --out ridge
train text --units 20 --seed 1 --readout ridge --out ridge --overwrite
train shards --units 20 --seed 1 --readout softmax --passes 2 --checkpoint-every 0 --held-out text\
 --log log.csv --out softmax
ngram text --out counts
evaluate ridge text --csv scores.csv
evaluate counts text --csv scores.csv
generate ridge --prompt Łódź --tokens 3
search space.toml text --trials 2 --seed 1 --out searched
elman --sizes 10 --readouts ridge --seeds 1 --jobs 2 --train-sentences 100 --test-sentences 20\
 --out elman --no-plots
natural shards --held-out shards --sizes 8 --degrees 4 --features 0 --baseline 2-gram=1.5:60\
 --out natural --no-plots
""".strip().splitlines()
]
# Runs of a grid import it anew.
SCRIPT = f"""
from esnlm.__main__ import main
if __name__ == "__main__":
    for words in {COMMANDS}:
        assert main(words) == 0, words
"""
#: Columns of times, memory and the machine.
MEASURED = re.compile(r"seconds|peak|tokens_per_second")


@pytest.fixture(scope="module")
def other_system(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a folder that makes Python Windows-like where it is on PYTHONPATH."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(TESTS / "windows_like.py", folder / "sitecustomize.py")
    return str(folder)


def run_commands(folder: Path, *paths: str) -> dict[str, bytes]:
    """Run `COMMANDS` in a folder; the files that they wrote, without what is measured."""
    folder.mkdir()
    (folder / "text").write_text("\n".join(LINES * 20), "utf-8")
    (folder / "space.toml").write_text(SPACE, "utf-8")
    (folder / "script.py").write_text(SCRIPT, "utf-8")
    path = os.pathsep.join([*paths, str(TESTS.parent)])
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": path, "ESNLM_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    assert "Łódź" in done.stdout.decode("utf-8")
    return {
        path.relative_to(folder).as_posix(): without_measures(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith((".run.json", ".journal"))
    }


def without_measures(path: Path) -> object:
    """Return the bytes of a file; of a CSV, its columns but those that `MEASURED` names."""
    content = path.read_bytes()
    if path.suffix != ".csv":
        return content
    assert b"\r" not in content
    rows = csv.DictReader(content.decode("utf-8").splitlines())
    return [{k: v for k, v in row.items() if not MEASURED.search(k)} for row in rows]


@pytest.mark.slow
def test_commands_write_the_same_files_on_another_system(tmp_path: Path, other_system: str):
    """Without fcntl, resource, sched_getaffinity, setsid, /proc, ..., in cp1252, with CRLF."""
    plain = run_commands(tmp_path / "plain")
    assert run_commands(tmp_path / "other", other_system) == plain
    assert {"elman/elman.csv", "natural/size.csv", "searched/best.toml"} < plain.keys()
    assert len(plain) == len({name.casefold() for name in plain})


def test_every_module_is_imported_on_another_system(other_system: str):
    script = """
import importlib, os, pkgutil, signal, sys, esnlm
for name in ("fcntl", "resource"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        pass
    else:
        raise SystemExit(name)
assert not hasattr(os, "sched_getaffinity") and not hasattr(signal, "SIGKILL")
lacks = "torch transformers lm_eval minicons fastapi starlette uvicorn optuna".split()
for module in pkgutil.walk_packages(esnlm.__path__, "esnlm."):
    if ".exported" in module.name or module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        assert error.name.split(".")[0] in lacks, (module.name, error)
"""
    path = os.pathsep.join([other_system, str(TESTS.parent)])
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)


def test_the_names_of_the_repository_are_names_everywhere():
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=TESTS.parent, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("needs a checkout")
    names = done.stdout.split("\0")[:-1]
    assert len(names) > 300
    assert not [name for name in names if any(map(REFUSED.search, name.split("/")))]
    assert len({name.casefold() for name in names}) == len(names)
    assert max(map(len, names)) < 120


def test_line_ends_of_windows_change_no_model(tmp_path: Path):
    for name, end in (("unix", "\n"), ("windows", "\r\n")):
        (tmp_path / name).write_bytes(end.join(LINES * 20).encode())
        model = ["--out", str(tmp_path / f"{name}-model")]
        assert main(["train", str(tmp_path / name), *SMALL, "--readout", "ridge", *model]) == 0
    first, second = (tmp_path / f"{name}-model" for name in ("unix", "windows"))
    for name in ("weights.safetensors", "tokenizer.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PYTHONIOENCODING": "cp1252"}, b"\\u0141\xf3d\\u017a"),
        ({"PYTHONIOENCODING": "cp1250"}, "Łódź".encode("cp1250")),
        ({}, "Łódź".encode()),
    ],
    ids=["no letters", "letters", "a code page of the system"],
)
def test_letters_that_a_code_page_lacks(
    environment: dict[str, str], expected: bytes, other_system: str, in_folder_of_model: Path
):
    Path("text").write_text("Łódź śpi\n" * 5, "utf-8")
    assert main(["ngram", "text", "--order", "2", "--out", "polish"]) == 0
    command = [sys.executable, "-m", "esnlm", "generate", "polish", "--prompt", "Łódź"]
    path = [str(TESTS.parent)] if environment else [other_system, str(TESTS.parent)]
    environment = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert done.stdout.startswith(expected)


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How often a system that replaces nothing that is open refuses still to do so."""
    left, replace = [0], os.replace

    def refuse(source: Path, target: Path) -> None:
        inside = ".esnlm-" in Path(target).parent.name
        left[0] -= not inside
        if left[0] >= 0 and not inside:
            raise PermissionError(13, "Access is denied", str(source), 5, str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    monkeypatch.setattr(atomic, "_REFUSES_OPEN", True)
    monkeypatch.setattr(atomic, "_PATIENCE", 0.3)
    return left


def test_a_file_that_another_program_opens_for_a_moment_is_replaced(
    refusals: list[int], tmp_path: Path
):
    for count, text in enumerate(["old", "new"]):
        refusals[0] = count
        write_whole(tmp_path / "file", text)
        with folder_aside(tmp_path / "folder") as folder:
            (folder / "file").write_text(text)
        assert (tmp_path / "file").read_text() == text
        assert (tmp_path / "folder" / "file").read_text() == text
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}


def test_a_file_that_stays_open_is_named(refusals: list[int], in_folder_of_model: Path, capsys):
    before = {path: path.read_bytes() for path in Path("model").iterdir()}
    refusals[0] = 10**6
    line = refused(capsys, "ngram", "text", "--out", "model", "--overwrite")
    assert line.endswith("model: another program has it open, or it may not be written")
    assert {path: path.read_bytes() for path in Path("model").iterdir()} == before
    assert {path.name for path in Path.cwd().iterdir()} == {"model", "text"}
    line = refused(capsys, "evaluate", "model", "text", "--csv", "out.csv")
    assert line.endswith("out.csv: another program has it open, or it may not be written")


def test_peak_memory_without_proc(monkeypatch: pytest.MonkeyPatch):
    """Linux's and getrusage's agree; the parent's may be larger."""
    peak = memory.peak_memory()
    monkeypatch.setattr(memory, "_kilobytes", lambda *_: 0)
    assert memory.peak_memory() >= 0.99 * peak > 1 << 24
    monkeypatch.setattr(memory, "resource", None)
    assert memory.peak_memory() == 0
    assert memory.available_memory() > 0


STATES = """
import sys, numpy as np
from esnlm import Reservoir
states = {}
for topology in ("random", "offsets"):
    for dtype in ("float32", "float64"):
        reservoir = Reservoir(200, topology=topology, dtype=dtype, random_state=1, degree=16)
        reservoir.fit(n_inputs=7)
        tokens = np.arange(400) ** 2 % 7
        states[f"{topology} {dtype}"] = reservoir.transform(tokens)
        parts = [block[0].copy() for block in reservoir.harvest(tokens)]
        states[f"{topology} {dtype} harvest"] = np.concatenate(parts)
np.savez(globals().get("FILE") or sys.argv[1], **states)
"""


@pytest.mark.slow
def test_states_without_wide_registers(tmp_path: Path):
    """A processor without AVX and FMA gives the states of this one, to the stated tolerance."""
    environment = {
        **os.environ, "PYTHONPATH": str(TESTS.parent), "NUMBA_CACHE_DIR": str(tmp_path),
        "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "",
    }  # fmt: skip
    command = [sys.executable, "-c", STATES, str(tmp_path / "generic.npz")]
    subprocess.run(command, env=environment, check=True)
    exec(STATES, {"FILE": str(tmp_path / "host.npz")})
    host, generic = (np.load(tmp_path / f"{name}.npz") for name in ("host", "generic"))
    assert len(host.files) == 8
    for name in host.files:
        tolerance = 2e-6 if "float32" in name else 1e-13
        np.testing.assert_allclose(generic[name], host[name], rtol=0, atol=tolerance)
