"""Estimates of memory: what does not fit is refused before it is allocated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from esnlm.__main__ import main
from esnlm.utils import memory, threads

pytestmark = pytest.mark.usefixtures("in_folder_of_model")


def names() -> set[str]:
    return set(os.listdir("."))


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("train text --units 1000000 --out m", "a readout of 1000000 units"),
        ("train text --units 1000000 --readout softmax --out m", "a readout of 1000000 units"),
        ("train text --units 1000000 --out m --chunk-tokens 50", "a readout of 1000000 units"),
        ("train text --features spectral:99999999999 --out m", "inputs"),
        ("train text --features 99999999999 --out m", "the weights of 1000 units and 99999999999"),
        ("elman --sizes 5 --test-sentences 9223372036854775807 --out m", "9223372036854775807"),
        ("dyck --units 5 --models esn --test 9223372036854775807 --out m", "sequences"),
        ("prepare text --tokenizer bpe:100000000000 --out m", "a vocabulary of 100000000000"),
    ],
)
def test_absurd_sizes_are_refused_with_an_estimate(command: str, what: str, capsys):
    before = names()
    assert main(command.split()) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert what in said
    assert "would take at least" in said
    assert names() == before


def test_the_limit_of_the_shell_counts():
    script = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, -1))
from esnlm.utils.memory import available_memory, check_memory
assert available_memory() < 3 << 30
check_memory("this", 4 << 30, "less")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "TooLargeError: this would take at least 4.0 GiB of memory, and " in done.stderr


GIB = 1 << 30
SECOND = {
    "memory.max": 3 * GIB,
    "memory.current": 2 * GIB,
    "memory.stat": f"anon 9\ninactive_file {GIB >> 1}\nactive_file {GIB >> 2}\nunevictable 9\n",
    "cpu.max": "150000 100000",
}
FIRST = {
    "memory.limit_in_bytes": 3 * GIB,
    "memory.usage_in_bytes": 2 * GIB,
    "memory.stat": f"active_file 7\ntotal_inactive_file {GIB >> 1}\ntotal_active_file {GIB >> 2}\n",
    "cpu.cfs_quota_us": 150000,
    "cpu.cfs_period_us": 100000,
}


@pytest.mark.parametrize(
    ("groups", "folder", "files"),
    [
        ("0::/\n", "", SECOND),  # in a container
        ("0::/slurm/job_1/step_0\n", "slurm/job_1", SECOND),
        ("7:cpu,memory:/docker/1\n0::/\n", "{}", FIRST),
        ("7:cpu,memory:/slurm/job_1/step_0\n", "{}/slurm/job_1", FIRST),
    ],
    ids=["container", "job", "container of version 1", "job of version 1"],
)
def test_limits_of_control_groups_count_and_pages_of_files_are_free(
    groups: str, folder: str, files: dict[str, object], tmp_path: Path, monkeypatch
):
    (tmp_path / "own").write_text(groups)
    monkeypatch.setattr(memory, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    for name, content in files.items():
        place = tmp_path / folder.format(name.partition(".")[0]) / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{content}\n")
    monkeypatch.setattr(memory, "_kilobytes", lambda *_: 0)
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    threads._quota.cache_clear()
    try:
        assert memory.available_memory() == 1.75 * GIB
        assert threads.available_cores() == 2
    finally:
        threads._quota.cache_clear()


def test_groups_without_a_limit_limit_nothing(tmp_path: Path, monkeypatch):
    (tmp_path / "own").write_text("0::/\n")
    for name, content in (("memory.max", "max"), ("memory.current", "5"), ("cpu.max", "max 100")):
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(memory, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    assert memory._left_in(tmp_path) == 1 << 62
    assert threads._quota.__wrapped__() > 1 << 20
