import getpass
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from offsetstream.tables.lease import Lease, read_lease
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.path_store import PathStore
from tests.unit.cli.conftest import Run


@pytest.fixture
def job() -> Iterator["subprocess.Popen[bytes]"]:
    """A process in the place of a job's."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.fixture
def tables(tables: PathStore, job: "subprocess.Popen[bytes]") -> PathStore:
    """Tables whose lease is held by that process."""
    Lease.acquire(tables)
    DeltaTable(tables.table(JOB_LEASE)).update(updates={"pid": str(job.pid)})
    return tables


def stop_requested_by(tables: PathStore) -> str | None:
    row = read_lease(tables)
    assert row is not None
    return row.stop_requested_by


def test_a_job_that_dies_meanwhile_is_not_waited_for(
    run: Run, tables: PathStore, job: "subprocess.Popen[bytes]"
) -> None:
    def kill_when_asked() -> None:
        while stop_requested_by(tables) is None:
            pass
        job.kill()
        job.wait()

    killer = threading.Thread(target=kill_when_asked)
    killer.start()
    result = run("stop", tables=Path(tables.root))
    killer.join()
    assert result.exit_code == 1
    assert "Error: the job died before it stopped, as after a kill" in result.stderr


def test_a_dead_job_of_another_host(run: Run, tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offsetstream.tables.lease.LIFETIME", timedelta(seconds=0.1))
    DeltaTable(tables.table(JOB_LEASE)).update(
        updates={"host": "'elsewhere'", "heartbeat_at": "now() + interval '3 hours'"}
    )
    result = run("stop", tables=Path(tables.root))
    assert result.exit_code == 1
    assert "on elsewhere to stop after its current batch; last sign of life 20" in result.stderr
    assert "Error: the job died before it stopped, as after a kill" in result.stderr


def test_a_user_without_a_name_may_stop_it(run: Run, tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", nameless)
    result = run("stop", "--timeout", "0", tables=Path(tables.root))
    assert "the job did not stop within 0 s" in result.stderr
    assert stop_requested_by(tables) == f"{os.getuid()}@{socket.gethostname()}"
