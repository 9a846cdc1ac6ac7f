"""How long until something runs: the import, and the first compiled call with an empty cache?

    python benchmarks/startup.py [TEXT MODEL ...]

The peer of the import is an interpreter that does nothing; of the first call, the same call in a
later process, which finds the compiled code in the cache. With a text of few lines and models, how
long ``esnlm evaluate`` takes beside the import of the libraries that the model needs.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _report import report
from _report import row as report_row
from _report import seconds as seconds_of

LIBRARIES = "import numpy, numba, sklearn.base, scipy.sparse.linalg"
FIRST_CALL = """
import time
import numpy as np
from esnlm import Reservoir
reservoir = Reservoir(64, topology={topology!r}, random_state=0).fit(n_inputs=5)
start = time.perf_counter()
for _ in reservoir.harvest(np.arange(500) % 5, reuse=True):
    pass
print(time.perf_counter() - start)
"""


def main() -> None:
    rows = [
        row("import esnlm", seconds("import esnlm"), seconds("pass"), "interpreter alone", 1.0),
        row(
            "from esnlm import Reservoir",
            seconds("from esnlm import Reservoir"),
            seconds(LIBRARIES),
            "import of numpy, numba, scipy and scikit-learn",
            "",
        ),
        *(first_call(topology) for topology in ("random", "offsets")),
    ]
    if sys.argv[1:]:
        text, *models = sys.argv[1:]
        rows += [evaluation(text, Path(model)) for model in models]
    report("startup", rows, merge=True)


def evaluation(text: str, model: Path) -> dict[str, Any]:
    is_network = "network" in json.loads((model / "config.json").read_text())
    libraries = f"{LIBRARIES}, torch" if is_network else LIBRARIES
    command = f"assert main(['evaluate', {str(model)!r}, {text!r}]) == 0"
    ours, peer = seconds(f"from esnlm.__main__ import main; {command}"), seconds(libraries)
    name, setting = f"evaluate, {text}", f"{model.name}; peer: {libraries}"
    return report_row(name, setting, ours, peer, "s", target="ratio <= 2", met=ours <= 2 * peer)


def first_call(topology: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        first, second = (
            float(run(FIRST_CALL.format(topology=topology), environment)) for _ in range(2)
        )
    return row(f"first harvest, {topology}", first, second, "a later process", 10.0)


def row(name: str, ours: float, peer: float, peer_name: str, target: float | str) -> dict[str, Any]:
    met = ours <= target if isinstance(target, float) else ""
    return report_row(name, f"peer: {peer_name}", ours, peer, "s", target=target, met=met)


def seconds(code: str) -> float:
    """Median wall time of a fresh interpreter that runs the code."""
    return statistics.median(seconds_of(lambda: run(code)) for _ in range(5))


def run(code: str, environment: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    main()
