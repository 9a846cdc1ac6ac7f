"""Estimates of memory: what does not fit is refused before it is allocated."""

import os
import subprocess
import sys

import pytest

from esnlm.__main__ import main

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
