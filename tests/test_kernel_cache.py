"""Compiled kernels are cached outside the package, by the content of their sources."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest

from esnlm.kernels import cache
from esnlm.kernels.cache import KernelCache, hash_sources

KERNELS = Path(cache.__file__).parent
CALL = "from esnlm.kernels.user import call\nprint(call(1), len(call.stats.cache_hits))"
HARVEST = """
from esnlm import Reservoir
print(Reservoir(20, random_state=0).fit_transform([0, 1, 2]).shape)
from esnlm.kernels import recurrence
print(sum(sum(kernel.stats.cache_hits.values()) for kernel in vars(recurrence).values()
          if hasattr(kernel, "stats")))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, with a kernel that uses another module."""
    copy = tmp_path / "packages" / "esnlm"
    shutil.copytree(KERNELS.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "kernels" / "step.py").write_text(
        "import numba\n@numba.njit\ndef step(x):\n    return x + 1\n"
    )
    (copy / "kernels" / "user.py").write_text(
        "from esnlm.kernels.cache import kernel\nfrom esnlm.kernels.step import step\n"
        "@kernel\ndef call(x):\n    return step(x)\n"
    )
    return copy


def run(package: Path, code: str, **variables: str) -> list[str]:
    """Run Python on a copy of the package, with a home and a working folder beside it."""
    folder = package.parent.parent
    (folder / "work").mkdir(exist_ok=True)
    left_out = "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"
    environment = {key: value for key, value in os.environ.items() if key not in left_out}
    environment |= {"PYTHONPATH": str(package.parent), "HOME": str(folder / "home"), **variables}
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "-c", code],
        cwd=folder / "work",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_kernels_are_cached_in_the_folder_of_the_user(package: Path) -> None:
    sources, home = files_in(package), package.parent.parent / "home"
    assert run(package, HARVEST) == ["(3, 20)", "0"]
    compiled = files_in(home)
    assert {Path(name).suffix for name in compiled} == {".nbi", ".nbc"}
    assert {Path(name).parent.name for name in compiled} == {hash_sources(package / "kernels")}
    assert run(package, HARVEST) == ["(3, 20)", "1"]
    assert files_in(home) == compiled
    assert files_in(package) == sources  # so that an uninstall leaves no folder


@pytest.mark.parametrize(
    ("suffix", "damage"), [("nbi", "cut"), ("nbi", "other"), ("nbc", "empty"), ("nbc", "cut")]
)
def test_a_damaged_cache_is_made_anew(package: Path, suffix: str, damage: str) -> None:
    assert run(package, CALL) == ["2 0"]
    (file,) = (package.parent.parent / "home").rglob(f"*.{suffix}")
    content = {"empty": b"", "cut": file.read_bytes()[:-20], "other": b"no pickle"}
    file.write_bytes(content[damage])
    assert run(package, CALL) == ["2 0"]
    assert run(package, CALL) == ["2 1"]


@pytest.mark.parametrize("where", ["absolute", "relative"])
def test_numba_cache_dir_is_used_where_it_is_set(package: Path, tmp_path: Path, where: str) -> None:
    folder, before = tmp_path / "work" / "of numba", files_in(tmp_path)
    value = str(folder) if where == "absolute" else folder.name
    assert run(package, CALL, NUMBA_CACHE_DIR=value) == ["2 0"]
    assert run(package, CALL, NUMBA_CACHE_DIR=value) == ["2 1"]
    compiled = {str(folder.relative_to(tmp_path) / name) for name in files_in(folder)}
    assert len(compiled) == 2
    assert files_in(tmp_path) == before | compiled


def test_without_a_writable_folder_nothing_is_cached(package: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    before = files_in(tmp_path)
    inside = str(tmp_path / "file" / "inside")
    assert run(package, CALL, HOME=inside) == ["2 0"]
    assert run(package, CALL, NUMBA_CACHE_DIR=inside) == ["2 0"]
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("answer", ["raise RuntimeError", "return '~/.cache/esnlm'"])
def test_without_a_home_nothing_is_cached(package: Path, tmp_path: Path, answer: str) -> None:
    """platformdirs answers so where HOME is not set and the system does not know the user."""
    before = files_in(tmp_path)
    code = f"def answer(name):\n    {answer}\nimport platformdirs\n"
    code += "platformdirs.user_cache_dir = answer\n"
    assert run(package, code + CALL) == ["2 0"]
    assert files_in(tmp_path) == before


def test_a_kernel_is_compiled_anew_where_a_module_that_it_uses_has_changed(package: Path) -> None:
    assert [*run(package, CALL), *run(package, CALL)] == ["2 0", "2 1"]
    step = package / "kernels" / "step.py"
    step.write_text(step.read_text().replace("+ 1", "+ 2"))
    assert run(package, CALL) == ["3 0"]


def test_the_folder_depends_on_all_that_is_compiled(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = package / "kernels"
    hashes = [hash_sources(kernels)]
    with (kernels / "activations.py").open("a") as file:
        file.write("# changed\n")
    hashes.append(hash_sources(kernels))
    (kernels / "rows.py").rename(kernels / "other.py")
    hashes.append(hash_sources(kernels))
    monkeypatch.setattr(cache.config, "BOUNDSCHECK", 1)
    hashes.append(hash_sources(kernels))
    monkeypatch.setattr(numba, "__version__", "0")
    hashes.append(hash_sources(kernels))
    assert len(set(hashes)) == len(hashes)


def test_two_processes_do_not_mix_up_their_signatures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Save two signatures as two processes do that both read the index before either wrote it."""
    monkeypatch.setattr(cache, "FOLDER", tmp_path)

    def double(x: Any) -> Any:
        return 2 * x

    kernel = numba.njit(double)
    signatures = [(numba.int64,), (numba.float64,)]
    for signature in signatures:
        kernel.compile(signature)
    first, second = KernelCache(double), KernelCache(double)
    files: Any = first._cache_file
    save_data = files._save_data

    def save_after_the_other(name: str, data: Any) -> None:
        second.save_overload(signatures[1], kernel.overloads[signatures[1]])
        save_data(name, data)

    monkeypatch.setattr(files, "_save_data", save_after_the_other)
    monkeypatch.setattr(second._cache_file, "_load_index", dict)
    first.save_overload(signatures[0], kernel.overloads[signatures[0]])
    other, context = KernelCache(double), kernel.targetctx
    assert other.load_overload(signatures[0], context) is None
    assert other.load_overload(signatures[1], context).signature.args == signatures[1]
