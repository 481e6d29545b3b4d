"""Finds a Java that Spark 4.0 and Kafka run on."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from offsetstream.errors import EnvironmentNotReadyError

SUPPORTED_VERSIONS = (17, 21)
_WANTED = "install Java 17 or 21 and set JAVA_HOME to it"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def java_executable() -> Path:
    """Find the `java` to start: of JAVA_HOME where that is set (as Spark chooses), else of PATH.

    Raises EnvironmentNotReadyError, one line, when there is none or it is neither Java 17 nor 21.
    """
    java = _find()
    version = java_version(java)
    if version not in SUPPORTED_VERSIONS:
        raise EnvironmentNotReadyError(f"{java} is Java {version}, which Spark 4.0 does not support: {_WANTED}")
    return java


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


def _find() -> Path:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise EnvironmentNotReadyError(f"JAVA_HOME is {home}, but there is no bin/java in it: {_WANTED}")
        return java
    found = shutil.which("java")
    if found is None:
        raise EnvironmentNotReadyError(f"Java is not installed (no `java` on PATH, no JAVA_HOME): {_WANTED}")
    return Path(found)
