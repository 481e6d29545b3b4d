import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from offsetstream.tables.lease import Lease, read_lease
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.path_store import PathStore
from testkit.tables import append_rows
from tests.unit.cli.conftest import Run

LONG = 30.0  # seconds after which something is broken


@pytest.fixture
def tables(tables: PathStore) -> PathStore:
    append_rows(Path(tables.root), "offsets_partitions", [{"offsets_partition": number} for number in range(3)])
    return tables


@pytest.fixture
def lease(tables: PathStore) -> Iterator[Lease]:
    """The lease of a job that runs elsewhere, as far as anybody here can see."""
    lease = Lease.acquire(tables)
    DeltaTable(tables.table(JOB_LEASE)).update(updates={"host": "'elsewhere'"})
    yield lease
    assert os.getpid() == lease.read().pid


def requested(tables: PathStore) -> str | None:
    row = read_lease(tables)
    assert row is not None
    return row.reload_requested


def test_without_a_job_the_next_one_reloads(run: Run, tables: PathStore) -> None:
    Lease.acquire(tables).release()
    result = run("reload", "--offsets-partition", "2", "--offsets-partition", "0", tables=Path(tables.root))
    assert (result.exit_code, requested(tables)) == (0, "0,2")
    assert result.stderr == (
        f"No job writes to {tables.root}: the next one reloads 2 offsets partitions when it starts\n"
    )


def test_reload_waits_until_the_job_has_reloaded(run: Run, tables: PathStore, lease: Lease) -> None:
    def work() -> None:
        while (request := lease.read().reload_requested) is None:
            started.wait(0.01)
        lease.finish_reload(request)

    started = threading.Event()
    job = threading.Thread(target=work)
    job.start()
    result = run("reload", tables=Path(tables.root))
    job.join(LONG)
    assert (result.exit_code, requested(tables)) == (0, None)
    said = result.stderr.splitlines()
    assert "on elsewhere to reload 3 offsets partitions after its current batch; last sign of life 20" in said[0]
    assert said[1] == "Reloaded"


def test_reload_fails_after_its_timeout(run: Run, tables: PathStore, lease: Lease) -> None:
    result = run("reload", "--timeout", "0", tables=Path(tables.root))
    assert result.exit_code == 1
    assert "the reload did not finish within 0 s" in result.stderr
    assert lease.read().reload_requested == "all"


def test_a_dead_job_of_another_host(run: Run, tables: PathStore, lease: Lease, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offsetstream.tables.lease.LIFETIME", timedelta(seconds=0.1))
    result = run("reload", tables=Path(tables.root))
    assert result.exit_code == 1
    assert "the job ended before it reloaded all; the next one reloads when it starts" in result.stderr
    assert lease.read().reload_requested == "all"


def test_missing_partition_is_refused(run: Run, tables: PathStore) -> None:
    Lease.acquire(tables).release()
    result = run("reload", "--offsets-partition", "3", tables=Path(tables.root))
    assert (result.exit_code, requested(tables)) == (1, None)
    assert "no offsets partition 3" in result.stderr


def test_before_any_job(run: Run, tables: PathStore) -> None:
    result = run("reload", tables=Path(tables.root))
    assert result.exit_code == 1
    assert "start one with 'offsetstream run'" in result.stderr
