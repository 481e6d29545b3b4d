"""What `make install` prints in one line when the machine lacks something."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """The repository files that are read before anything is installed."""
    (folder := tmp_path / "fresh" / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts" / "install.py", folder)
    for name in ("offsetstream", "requirements.lock", "pyproject.toml"):
        (folder.parent / name).symlink_to(ROOT / name)
    return folder.parent


def install(root: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(root / "scripts" / "install.py")]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def fake_java(folder: Path, version: str) -> str:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("version", "words"), [("1.8.0_392", "is Java 8"), ("25", "is Java 25"), (None, "it has no bin/java")]
)
def test_a_wrong_or_missing_java(fresh: Path, tmp_path: Path, version: str | None, words: str) -> None:
    home = str(tmp_path) if version is None else fake_java(tmp_path, version)
    done = install(fresh, JAVA_HOME=home)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Install Java 17" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_lint_and_types_need_no_java(fresh: Path, tmp_path: Path) -> None:
    """An existing environment is not made again, whatever JAVA_HOME says."""
    needed = b"".join((ROOT / name).read_bytes() for name in ("requirements.lock", "pyproject.toml"))
    (fresh / ".venv").mkdir()
    (fresh / ".venv" / ".offsetstream-installed").write_text(hashlib.sha256(needed).hexdigest())
    done = install(fresh, JAVA_HOME=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
