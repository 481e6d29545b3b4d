"""`offsetstream views serve` as a process, and two clients: PySpark's beeline, and PyHive."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyhive import hive

from offsetstream.embedded.java import java_executable
from offsetstream.embedded.ports import LOOPBACK, free_ports
from testkit.processes import OFFSETSTREAM, ServerProcess

DATABASE = "kafka"
_HOME = Path(pyspark.__file__).parent
_PROMPT = re.compile(r"^\d+: jdbc:hive2://\S*> ", re.MULTILINE)  # printed even by a silent beeline


@contextmanager
def thrift_server(tables: Path) -> Iterator[int]:
    """Serve the tables while the context lasts. Yields the port."""
    (port,) = free_ports(1)
    command = [*OFFSETSTREAM, "views", "serve", "--tables", str(tables), "--port", str(port), "--master", "local[2]"]
    with ServerProcess() as servers:
        servers.start(
            "server", [*command, "--conf", "spark.driver.memory=1g"], lambda: "Serving" in servers.said("server")
        )
        yield port
        servers.end("server", 30.0)


def by_pyhive(port: int, *queries: str) -> list[list[tuple[Any, ...]]]:
    """Return the rows of each query, all in one session."""
    with closing(hive.connect(LOOPBACK, port, database=DATABASE)) as connection:
        found = []
        for query in queries:
            with closing(connection.cursor()) as cursor:
                cursor.execute(query)
                found.append(cursor.fetchall())
        return found


def by_beeline(port: int, *what: str) -> list[list[str]]:
    """Return the rows of a query (-e) or of a file of queries (-f) as texts."""
    url = ["-u", f"jdbc:hive2://{LOOPBACK}:{port}/{DATABASE}"]
    form = ["--silent=true", "--showHeader=false", "--outputformat=tsv2"]  # its csv2 format quotes with a NUL
    environment = os.environ | {"SPARK_HOME": str(_HOME), "JAVA_HOME": str(java_executable().resolve().parents[1])}
    done = subprocess.run(
        [str(_HOME / "bin" / "beeline"), *url, *form, *what],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [
        row
        for row in csv.reader(io.StringIO(_PROMPT.sub("", done.stdout)), delimiter="\t", quoting=csv.QUOTE_NONE)
        if row
    ]
