"""The lease, in real Delta tables.

A process runs only one job, so an old lease with this process's id counts as dead. If two jobs must be alive at the
same time, the tests start processes, or set another host in the lease.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from offsetstream.errors import LeaseError, TablesError
from offsetstream.tables.lease import (
    LIFETIME,
    HeartbeatWatch,
    HolderState,
    Lease,
    LeaseRow,
    UnsureLeaseError,
    is_job_alive,
    note_history_kept_from,
    read_lease,
    request_reload,
    request_stop,
    requested_partitions,
    take_lease,
)
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import read_rows
from testkit.tables import new_tables
from testkit.waiting import at_work

TAKEN_OVER = "another job has taken over the lease"


def change(tables: PathStore, **columns: str) -> None:
    DeltaTable(tables.table(JOB_LEASE)).update(updates=columns)


def rows(tables: PathStore) -> list[dict[str, object]]:
    return read_rows(tables.open(JOB_LEASE))


def test_without_a_job_there_is_no_lease(tables: PathStore) -> None:
    assert read_lease(tables) is None


def test_tables_that_are_not_there(tmp_path: Path) -> None:
    nowhere = PathStore(str(tmp_path))
    for question in (read_lease, request_stop, Lease.acquire):
        with pytest.raises(TablesError, match=re.escape(f"there are no tables in {tmp_path}")):
            question(nowhere)


def test_the_lease_names_its_holder(tables: PathStore) -> None:
    before = datetime.now(UTC)
    lease = Lease.acquire(tables)
    assert (lease.found.checkpoint_id, lease.found.owner, lease.found.checkpoint_location) == (0, None, None)
    row = lease.read()
    assert row == read_lease(tables)
    assert (row.owner, row.host, row.pid) == (lease.owner, socket.gethostname(), os.getpid())
    assert (row.checkpoint_id, row.checkpoint_location, row.stop_requested_by) == (0, None, None)
    assert row.heartbeat_at is not None
    assert before - timedelta(seconds=1) < row.heartbeat_at <= datetime.now(UTC)
    assert rows(tables)[0]["lease_milliseconds"] == LIFETIME.total_seconds() * 1000


def test_a_heartbeat_updates_the_time(tables: PathStore) -> None:
    lease = Lease.acquire(tables)
    change(tables, heartbeat_at="now() - interval '50 seconds'")
    lease.heartbeat()
    heartbeat_at = lease.read().heartbeat_at
    assert heartbeat_at is not None
    assert datetime.now(UTC) - heartbeat_at < timedelta(seconds=40)


def test_a_live_job_is_not_disturbed(tables: PathStore) -> None:
    first = Lease.acquire(tables)
    change(tables, pid=str(os.getppid()))  # another live process of this host
    with pytest.raises(LeaseError) as raised:
        Lease.acquire(tables)
    assert not isinstance(raised.value, UnsureLeaseError)
    message = str(raised.value)
    assert f"another job (process {os.getppid()} on {socket.gethostname()}) writes to {tables.root}" in message
    assert f"last heartbeat: {datetime.now(UTC):%Y-%m-%d}" in message
    assert f"'offsetstream stop --tables {tables.root}'" in message
    assert "--force" in message
    assert "\n" not in message
    first.heartbeat()


def ended_process() -> str:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return str(process.pid)


@pytest.mark.parametrize("pid", [lambda: str(os.getpid()), lambda: "NULL", ended_process], ids=["ours", "none", "dead"])
def test_the_lease_of_a_dead_job_is_taken_over(tables: PathStore, pid: Callable[[], str]) -> None:
    first = Lease.acquire(tables)
    first.use_checkpoint(4, "checkpoints/4")
    change(tables, pid=pid())
    second = Lease.acquire(tables)
    assert (second.found.owner, second.found.checkpoint_id) == (first.owner, 4)
    assert second.found.checkpoint_location == "checkpoints/4"
    assert second.read().owner == second.owner
    assert (second.read().host, second.read().pid) == (socket.gethostname(), os.getpid())


def test_a_job_that_lost_the_lease_cannot_write(tables: PathStore) -> None:
    first, second = Lease.acquire(tables), Lease.acquire(tables)
    held = second.read()
    for attempt in (first.heartbeat, first.read, first.release, lambda: first.use_checkpoint(9, "x")):
        with pytest.raises(LeaseError, match=TAKEN_OVER):
            attempt()
    assert second.read() == held


def test_a_released_lease_is_free_at_once(tables: PathStore) -> None:
    first = Lease.acquire(tables)
    first.use_checkpoint(2, "checkpoints/2")
    change(tables, host="'elsewhere'")
    first.release()
    with pytest.raises(LeaseError, match=TAKEN_OVER):
        first.heartbeat()
    second = Lease.acquire(tables)
    assert (second.found.owner, second.found.checkpoint_id, second.found.checkpoint_location) == (
        None,
        2,
        "checkpoints/2",
    )
    assert second.read().checkpoint_id == 2


def test_a_job_is_asked_to_stop(tables: PathStore) -> None:
    lease = Lease.acquire(tables)
    request_stop(tables)
    requested_by = lease.read().stop_requested_by
    assert requested_by is not None
    assert requested_by.endswith(f"@{socket.gethostname()}")
    lease.heartbeat()
    assert lease.read().stop_requested_by == requested_by


@pytest.mark.parametrize("ends", ["by release", "by death"])
def test_a_request_to_stop_is_not_for_the_next_job(tables: PathStore, ends: str) -> None:
    first = Lease.acquire(tables)
    request_stop(tables)
    if ends == "by release":
        first.release()
    assert Lease.acquire(tables).read().stop_requested_by is None


def test_without_a_job_there_is_nobody_to_stop(tables: PathStore) -> None:
    request_stop(tables)
    Lease.acquire(tables).release()
    request_stop(tables)
    assert Lease.acquire(tables).read().stop_requested_by is None


@pytest.mark.parametrize("location", ["it's", "a\\'b", 'say "x"', "s3://bucket/ü #1", ""])
def test_any_checkpoint_location(tables: PathStore, location: str) -> None:
    lease = Lease.acquire(tables)
    lease.use_checkpoint(3, location)
    assert (lease.read().checkpoint_id, lease.read().checkpoint_location) == (3, location)


def test_concurrent_heartbeats_and_requests_are_all_written(tables: PathStore) -> None:
    lease = Lease.acquire(tables)
    requests = [threading.Thread(target=request_stop, args=(tables,)) for _ in range(2)]
    for thread in requests:
        thread.start()
    for _ in range(4):
        lease.heartbeat()
    for thread in requests:
        thread.join()
    row = lease.read()
    assert row.owner == lease.owner
    assert row.stop_requested_by is not None


RACER = """
import sys
from offsetstream.errors import LeaseError
from offsetstream.tables.lease import Lease
from offsetstream.tables.path_store import PathStore
print("ready", flush=True)
for line in sys.stdin:
    try:
        Lease.acquire(PathStore(line.strip()))
        print("won", flush=True)
    except LeaseError as error:
        print("lost:", error, flush=True)
"""


@contextmanager
def racer() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", RACER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


def test_exactly_one_of_several_racing_processes_gets_the_lease(tmp_path: Path) -> None:
    with ExitStack() as stack:
        racers = [stack.enter_context(racer()) for _ in range(3)]
        assert [answer(process) for process in racers] == ["ready"] * 3
        for attempt in range(8):
            tables = new_tables(tmp_path / str(attempt))
            if attempt % 2:
                Lease.acquire(tables).release()  # without it, this is the first lease of these tables
            for process in racers:
                assert process.stdin is not None
                print(tables.root, file=process.stdin, flush=True)
            answers = sorted(answer(process) for process in racers)
            assert [text.partition(":")[0] for text in answers] == ["lost", "lost", "won"], answers
            assert len(rows(tables)) == 1


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_requests_to_reload_add_up(tables: PathStore) -> None:
    lease = Lease.acquire(tables)
    assert lease.read().reload_requested is None
    assert request_reload(tables, [10, 2]).reload_requested == "2,10"
    request_reload(tables, [3])
    assert lease.read().reload_requested == "2,3,10"
    request_reload(tables, [])
    request_reload(tables, [4])
    assert lease.read().reload_requested == "all"


def test_a_request_outlives_the_job(tables: PathStore) -> None:
    Lease.acquire(tables).release()
    request_reload(tables, [1])
    assert Lease.acquire(tables).read().reload_requested == "1"


def test_a_reload_request_that_grew_meanwhile_is_kept(tables: PathStore) -> None:
    lease = Lease.acquire(tables)
    request_reload(tables, [1])
    request_reload(tables, [2])
    lease.finish_reload("1")
    assert lease.read().reload_requested == "1,2"
    lease.finish_reload("1,2", left={2})
    assert lease.read().reload_requested == "2"
    lease.finish_reload("2")
    assert lease.read().reload_requested is None


def test_the_latest_time_that_history_is_kept_from_counts(tables: PathStore) -> None:
    lease, later = Lease.acquire(tables), datetime(2026, 11, 21, 12, tzinfo=UTC)
    for instant in (later, datetime(2025, 1, 1, tzinfo=UTC)):
        note_history_kept_from(tables, instant)
        assert lease.read().history_kept_from == later


def test_a_reload_before_the_first_job_is_refused(tables: PathStore) -> None:
    with pytest.raises(LeaseError, match="'offsetstream run'"):
        request_reload(tables, [1])


@pytest.mark.parametrize(
    ("request_text", "meant"), [(None, []), ("all", [0, 1, 2]), ("2,0", [0, 2]), ("2,99", [2]), ("99", [])]
)
def test_partitions_of_a_reload_request(request_text: str | None, meant: list[int]) -> None:
    assert requested_partitions(request_text, range(3)) == meant


def test_a_process_in_another_container_with_the_same_host_name_may_be_alive(tables: PathStore) -> None:
    Lease.acquire(tables)
    row = read_lease(tables)
    assert row is not None
    assert HeartbeatWatch().look(lambda: row)[1] is HolderState.DEAD  # the pid is this process's own
    host, boot_id, *_ = str(row.owner).split("/")
    for elsewhere in (f"{host}/another-machine/1/{os.getpid()}/x", f"{host}/{boot_id}/another-namespace/1/x"):
        change(tables, owner=f"'{elsewhere}'")
        with pytest.raises(UnsureLeaseError, match=r"another job \(process"):
            Lease.acquire(tables)


CLOCKS = ["now() + interval '3 hours'", "now() - interval '3 hours'", "now() - interval '70 seconds'", "now()"]


@pytest.fixture
def elsewhere(tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> PathStore:
    """Tables whose lease seems to be held by a job on another host, whose clock may be wrong."""
    monkeypatch.setattr("offsetstream.tables.lease.POLL_SECONDS", 0.02)
    Lease.acquire(tables)
    change(tables, host="'elsewhere'")
    return tables


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
def test_a_live_job_of_another_host_is_not_disturbed(elsewhere: PathStore, clock: str) -> None:
    said: list[str] = []
    with beating(elsewhere, clock), pytest.raises(LeaseError, match="on elsewhere\\) writes to"):
        take_lease(elsewhere, said.append, threading.Event())
    (line,) = said
    assert "on elsewhere is alive" in line
    assert "UTC by the clock of that host" in line
    assert "60 s" in line
    assert "--force" in line
    row = read_lease(elsewhere)
    assert row is not None
    assert row.host == "elsewhere"


@pytest.mark.parametrize("clock", [*CLOCKS, "NULL"])
def test_a_dead_job_of_another_host_is_taken_over(
    elsewhere: PathStore, clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_lives(monkeypatch)
    change(elsewhere, heartbeat_at=clock)
    lease = take_lease(elsewhere, print, threading.Event())
    assert lease is not None
    assert lease.found.host == "elsewhere"
    lease.heartbeat()


@pytest.mark.parametrize("clock", CLOCKS)
def test_force_takes_it_over_at_once(elsewhere: PathStore, clock: str) -> None:
    change(elsewhere, heartbeat_at=clock)
    said: list[str] = []
    lease = take_lease(elsewhere, said.append, threading.Event(), force=True)
    assert lease is not None
    lease.heartbeat()
    assert said == []


def test_a_stop_ends_the_wait_for_the_lease(elsewhere: PathStore) -> None:
    stop = threading.Event()
    assert take_lease(elsewhere, lambda _: stop.set(), stop) is None


def test_a_lease_that_is_released_during_the_wait_is_taken(elsewhere: PathStore) -> None:
    lease = take_lease(elsewhere, lambda _: change(elsewhere, owner="NULL"), threading.Event())
    assert lease is not None


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_beating_job_is_alive_and_a_silent_one_dead(
    elsewhere: PathStore, clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = HeartbeatWatch()
    with beating(elsewhere, clock):
        assert is_job_alive(elsewhere, print, watch)
    short_lives(monkeypatch)
    while is_job_alive(elsewhere, print, watch):
        pass
    assert not is_job_alive(elsewhere, print)
    with beating(elsewhere, clock):
        while not is_job_alive(elsewhere, print, watch):  # a job that seemed dead may only have been suspended
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
def test_a_process_of_this_host_is_judged_at_the_first_look(
    elsewhere: PathStore, clock: str, life: HolderState
) -> None:
    change(elsewhere, host=f"'{socket.gethostname()}'", pid=str(os.getppid()), heartbeat_at=clock)
    assert HeartbeatWatch().look(lambda: read_lease(elsewhere))[1] is life


def test_no_job_is_not_alive(elsewhere: PathStore) -> None:
    Lease.acquire(elsewhere, force=True).release()
    assert not is_job_alive(elsewhere, print)


def test_a_suspended_watcher_does_not_declare_a_job_dead(elsewhere: PathStore) -> None:
    """The machine is suspended for an hour after it read the row, so the row is an hour old."""
    watch, hour = HeartbeatWatch(), 3600.0
    clock = iter([0.0, hour, hour + 1, 3 * hour, 3 * hour + 2])
    row = read_lease(elsewhere)

    def paused() -> LeaseRow | None:
        next(clock)
        return row

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("offsetstream.tables.lease.time.monotonic", lambda: next(clock))
        assert watch.look(lambda: row)[1] is HolderState.UNSURE  # seen at an hour
        assert watch.look(paused)[1] is HolderState.UNSURE  # an hour and a second later; three hours passed
        assert watch.look(lambda: row)[1] is HolderState.DEAD
