"""A short run of the campaigns of faults."""

import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parents[1] / "benchmarks" / "faults.py"


@pytest.mark.skipif(sys.platform != "linux", reason="the runner reads /proc")
def test_a_few_cases_of_each_campaign_do_not_fail():
    command = [sys.executable, RUNNER, "--cases", "60", "--seed", "1", "--dry"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("60 cases, 0 failures") >= 3
