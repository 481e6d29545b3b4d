"""A real HDFS with one name node and one data node on the loopback address, from Hadoop's Maven artifacts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from offsetstream.embedded.artifacts import classpath, resolve
from offsetstream.embedded.java import java_executable
from offsetstream.embedded.ports import LOOPBACK, free_ports
from testkit.processes import ServerProcess

HADOOP = "org.apache.hadoop:hadoop-minicluster:3.4.1"  # all its servers, in the version that PySpark 4.0 brings
_SERVERS = "org.apache.hadoop.hdfs.server"


@contextmanager
def hdfs_cluster() -> Iterator[str]:
    """Run the file system while the context lasts. Yields its URI."""
    with ServerProcess() as servers:
        name, web, *data = (f"{LOOPBACK}:{port}" for port in free_ports(5))
        settings = {
            "fs.defaultFS": f"hdfs://{name}",
            "dfs.namenode.http-address": web,
            "dfs.namenode.name.dir": str(servers.folder / "names"),
            "dfs.datanode.data.dir": str(servers.folder / "data"),
            "dfs.replication": "1",
            "dfs.permissions.enabled": "false",
            **{f"dfs.datanode.{part}address": at for part, at in zip(("", "ipc.", "http."), data, strict=True)},
        }
        for pages in ("hdfs", "datanode"):  # for their web servers; the artifacts have none
            (servers.folder / "webapps" / pages).mkdir(parents=True)
        name_node = _java(f"{_SERVERS}.namenode.NameNode", settings, servers.folder)
        done = subprocess.run([*name_node, "-format", "-nonInteractive"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        servers.start("name-node", name_node, lambda: _nodes(web) == 0)
        data_node = _java(f"{_SERVERS}.datanode.DataNode", settings, servers.folder)
        servers.start("data-node", data_node, lambda: _nodes(web) == 1)
        yield f"hdfs://{name}"


def _java(main: str, settings: Mapping[str, str], folder: Path) -> list[str]:
    options = [part for name, value in settings.items() for part in ("-D", f"{name}={value}")]
    return [str(java_executable()), "-Xmx256m", "-cp", classpath([folder, *resolve([HADOOP])]), main, *options]


def _nodes(web: str) -> int | None:
    """The number of data nodes that the name node knows; None while it does not answer."""
    try:
        with urlopen(f"http://{web}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState", timeout=5) as answer:
            (state,) = json.load(answer)["beans"]
            return int(state["NumLiveDataNodes"])
    except (URLError, OSError, ValueError):
        return None
