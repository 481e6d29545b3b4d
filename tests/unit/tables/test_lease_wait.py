"""Changes of the heartbeat show whether the holder of a lease is alive, whatever its host's clock says."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from deltalake import DeltaTable

from offsetstream.errors import LeaseError
from offsetstream.tables.lease import HeartbeatWatch, HolderState, Lease, LeaseRow, is_job_alive, read_lease, take_lease
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.path_store import PathStore
from testkit.waiting import at_work

CLOCKS = ["now() + interval '3 hours'", "now() - interval '3 hours'", "now() - interval '70 seconds'", "now()"]


@pytest.fixture
def tables(tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> PathStore:
    """Tables whose lease seems to be held by a job on another host."""
    monkeypatch.setattr("offsetstream.tables.lease.POLL_SECONDS", 0.02)
    Lease.acquire(tables)
    change(tables, host="'elsewhere'")
    return tables


def change(tables: PathStore, **columns: str) -> None:
    DeltaTable(tables.table(JOB_LEASE)).update(updates=columns)


@contextmanager
def beating(tables: PathStore, clock: str) -> Iterator[None]:
    """Write heartbeats like a job on another host with its own clock, while the context runs."""

    def beat(ended: threading.Event) -> None:
        number = 0
        while not ended.wait(0.1):
            number += 1
            change(tables, heartbeat_at=f"{clock} + interval '{number} milliseconds'")

    change(tables, heartbeat_at=clock)
    with at_work(beat):
        yield


def short_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offsetstream.tables.lease.LIFETIME", timedelta(seconds=0.5))


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_live_job_of_another_host_is_not_disturbed(tables: PathStore, clock: str) -> None:
    said: list[str] = []
    with beating(tables, clock), pytest.raises(LeaseError, match="on elsewhere\\) writes to"):
        take_lease(tables, said.append, threading.Event())
    (line,) = said
    assert "on elsewhere is alive" in line
    assert "UTC by the clock of that host" in line
    assert "60 s" in line
    assert "--force" in line
    row = read_lease(tables)
    assert row is not None
    assert row.host == "elsewhere"


@pytest.mark.parametrize("clock", [*CLOCKS, "NULL"])
def test_a_dead_job_of_another_host_is_taken_over(
    tables: PathStore, clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_lives(monkeypatch)
    change(tables, heartbeat_at=clock)
    lease = take_lease(tables, print, threading.Event())
    assert lease is not None
    assert lease.found.host == "elsewhere"
    lease.heartbeat()


@pytest.mark.parametrize("clock", CLOCKS)
def test_force_takes_it_over_at_once(tables: PathStore, clock: str) -> None:
    change(tables, heartbeat_at=clock)
    said: list[str] = []
    lease = take_lease(tables, said.append, threading.Event(), force=True)
    assert lease is not None
    lease.heartbeat()
    assert said == []


def test_a_stop_ends_the_wait_for_the_lease(tables: PathStore) -> None:
    stop = threading.Event()
    assert take_lease(tables, lambda _: stop.set(), stop) is None


def test_a_lease_that_is_released_during_the_wait_is_taken(tables: PathStore) -> None:
    lease = take_lease(tables, lambda _: change(tables, owner="NULL"), threading.Event())
    assert lease is not None


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_beating_job_is_alive_and_a_silent_one_dead(
    tables: PathStore, clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = HeartbeatWatch()
    with beating(tables, clock):
        assert is_job_alive(tables, print, watch)
    short_lives(monkeypatch)
    while is_job_alive(tables, print, watch):
        pass
    assert not is_job_alive(tables, print)
    with beating(tables, clock):
        while not is_job_alive(tables, print, watch):  # a job that seemed dead may only have been suspended
            pass


@pytest.mark.parametrize(
    ("clock", "life"),
    [
        ("now()", HolderState.ALIVE),
        ("now() - interval '70 seconds'", HolderState.UNSURE),
        ("now() + interval '3 hours'", HolderState.UNSURE),  # the clock was set back: its age is unknown
        ("NULL", HolderState.UNSURE),
    ],
)
def test_a_process_of_this_host_is_judged_at_the_first_look(tables: PathStore, clock: str, life: HolderState) -> None:
    change(tables, host=f"'{socket.gethostname()}'", pid=str(os.getppid()), heartbeat_at=clock)
    assert HeartbeatWatch().look(lambda: read_lease(tables))[1] is life


def test_no_job_is_not_alive(tables: PathStore) -> None:
    Lease.acquire(tables, force=True).release()
    assert not is_job_alive(tables, print)


def test_a_suspended_watcher_does_not_declare_a_job_dead(tables: PathStore) -> None:
    """The machine is suspended for an hour after it read the row, so the row is an hour old."""
    watch, hour = HeartbeatWatch(), 3600.0
    clock = iter([0.0, hour, hour + 1, 3 * hour, 3 * hour + 2])
    row = read_lease(tables)

    def paused() -> LeaseRow | None:
        next(clock)
        return row

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("offsetstream.tables.lease.time.monotonic", lambda: next(clock))
        assert watch.look(lambda: row)[1] is HolderState.UNSURE  # seen at an hour
        assert watch.look(paused)[1] is HolderState.UNSURE  # an hour and a second later; three hours passed
        assert watch.look(lambda: row)[1] is HolderState.DEAD
