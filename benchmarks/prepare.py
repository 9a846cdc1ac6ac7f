"""Text to token shards: tokens a second, and memory at two sizes of the corpus.

    python benchmarks/prepare.py --small train-1M.txt.gz --large train.txt.gz --vocab FOLDER

The peer is what cannot be left out: the same text read line by line and tokenized in batches by the
same library with the same vocabulary, and nothing kept or written. Both are whole processes.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _report import options, report, row

_OURS = """
from esnlm.__main__ import main
main(["prepare", sys.argv[1], "--tokenizer", "gpt2", "--vocab", sys.argv[2], "--out", sys.argv[3]])
from esnlm.text.shards import Shards
tokens = Shards(sys.argv[3], verify=False).n_tokens
"""
_PEER = """
import gzip
from itertools import islice
from esnlm.text.named_tokenizers import gpt2
backend = gpt2(sys.argv[2]).backend
tokens = 0
with gzip.open(sys.argv[1], "rt", encoding="utf-8") as file:
    while batch := list(islice(file, 20_000)):
        lines = [line.strip() for line in batch if line.strip()]
        found = backend.encode_batch_fast(lines, add_special_tokens=False)
        tokens += sum(len(encoding.ids) + 2 for encoding in found)
"""
_TOLD = """
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"tokens": tokens, "seconds": time.perf_counter() - begin, "peak": peak}))
"""
_BEGIN = "import json, resource, sys, time\nbegin = time.perf_counter()\n"


def main() -> None:
    """Measure and report."""
    args = options(__doc__, small=Path, large=Path, vocab=Path)
    measured = {
        (who, size): _measured(program, path, args.vocab)
        for size, path in (("small", args.small), ("large", args.large))
        for who, program in (("ours", _OURS), ("peer", _PEER))
    }
    rows: list[dict[str, Any]] = []
    for size in ("small", "large"):
        ours, peer = measured["ours", size], measured["peer", size]
        assert ours["tokens"] == peer["tokens"]
        setting = f"GPT-2's vocabulary, {ours['tokens']} tokens"
        speed, possible = (found["tokens"] / found["seconds"] for found in (ours, peer))
        rows.append(row("speed", setting, speed, possible, "tokens/s"))
    peaks = measured["ours", "large"]["peak"], measured["ours", "small"]["peak"]
    factor = measured["ours", "large"]["tokens"] / measured["ours", "small"]["tokens"]
    setting, met = f"{factor:.1f} times the text beside the smaller", peaks[0] <= 1.1 * peaks[1]
    rows.append(row("peak memory", setting, *peaks, "MiB", target="<= 1.1", met=met))
    report("prepare", rows)


def _measured(program: str, path: Path, vocab: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, "-c", _BEGIN + program + _TOLD, str(path), str(vocab), f"{folder}/s"]
        done = subprocess.run(run, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
