import os
import shutil
import subprocess
from pathlib import Path

import pytest

from esnlm import __version__
from esnlm.runs import provenance


def checkout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one commit, which the module believes that it lies in."""
    module = folder / "package" / "experiments" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text("one = 1\n")
    (folder / "report.csv").write_text("a,b\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    monkeypatch.setattr(provenance, "__file__", str(module))
    return module


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_checkout_is_named_by_its_commit_and_whether_it_was_changed(tmp_path, monkeypatch):
    module = checkout(tmp_path, monkeypatch)
    show = ["git", "-C", str(tmp_path), "rev-parse", "HEAD"]
    head = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    clean = provenance.code_version()
    assert len(clean) == 9
    assert head.startswith(clean)
    (tmp_path / "report.csv").write_text("a,b\n1,2\n")
    assert provenance.code_version() == clean
    module.write_text("one = 2\n")
    assert provenance.code_version() == f"{clean}+"
    assert provenance.code_version(tmp_path / "package") == f"{clean}+"
    assert provenance.code_version(tmp_path / "other") == f"esnlm {__version__}"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_another_repository_is_not_that_of_the_code(tmp_path, monkeypatch):
    """An environment within a project, and a command that a hook of git starts."""
    checkout(tmp_path / "project", monkeypatch)
    module = tmp_path / "project" / ".venv" / "package" / "experiments" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text("one = 1\n")
    monkeypatch.setattr(provenance, "__file__", str(module))
    assert provenance.code_version() == f"esnlm {__version__}"
    monkeypatch.setattr(provenance, "__file__", str(checkout(tmp_path / "own", monkeypatch)))
    own = provenance.code_version()
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "project" / ".git"))
    assert provenance.code_version() == own


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_asking_locks_no_index(tmp_path, monkeypatch):
    """`git status` writes the index anew where times of files changed: a kill left its lock."""
    module = checkout(tmp_path, monkeypatch)
    os.utime(module, (1e9, 1e9))
    index = tmp_path / ".git" / "index"
    before = index.read_bytes()
    assert len(provenance.code_version()) == 9
    assert index.read_bytes() == before
    subprocess.run(["git", "-C", str(tmp_path), "status"], check=True, capture_output=True)
    assert index.read_bytes() != before


def test_without_git_the_version_is_named(tmp_path, monkeypatch):
    module = tmp_path / "package" / "experiments" / "module.py"
    module.parent.mkdir(parents=True)
    monkeypatch.setattr(provenance, "__file__", str(module))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.code_version() == f"esnlm {__version__}"
    monkeypatch.setenv("PATH", "")
    assert provenance.code_version() == f"esnlm {__version__}"
