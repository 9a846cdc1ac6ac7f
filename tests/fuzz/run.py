"""Fuzz one target by coverage, with Atheris: ``python tests/fuzz/run.py TARGET [SECONDS]``.

A crash is written to ``TARGET-crash-…`` below the folder of the corpora that grow, which is
``FUZZ_FOLDER`` or a temporary one, and the exit status is not 0.
"""

import os
import random
import sys
import tempfile
from importlib import import_module
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parents[1]))

import atheris  # noqa: E402

CORPUS = Path(__file__).with_name("corpus")
_LONGEST = 1 << 16
_FORM_SHARE = 0.8


def main(name: str, seconds: str | None = None) -> None:
    """Run a target for its seconds; libFuzzer ends the process."""
    # numba compiles kernels, and does not know what Atheris would put into them.
    for module in (Path(__file__).parents[2] / "esnlm" / "kernels").glob("*.py"):
        import_module(f"esnlm.kernels.{module.stem}")
    with atheris.instrument_imports(include=["esnlm", "tomllib"]):
        from fuzz import targets
    from fuzz.mutation import mutated

    home = Path(os.environ.get("FUZZ_FOLDER") or tempfile.mkdtemp())
    grown = home / name
    grown.mkdir(parents=True, exist_ok=True)
    for path in sorted((CORPUS / name).iterdir()):
        targets.check(name, path.read_bytes())  # what is compiled at first use is compiled

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < _FORM_SHARE:
            return mutated(data, rng)[:most]
        return bytes(atheris.Mutate(data, most))

    arguments = [
        f"-max_total_time={seconds or targets.TARGETS[name].seconds}",
        f"-seed={1 if seconds else 0}",  # 0: drawn anew; a short run is the same each time
        f"-max_len={_LONGEST}",
        "-timeout=20",
        "-rss_limit_mb=4096",
        f"-artifact_prefix={home}/{name}-",
        "-print_final_stats=1",
        "-verbosity=1",
    ]
    folders = [str(grown), str(CORPUS / name)]
    atheris.Setup(
        [sys.argv[0], *arguments, *folders],
        lambda data: targets.check(name, data),
        custom_mutator=mutate,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
