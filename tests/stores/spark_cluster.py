"""A standalone Spark cluster on the loopback address: a master, workers with one executor each, and spark-submit."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow
import pyspark

from offsetstream.embedded.artifacts import resolve
from offsetstream.embedded.ports import LOOPBACK, free_ports
from offsetstream.spark.session import connectors
from testkit.processes import ServerProcess

_BIN = Path(pyspark.__file__).parent / "bin"
JOB = Path(__file__).parents[1] / "streaming_jobs" / "materialize_offsets.py"


class SparkCluster:
    """A running master; `add_worker` adds workers."""

    def __init__(self, servers: ServerProcess) -> None:
        self._servers = servers
        self._port, ui = free_ports(2)
        self.url = f"spark://{LOOPBACK}:{self._port}"
        places = ["--host", LOOPBACK, "--port", str(self._port), "--webui-port", str(ui)]
        self._start("master", "org.apache.spark.deploy.master.Master", places, "I have been elected leader")

    def add_worker(self, name: str) -> None:
        """Start a worker with one core, and wait until the master has it."""
        port, ui = free_ports(2)
        places = ["--host", LOOPBACK, "--port", str(port), "--webui-port", str(ui)]
        room = ["--cores", "1", "--memory", "1g", "--work-dir", str(self._servers.folder / name)]
        command = [*places, *room, self.url]
        self._start(name, "org.apache.spark.deploy.worker.Worker", command, "Successfully registered with master")

    def kill_worker(self, name: str) -> None:
        """SIGKILL a worker; its executor ends with it."""
        self._servers.end(name)

    def submitted(self, *options: str, python: Path | None = None) -> list[str]:
        """Return the spark-submit command of the job.

        `options` are for spark-submit; `python` is the executors' Python.
        """
        conf = {
            "spark.pyspark.driver.python": sys.executable,
            "spark.pyspark.python": str(python or sys.executable),
            "spark.executor.memory": "700m",
            "spark.driver.host": LOOPBACK,
            "spark.ui.enabled": "false",
        }
        settings = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        jars = ",".join(map(str, resolve(connectors())))
        return [str(_BIN / "spark-submit"), "--master", self.url, "--jars", jars, *settings, *options, str(JOB)]

    def _start(self, name: str, main: str, arguments: Sequence[str], ready: str) -> None:
        # Without the tests' own path: executors have only what they are given.
        command = ["env", "-u", "PYTHONPATH", f"SPARK_LOCAL_IP={LOOPBACK}", str(_BIN / "spark-class"), main, *arguments]
        self._servers.start(name, command, lambda: ready in self._servers.said(name))


@contextmanager
def spark_cluster(workers: int) -> Iterator[SparkCluster]:
    """Run a cluster while the context lasts; its workers are named worker-1 and so on."""
    with ServerProcess() as servers:
        cluster = SparkCluster(servers)
        for number in range(1, workers + 1):
            cluster.add_worker(f"worker-{number}")
        yield cluster


def python_without_the_package(folder: Path) -> Path:
    """Make a Python in the folder with all packages of this one except offsetstream."""
    site = Path(pyarrow.__file__).parents[1]  # under this name .pth files are ignored
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:{site}"\nexec {shlex.quote(str(base))} "$@"\n')
    script.chmod(0o755)
    return script
