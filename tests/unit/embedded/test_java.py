"""Which Java is taken, and what is said where there is none."""

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from offsetstream.embedded.java import java_executable, java_home_for_spark, packaged_java
from offsetstream.errors import EnvironmentNotReadyError


def fake_java(home: Path, script: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return java


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.mark.parametrize("version", ["17.0.15", "21", "21.0.1-ea"])
def test_takes_the_java_of_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    java = fake_java(tmp_path, says(version))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_executable() == java


def test_takes_the_java_of_path_without_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(tmp_path, f"echo 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g' >&2; {says('17.0.15')}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(java.parent))
    assert java_executable() == java


@pytest.mark.parametrize(("pyspark", "taken"), [("4.0.4", False), ("4.1.3", False), ("4.2.0", True)])
def test_takes_java_25_from_pyspark_4_2_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pyspark: str, taken: bool
) -> None:
    fake_java(tmp_path, says("25.0.3"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("offsetstream.embedded.java.version", lambda _: pyspark)
    with nullcontext() if taken else pytest.raises(EnvironmentNotReadyError, match=f"Java 25, which PySpark {pyspark}"):
        java_executable()


BROKEN = "echo 'Unable to locate a Java Runtime.' >&2; exit 1"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (says("1.8.0_402"), "is Java 8, which .* Install Java 17 or 21"),
        (says("11.0.2"), "is Java 11, which .* Install Java 17 or 21"),
        (says("24.0.1"), "is Java 24, which .* Install Java 17 or 21"),
        (None, r"JAVA_HOME is .* it has no bin/java. Install Java 17"),
        (BROKEN, r"not a working Java .Unable to locate a Java Runtime"),
    ],
)
def test_refuses_a_java_home_that_spark_cannot_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, words: str
) -> None:
    if script is not None:
        fake_java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EnvironmentNotReadyError, match=words):
        java_executable()


def test_says_that_there_is_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offsetstream.embedded.java.find_spec", lambda _: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentNotReadyError, match=r"Java is not installed .* Install Java 17"):
        java_executable()


@pytest.mark.parametrize("script", [says("11.0.2"), BROKEN])
def test_takes_the_packaged_java_if_the_one_on_path_is_unsupported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{fake_java(tmp_path, script).parent}:{os.environ['PATH']}")
    assert java_executable() == packaged_java()


def test_a_supported_java_gets_no_wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    fake_java(tmp_path, says("17.0.15"))
    assert java_home_for_spark(tmp_path) is None
