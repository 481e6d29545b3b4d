"""A job in its own process, with every way of Spark to show settings turned on, watched from outside."""

import json
import os
import shutil
import stat
import subprocess
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from offsetstream.cluster.rights import COMMANDS, READ_ALL_TOPICS, READ_OFFSETS, TOPIC_NAMES
from offsetstream.embedded.ports import free_ports
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from testkit.processes import OFFSETSTREAM, descendants
from testkit.waiting import SECONDS, await_
from tests.kafka.security.broker import PACKAGE, STORAGE_SECRET, Secured, write_properties

_PAGES = ("environment/", "SQL/", "StreamingQuery/", "jobs/", "executors/")


@dataclass
class WatchedJob:
    """A job's folder (tables, checkpoints, event log, output), and what its processes showed."""

    folder: Path
    returncode: int = 0
    processes: dict[int, bytes] = field(default_factory=dict)  # arguments and environment, by process id
    pages: list[bytes] = field(default_factory=list)

    @property
    def tables(self) -> Path:
        return self.folder / "tables"

    @property
    def said(self) -> str:
        return (self.folder / "stderr").read_text()

    def count(self, group_id: str) -> int:
        """Count the group's committed offsets in the tables."""
        return len(Lookup(PathStore(str(self.tables))).rows("committed_offsets", ["topic"], {"group_id": [group_id]}))


def watched_job(secured: Secured, folder: Path) -> WatchedJob:
    """Run the job as carol until it has written; then revoke her READ right and wait until the job ends."""
    job = WatchedJob(folder)
    # Rights on all topics would still let her read a part of this one.
    others = [right for right in COMMANDS["run"] if right not in (READ_OFFSETS, TOPIC_NAMES, READ_ALL_TOPICS)]
    process, ui = None, 0
    with secured.granted("carol", others):
        try:
            with secured.granted("carol", [READ_OFFSETS]):
                process, ui = _start(secured, job)
                _await(process, job, lambda: "Starting checkpoint" in job.said)
                secured.commit("ledger", "orders")
                _await(process, job, lambda: job.count("ledger") == 1)
                job.processes = {pid: _shown(pid) for pid in [process.pid, *descendants(process.pid)]}
                job.pages = _pages(f"http://127.0.0.1:{ui}")
            job.returncode = process.wait(SECONDS)
        finally:
            if process is not None:
                process.kill()
                process.wait()
    return job


def recording_java(folder: Path) -> dict[str, str]:
    """Return an environment in which every JVM (and keytool) appends its command line to `called`."""
    home, java = folder / "java-home", shutil.which("java")
    assert java is not None
    (home / "bin").mkdir(parents=True)
    for name in ("java", "keytool"):
        real = Path(java).resolve().with_name(name)
        script = home / "bin" / name
        script.write_text(f'#!/bin/sh\n{{ echo "{name} $*"; env; }} >> "{folder}/called"\nexec "{real}" "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"JAVA_HOME": str(home)}


def _start(secured: Secured, job: WatchedJob) -> "tuple[subprocess.Popen[bytes], int]":
    user = 'username="carol" password="carol-secret"'
    config = write_properties(
        secured.folder / "carol.properties",
        secured.properties("mtls-jks")
        | {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f"{PACKAGE}.plain.PlainLoginModule required {user};",
        },
    )
    (ui,) = free_ports(1)
    (job.folder / "events").mkdir()
    shown = {
        "spark.ui.enabled": "true",
        "spark.ui.port": ui,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (job.folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
    }
    command = [*OFFSETSTREAM, "run", "--bootstrap-server", secured.servers["plain"]]
    command += ["--command-config", str(config), "--tables", str(job.tables), "--trigger", "1 second"]
    command += ["--checkpoint", str(job.folder / "checkpoints")]
    command += [word for name, value in shown.items() for word in ("--conf", f"{name}={value}")]
    defaults = secured.folder / "spark"
    defaults.mkdir()
    (defaults / "spark-defaults.conf").write_text(f"spark.hadoop.fs.s3a.secret.key {STORAGE_SECRET}\n")
    environment = os.environ | recording_java(job.folder) | {"SPARK_CONF_DIR": str(defaults)}
    with (job.folder / "stdout").open("wb") as out, (job.folder / "stderr").open("wb") as err:
        return subprocess.Popen(command, stdout=out, stderr=err, env=environment), ui


def _await(process: "subprocess.Popen[bytes]", job: WatchedJob, is_so: Callable[[], bool]) -> None:
    def holds() -> bool:
        assert process.poll() is None, job.said
        return is_so()

    await_(holds, lambda: job.said)


def _shown(pid: int) -> bytes:
    with suppress(OSError):  # it ended meanwhile
        return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
    return b""


def _pages(ui: str) -> list[bytes]:
    applications = f"{ui}/api/v1/applications"
    (application,) = json.loads(_page(applications))
    plans = f"{applications}/{application['id']}/sql?details=true&planDescription=true&length=1000"
    return [_page(plans), *(_page(f"{ui}/{path}") for path in _PAGES)]


def _page(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=SECONDS) as answer:  # noqa: S310 - the job's own, by http
        page: bytes = answer.read()
        return page
