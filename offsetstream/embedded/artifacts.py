"""Maven artifacts by the Ivy inside PySpark: resolved once, kept in a cache, then found without a JVM."""

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import tempfile
import xml.etree.ElementTree as ET  # only ever written here, never parsed
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from offsetstream.embedded.disk import MEBIBYTE, check_disk_space
from offsetstream.embedded.java import java_executable
from offsetstream.errors import EnvironmentNotReadyError, UsageError

_NEEDED_BYTES = 500 * MEBIBYTE  # Kafka is 110 MiB, Spark's Kafka connector with Delta 70 MiB
_ATTEMPTS = 2  # a registry that answers one of 50 requests with an error usually answers the next time
_COORDINATE_PARTS = 3


def cache_folder() -> Path:
    """Name the folder of downloads: OFFSETSTREAM_CACHE, else `offsetstream` in the user's cache folder."""
    own = os.environ.get("OFFSETSTREAM_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user_cache).absolute() / "offsetstream"


def resolve(coordinates: Sequence[str], *, transitive: bool = True) -> list[Path]:
    """Find the jars of Maven `coordinates` (`group:artifact:version`), with all they need if `transitive`.

    The first call for a set of coordinates starts Ivy and downloads; later ones read a list file and start
    nothing. Safe for callers in several threads and processes. OFFSETSTREAM_IVY_SETTINGS may name an Ivy
    settings file, for a registry of one's own.
    Raises EnvironmentNotReadyError (no registry answers, no Java, no space), UsageError (a bad coordinate).
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
    """Jars as the JVM's `-cp` wants them."""
    return os.pathsep.join(str(jar) for jar in jars)


def _module(coordinate: str) -> tuple[str, str, str]:
    parts = coordinate.split(":")
    if len(parts) != _COORDINATE_PARTS or not all(parts):
        raise UsageError(f"{coordinate!r} is no Maven coordinate: write group:artifact:version")
    return parts[0], parts[1], parts[2]


def _list_name(coordinates: Sequence[str], transitive: bool) -> str:
    wanted = "\n".join([*sorted(set(coordinates)), f"transitive={transitive}"])
    _, artifact, version = _module(coordinates[0])
    return f"{artifact}-{version}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}.jars"


def _read_list(listed: Path) -> list[Path] | None:
    """Read the jars of a list file; None when there is no list, or one of its jars is gone."""
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
    """One resolver at a time: Ivy's cache is not made for two."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / "lock").open("a")
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"The cache of downloads cannot be written ({error}): set OFFSETSTREAM_CACHE to a folder of yours"
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
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0 and found.is_file():
                return [Path(jar) for jar in found.read_text().strip().split(os.pathsep)]
    raise EnvironmentNotReadyError(_why_unresolved(done.stdout + done.stderr, cache))


def _ivy_command(ivy_file: Path, found: Path, cache: Path) -> list[str]:
    command = [str(java_executable()), "-cp", str(ivy_jar()), "org.apache.ivy.Main"]
    settings = os.environ.get("OFFSETSTREAM_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    command += ["-ivy", str(ivy_file), "-cache", str(cache / "ivy"), "-confs", "default"]
    # "bundle" is the packaging of OSGi jars such as snappy-java; it names a jar all the same.
    return [*command, "-types", "jar", "bundle", "-cachepath", str(found)]


def ivy_jar() -> Path:
    """Return the Ivy inside PySpark; EnvironmentNotReadyError where it is missing."""
    spec = importlib.util.find_spec("pyspark")
    jars = [] if spec is None or spec.origin is None else sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar"))
    if not jars:
        raise EnvironmentNotReadyError("PySpark's ivy jar is missing: install the package `pyspark` anew")
    return jars[0]


def _write_ivy_file(folder: Path, modules: Sequence[tuple[str, str, str]], transitive: bool) -> Path:
    """Write an Ivy file that asks for all modules at once, so that shared versions are settled among them."""
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
    for organisation, name, revision in modules:  # also where another one needs it in another version
        ET.SubElement(dependencies, "override", org=organisation, module=name, rev=revision)
    file = folder / "ivy.xml"
    ET.ElementTree(root).write(file)
    return file


def _why_unresolved(output: str, cache: Path) -> str:
    lines = [line.strip() for line in output.splitlines()]
    refused = [line for line in lines if line.startswith("Server access error")]
    missing = [line[3:-11] for line in lines if line.startswith(":: ") and line.endswith(": not found")]
    if refused or not missing:
        reason = (refused or [line for line in lines if line] or ["Ivy says nothing"])[0]
        return (
            f"The Maven registry does not answer ({reason}): connect once, or copy the folder {cache} "
            "from a machine that has it, or name an Ivy settings file of yours in OFFSETSTREAM_IVY_SETTINGS"
        )
    return f"The Maven registry does not have {', '.join(missing)}: check the version"
