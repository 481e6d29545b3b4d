"""Resolve Maven artifacts with PySpark's Ivy. A cache remembers them, so later calls need no JVM."""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ET  # only ever written here, never parsed
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from offsetstream.embedded.java import java_executable
from offsetstream.errors import EnvironmentNotReadyError, UsageError

MEBIBYTE = 1 << 20
_NEEDED_BYTES = 500 * MEBIBYTE  # Kafka is 110 MiB, Spark's Kafka connector with Delta 70 MiB
_ATTEMPTS = 2  # a registry that answers one of 50 requests with an error usually answers the next time
_COORDINATE_PARTS = 3


def cache_folder() -> Path:
    """Return the folder for downloads: OFFSETSTREAM_CACHE, or `offsetstream` in the user's cache folder."""
    own = os.environ.get("OFFSETSTREAM_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user_cache).absolute() / "offsetstream"


def resolve(coordinates: Sequence[str], *, transitive: bool = True) -> list[Path]:
    """Return the jars of Maven `coordinates` (`group:artifact:version`), with their dependencies if `transitive`.

    The first call for a set of coordinates starts Ivy and downloads. Later calls only read a list file. It is safe to
    call from several threads and processes. To use your own registry, set OFFSETSTREAM_IVY_SETTINGS to an Ivy settings
    file. Raises EnvironmentNotReadyError (no answer, no Java, no disk space) or UsageError (a malformed coordinate).
    """
    modules = [_module(coordinate) for coordinate in sorted(set(coordinates))]
    cache = cache_folder()
    listed = cache / "classpaths" / _list_name(coordinates, transitive)
    jars = _read_list(listed)
    if jars is None:
        with _lock(cache):
            jars = _read_list(listed)  # another caller may have resolved it meanwhile
            if jars is None:
                jars = _resolve_with_ivy(modules, transitive, cache)
                _write_list(listed, jars)
    return jars


def classpath(jars: Sequence[Path]) -> str:
    """Return the jars as a value for the JVM's `-cp`."""
    return os.pathsep.join(str(jar) for jar in jars)


def _module(coordinate: str) -> tuple[str, str, str]:
    parts = coordinate.split(":")
    if len(parts) != _COORDINATE_PARTS or not all(parts):
        raise UsageError(f"{coordinate!r} is not a Maven coordinate. Use group:artifact:version")
    return parts[0], parts[1], parts[2]


def _list_name(coordinates: Sequence[str], transitive: bool) -> str:
    key = "\n".join([*sorted(set(coordinates)), f"transitive={transitive}"])
    _, artifact, version = _module(coordinates[0])
    return f"{artifact}-{version}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.jars"


def _read_list(listed: Path) -> list[Path] | None:
    """Return the jars of a list file. None: there is no list, or one of its jars is missing."""
    try:
        jars = [Path(line) for line in listed.read_text().splitlines()]
    except (FileNotFoundError, NotADirectoryError):
        return None
    return jars if jars and all(jar.is_file() for jar in jars) else None


def _write_list(listed: Path, jars: Sequence[Path]) -> None:
    listed.parent.mkdir(parents=True, exist_ok=True)
    unfinished = listed.with_suffix(".unfinished")
    unfinished.write_text("".join(f"{jar}\n" for jar in jars))
    unfinished.replace(listed)


@contextmanager
def _lock(cache: Path) -> Iterator[None]:
    """Hold a lock, because Ivy's cache does not support two processes at a time."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / "lock").open("a")
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"Cannot write to the download cache ({error}). Set OFFSETSTREAM_CACHE to another folder"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _resolve_with_ivy(modules: Sequence[tuple[str, str, str]], transitive: bool, cache: Path) -> list[Path]:
    check_disk_space(cache, _NEEDED_BYTES, "downloads from Maven")
    with tempfile.TemporaryDirectory(prefix="offsetstream-ivy-") as scratch:
        found = Path(scratch) / "classpath"
        command = _ivy_command(_write_ivy_file(Path(scratch), modules, transitive), found, cache)
        for _ in range(_ATTEMPTS):
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode == 0 and found.is_file():
                return [Path(jar) for jar in found.read_text().strip().split(os.pathsep)]
    raise EnvironmentNotReadyError(_resolution_error(result.stdout + result.stderr, cache))


def _ivy_command(ivy_file: Path, found: Path, cache: Path) -> list[str]:
    command = [str(java_executable()), "-cp", str(pyspark_jar("ivy")), "org.apache.ivy.Main"]
    settings = os.environ.get("OFFSETSTREAM_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    command += ["-ivy", str(ivy_file), "-cache", str(cache / "ivy"), "-confs", "default"]
    # "bundle" is the packaging of OSGi jars such as snappy-java. They are jars, too.
    return [*command, "-types", "jar", "bundle", "-cachepath", str(found)]


def pyspark_jar(name: str) -> Path:
    """Return one of PySpark's jars, such as "ivy". Raises EnvironmentNotReadyError if it is missing."""
    spec = importlib.util.find_spec("pyspark")  # do not import it: that takes a second
    jars = [] if spec is None or spec.origin is None else sorted(Path(spec.origin).parent.glob(f"jars/{name}-*.jar"))
    if not jars:
        raise EnvironmentNotReadyError(f"PySpark's jar of {name} is missing. Reinstall the package `pyspark`")
    return jars[0]


def _write_ivy_file(folder: Path, modules: Sequence[tuple[str, str, str]], transitive: bool) -> Path:
    """Write an Ivy file with all modules, so that Ivy chooses one version of each shared dependency."""
    root = ET.Element("ivy-module", version="2.0")
    ET.SubElement(root, "info", organisation="offsetstream", module="wanted")
    ET.SubElement(ET.SubElement(root, "configurations"), "conf", name="default")
    dependencies = ET.SubElement(root, "dependencies")
    for organisation, name, revision in modules:
        ET.SubElement(
            dependencies,
            "dependency",
            org=organisation,
            name=name,
            rev=revision,
            conf="default->default",
            transitive=str(transitive).lower(),
        )
    for organisation, name, revision in modules:  # even if another module needs another version
        ET.SubElement(dependencies, "override", org=organisation, module=name, rev=revision)
    file = folder / "ivy.xml"
    ET.ElementTree(root).write(file)
    return file


def _resolution_error(output: str, cache: Path) -> str:
    lines = [line.strip() for line in output.splitlines()]
    refused = [line for line in lines if line.startswith("Server access error")]
    missing = [line[3:-11] for line in lines if line.startswith(":: ") and line.endswith(": not found")]
    if refused or not missing:
        reason = (refused or [line for line in lines if line] or ["no output from Ivy"])[0]
        return (
            f"The Maven registry does not answer ({reason}). Connect to it once, or copy the folder {cache} "
            "from another machine, or set OFFSETSTREAM_IVY_SETTINGS to your own Ivy settings file"
        )
    return f"The Maven registry does not have {', '.join(missing)}. Check the version"


def check_disk_space(folder: Path, needed_bytes: int, purpose: str) -> None:
    """Raise EnvironmentNotReadyError unless the disk of `folder` has `needed_bytes` free.

    If `folder` does not exist yet, its nearest existing parent is checked.
    """
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < needed_bytes:
        raise EnvironmentNotReadyError(
            f"Not enough disk space for {purpose}: {folder} has {free // MEBIBYTE} MiB free and needs "
            f"{needed_bytes // MEBIBYTE} MiB. Free some space, or choose another folder"
        )
