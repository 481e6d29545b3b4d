"""Hive's metastore as a service of its own, over Derby, out of pip PySpark's jars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from offsetstream.embedded.guarded import GuardedProcesses
from offsetstream.embedded.java import java_executable
from offsetstream.embedded.jvm import SHORT_LIVED
from offsetstream.embedded.ports import LOOPBACK, accepts_connections, free_ports
from testkit.waiting import await_

_MAIN = "org.apache.hadoop.hive.metastore.HiveMetaStore"


@dataclass(frozen=True)
class Metastore:
    """A metastore that can be run; `conf` is what a session of Spark's needs to use it, which asks it at first use."""

    port: int
    folder: Path

    @property
    def conf(self) -> Mapping[str, str]:
        return {
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": f"thrift://{LOOPBACK}:{self.port}",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }

    @property
    def options(self) -> list[str]:
        """The same for a command."""
        return [part for name, value in self.conf.items() for part in ("--conf", f"{name}={value}")]

    def place_of(self, schema: str) -> Path:
        """Where the tables of a schema lie, which Spark makes there by itself."""
        return self.folder / "warehouse" / f"{schema}.db"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run it meanwhile; it ends with this process, even one that is killed."""
        said = self.folder / "metastore.txt"
        with closing(GuardedProcesses()) as processes:
            processes.start(_MAIN, _command(self.folder, self.port), said)
            await_(lambda: accepts_connections(self.port) or processes.exit_code(_MAIN) is not None, said.read_text)
            assert processes.exit_code(_MAIN) is None, said.read_text()
            try:
                yield
            finally:
                processes.end([_MAIN], grace_seconds=30.0)


def metastore_in(folder: Path) -> Metastore:
    """Return a metastore that is to keep all that it has in the folder."""
    return Metastore(free_ports(1)[0], folder)


def _command(folder: Path, port: int) -> list[str]:
    settings = {
        "derby.stream.error.file": str(folder / "derby.log"),
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'metastore'};create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.connectionPoolingType": "HikariCP",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(folder / "warehouse"),
        "hive.async.log.enabled": "false",  # its library is not among PySpark's
    }
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    options = ["-Xmx256m", *SHORT_LIVED, *(f"-D{name}={value}" for name, value in settings.items())]
    return [str(java_executable()), *options, "-cp", str(jars), _MAIN, "-p", str(port)]
