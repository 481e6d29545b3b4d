"""What `make install` says in one line when something that the machine must have is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def install(**environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "scripts" / "install.py")]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def fake_java(folder: Path, version: str) -> str:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("version", "words"), [("1.8.0_392", "is Java 8"), ("25", "is Java 25"), (None, "there is no bin/java")]
)
def test_a_wrong_or_missing_java(tmp_path: Path, version: str | None, words: str) -> None:
    home = str(tmp_path) if version is None else fake_java(tmp_path, version)
    done = install(JAVA_HOME=home)
    assert done.returncode == 1
    assert words in done.stderr
    assert "install Java 17" in done.stderr
    assert len(done.stderr.splitlines()) == 1
