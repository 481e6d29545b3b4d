"""Hive's metastore as a service over Derby, from the jars of pip's PySpark."""

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
    """A metastore that `running` starts. A Spark session needs `conf`, and connects at first use."""

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
        """The same settings as options of a command."""
        return [part for name, value in self.conf.items() for part in ("--conf", f"{name}={value}")]

    def place_of(self, schema: str) -> Path:
        """Return the folder where Spark creates the tables of a schema."""
        return self.folder / "warehouse" / f"{schema}.db"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the metastore. It also ends if this process is killed."""
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
    """Return a metastore that keeps all its data in the folder."""
    return Metastore(free_ports(1)[0], folder)


def _command(folder: Path, port: int) -> list[str]:
    settings = {
        "derby.stream.error.file": str(folder / "derby.log"),
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'metastore'};create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.connectionPoolingType": "HikariCP",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(folder / "warehouse"),
        "hive.async.log.enabled": "false",  # PySpark's jars lack the library for it
    }
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    options = ["-Xmx256m", *SHORT_LIVED, *(f"-D{name}={value}" for name, value in settings.items())]
    return [str(java_executable()), *options, "-cp", str(jars), _MAIN, "-p", str(port)]
