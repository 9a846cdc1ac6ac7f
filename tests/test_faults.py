"""A short run of the campaigns of faults."""

import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[1] / "benchmarks" / "faults.py"


#: Campaigns, and how many of their cases: those of the second kind start processes.
SHORT = {
    ("command lines", "mutated files", "untrusted text and archives"): "5",
    ("kills", "two processes", "limits"): "2",
}


@pytest.mark.parametrize(("campaigns", "cases"), SHORT.items(), ids=SHORT.values())
@pytest.mark.skipif(sys.platform != "linux", reason="the runner reads /proc")
def test_a_few_cases_of_each_campaign_do_not_fail(campaigns: tuple[str, ...], cases: str):
    command = [sys.executable, RUNNER, *campaigns, "--cases", cases, "--seed", "1", "--dry"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"{cases} cases, 0 failures") == len(campaigns)
