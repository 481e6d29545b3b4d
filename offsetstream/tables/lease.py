"""The lease: only one job at a time writes to a set of tables (rule 8).

The lease is the single row of the table `job_lease`. The driver writes it, so a heartbeat takes milliseconds and does
not wait for a Spark job. If two updates compete, one wins and the other fails.
"""

from __future__ import annotations

import enum
import getpass
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from offsetstream.errors import ConflictError, LeaseError, NoTableError, TablesError
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.small_tables import CachedRows, Row, read_rows, update_rows
from offsetstream.tables.store import Snapshot, Store, Transaction, require_version
from offsetstream.tables.transaction import TAKEN_OVER, again_on_conflict, last_checkpoint_id

LIFETIME = timedelta(seconds=60)  # six heartbeats
POLL_SECONDS = 1.0
ROW = "offsets"
_NEVER = datetime.min.replace(tzinfo=UTC)
ALL_PARTITIONS = "all"  # in a reload request
_JUST_TAKEN = "another job has just taken the lease of these tables: only one may write to them"


class UnsureLeaseError(LeaseError):
    """It is not known yet whether the job that holds the lease (`row`) is alive."""

    def __init__(self, message: str, row: LeaseRow) -> None:
        super().__init__(message)
        self.row = row


class Lease:
    """The lease of one job on a set of tables. `acquire` takes it, `heartbeat` keeps it."""

    def __init__(self, table: Snapshot, owner: str, found: LeaseRow, check_seconds: float) -> None:
        self._rows = CachedRows(table)
        self._lock = threading.Lock()  # the heartbeat thread and the job's thread share the table
        self.owner = owner
        self.found = found  # the lease before this job took it: it shows how the previous job ended
        self.seen = found  # the lease at its last read
        self.check_seconds = check_seconds  # the store's

    @classmethod
    def acquire(cls, tables: Store, watch: HeartbeatWatch | None = None, *, force: bool = False) -> Lease:
        """Take the lease if `watch` shows that its holder is dead; with `force`, take it in any case.

        Raises LeaseError if the holder is alive, or if another job takes the lease at the same time. Raises
        UnsureLeaseError if it is not known yet whether the holder is alive.
        """
        table = _open(tables)
        if _read(table) is None:
            _insert_row(table)
            table = _open(tables)
        row, life = (watch or HeartbeatWatch()).look(partial(_read_again, table))
        assert row is not None  # noqa: S101 - written above
        if life is not HolderState.DEAD and not force:
            message = (
                f"another job ({row.holder}) writes to {tables.name}; its last heartbeat: {row.last_heartbeat}. "
                f"Stop it with 'offsetstream stop --tables {tables.name}'. If it has died, wait {LIFETIME.seconds} s, "
                "or start this job with --force"
            )
            raise LeaseError(message) if life is HolderState.ALIVE else UnsureLeaseError(message, row)
        lease = cls(table, f"{here()}{os.getpid()}/{uuid.uuid4()}", row, tables.check_seconds)
        lease._claim(row.owner)
        return lease

    def _claim(self, before: str | None) -> None:
        claim = {
            "owner": self.owner,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "heartbeat_at": datetime.now(UTC),
            "lease_milliseconds": int(LIFETIME.total_seconds() * 1000),
            "stop_requested_by": None,
        }
        try:
            updated = self._rows.update(lambda row: claim if row["owner"] == before else None)
        except ConflictError as error:
            raise LeaseError(_JUST_TAKEN) from error
        if not updated:
            raise LeaseError(_JUST_TAKEN)

    def next_checkpoint_id(self, tables: Store, names: Iterable[str] | None = None) -> int:
        """Return a checkpoint id above those of all jobs so far, by the lease and the tables (or `names`)."""
        return max(self.found.checkpoint_id, last_checkpoint_id(tables, names)) + 1

    def use_checkpoint(self, checkpoint_id: int, location: str | None) -> None:
        """Write this job's checkpoint into the lease; no location: the next job continues none."""
        self._update(lambda _: {"checkpoint_id": checkpoint_id, "checkpoint_location": location})

    def heartbeat(self) -> LeaseRow:
        """Write a heartbeat and return the current lease; LeaseError if another job has taken it."""
        self._update(lambda _: {"heartbeat_at": datetime.now(UTC)})
        with self._lock:
            return self._checked_row()

    def read(self) -> LeaseRow:
        """Return the current lease; LeaseError if another job has taken it."""
        with self._lock:
            self._rows.table.refresh()
            return self._checked_row()

    def _checked_row(self) -> LeaseRow:
        row = _row_of(self._rows.rows)
        if row is None or row.owner != self.owner:
            raise LeaseError(TAKEN_OVER)
        self.seen = row
        return row

    def finish_reload(self, request: str, left: Collection[int] = ()) -> None:
        """Clear the reload request, except for the partitions `left`; do nothing if the request has grown since."""
        remaining = ",".join(map(str, sorted(left))) or None
        self._update(lambda row: {"reload_requested": remaining} if row["reload_requested"] == request else {})

    def release(self) -> None:
        """Release the lease, so that the next job can start at once."""
        self._update(lambda _: {"owner": None, "heartbeat_at": datetime.now(UTC), "stop_requested_by": None})

    @again_on_conflict
    def _update(self, change: Callable[[Row], Row]) -> None:
        """Change the row as last read; the commit fails if the row has changed since."""
        with self._lock:
            try:
                updated = self._rows.update(lambda row: change(row) if row["owner"] == self.owner else None)
            except ConflictError:
                self._rows.table.refresh()
                raise
        if not updated:
            raise LeaseError(TAKEN_OVER)


def read_lease(tables: Store) -> LeaseRow | None:
    """Return the lease of the tables; None if no job ever ran. TablesError if there are no tables."""
    return _read(_open(tables))


def lease_reader(tables: Store) -> Callable[[], LeaseRow | None]:
    """Return a function that reads the current lease; repeated calls are cheaper than `read_lease`."""
    cached = CachedRows(_open(tables))

    def read() -> LeaseRow | None:
        cached.table.refresh()
        return _row_of(cached.rows)

    return read


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # for example a container whose user has only a number
        return str(os.getuid())


@again_on_conflict
def request_stop(tables: Store) -> None:
    """Ask the job that holds the lease to stop after its current batch."""
    requester = f"{_user()}@{socket.gethostname()}"
    update_rows(_open(tables), lambda row: {"stop_requested_by": requester} if row["owner"] is not None else None)


@again_on_conflict
def request_reload(tables: Store, partitions: Collection[int]) -> LeaseRow:
    """Ask the current or the next job to load offsets partitions again: `partitions`, or all if it is empty.

    An earlier request that is not done yet stays. Returns the lease with the request; LeaseError if no job ever ran.
    """
    table = _open(tables)
    row = _read(table)
    if row is None:
        raise LeaseError(f"no job has written to {tables.name} yet: start one with 'offsetstream run'; it loads all")
    if partitions and row.reload_requested != ALL_PARTITIONS:
        before = set(row.reload_requested.split(",")) if row.reload_requested else set()
        request = ",".join(sorted(before | {str(number) for number in partitions}, key=int))
    else:
        request = ALL_PARTITIONS
    update_rows(table, lambda _: {"reload_requested": request})
    return replace(row, reload_requested=request)


@again_on_conflict
def note_history_kept_from(tables: Store, instant: datetime) -> None:
    """Note in the lease that retention may have removed history rows from before `instant`."""

    def change(row: Row) -> Row | None:
        before = row["history_kept_from"]
        return {"history_kept_from": instant} if before is None or before < instant else None

    update_rows(_open(tables), change)


def requested_partitions(request: str | None, existing: Collection[int]) -> list[int]:
    """Return the existing partitions that a reload request names."""
    if request == ALL_PARTITIONS:
        return sorted(existing)
    requested = {int(number) for number in request.split(",")} if request else set()
    return sorted(requested & set(existing))


def _open(tables: Store) -> Snapshot:
    try:
        table = tables.open(JOB_LEASE)
    except NoTableError as error:
        raise TablesError(f"there are no tables in {tables.name}: create them with 'offsetstream run'") from error
    require_version(table)
    return table


def _read_again(table: Snapshot) -> LeaseRow | None:
    table.refresh()
    return _read(table)


def _insert_row(table: Snapshot) -> None:
    row = pa.table({"lease": [ROW], "checkpoint_id": pa.array([0], pa.int32())})
    # Two appends do not conflict by themselves, but with the same transaction they do: so there is only one lease.
    try:
        table.append([row], Transaction(JOB_LEASE, 1))
    except ConflictError as error:
        raise LeaseError(_JUST_TAKEN) from error


def _read(table: Snapshot) -> LeaseRow | None:
    return _row_of(read_rows(table))


def _row_of(stored: list[dict[str, Any]]) -> LeaseRow | None:
    rows = sorted(stored, key=lambda row: row["heartbeat_at"] or _NEVER)
    if not rows:
        return None
    return LeaseRow(**{name: rows[-1][name] for name in LeaseRow.__dataclass_fields__})


def take_lease(
    tables: Store, say: Callable[[str], None], stop: threading.Event, *, force: bool = False
) -> Lease | None:
    """Take the lease, and first watch a holder that may be alive; None if `stop` is set meanwhile.

    Raises LeaseError if the holder is alive (its heartbeat changes). Calls `say` with a message if it has to watch.
    """
    watch, is_reported = HeartbeatWatch(), False
    while not stop.is_set():
        try:
            return Lease.acquire(tables, watch, force=force)
        except UnsureLeaseError as unsure:
            if not is_reported:
                say(_watching(unsure.row, "this job takes over", ". Use --force to take over at once"))
            is_reported = True
            stop.wait(POLL_SECONDS)
    return None


def is_job_alive(tables: Store, say: Callable[[str], None], watch: HeartbeatWatch | None = None) -> bool:
    """Return whether a job holds the lease and is alive.

    For a job on another host this takes ten seconds (24 in an object store), and a minute if it has died; `say` gets a
    message about that. Pass the same `watch` again to reuse what it has seen. TablesError if there are no tables.
    """
    watch, is_reported, read = watch or HeartbeatWatch(), False, lease_reader(tables)
    while True:
        row, life = watch.look(read)
        if row is None or life is not HolderState.UNSURE:
            return life is HolderState.ALIVE
        if not is_reported:
            say(_watching(row, "it counts as dead", ""))
        is_reported = True
        time.sleep(POLL_SECONDS)


def _watching(row: LeaseRow, outcome: str, hint: str) -> str:
    return (
        f"Checking whether {row.holder} is alive (last heartbeat: {row.last_heartbeat}): if there is no new heartbeat "
        f"for {LIFETIME.seconds} s, {outcome}{hint}"
    )


@dataclass(frozen=True)
class LeaseRow:
    """The current lease: its holder, the holder's checkpoint, and the requests to the holder."""

    checkpoint_id: int
    checkpoint_location: str | None
    owner: str | None
    host: str | None
    pid: int | None
    heartbeat_at: datetime | None  # clock of the holder's host
    stop_requested_by: str | None
    reload_requested: str | None
    history_kept_from: datetime | None

    @property
    def holder(self) -> str:
        """The holder's process and host, for a message."""
        return f"process {self.pid} on {self.host}"

    @property
    def last_heartbeat(self) -> str:
        """The last heartbeat, for a message."""
        if self.heartbeat_at is None:
            return "none"
        return f"{self.heartbeat_at:%Y-%m-%d %H:%M:%S} UTC by the clock of that host"


class HolderState(enum.Enum):
    """Whether the job that holds a lease is alive, as far as known."""

    DEAD = "dead"  # or nobody holds the lease
    ALIVE = "alive"
    UNSURE = "unsure"


class HeartbeatWatch:
    """Finds out whether the holder of a lease is alive; it may need several looks.

    On this host it is known at once: the process has died, or its last heartbeat is recent by this host's clock. The
    clock of another host may be hours off. A holder there is alive once its heartbeat has changed between two looks.
    It is dead once its heartbeat has not changed for `LIFETIME`, by this process's monotonic clock.
    """

    def __init__(self) -> None:
        self._sign: tuple[str | None, datetime | None] | None = None
        self._since = 0.0
        self._has_changed = False

    def look(self, read: Callable[[], LeaseRow | None]) -> tuple[LeaseRow | None, HolderState]:
        """Read the lease; return it, and whether its holder is alive."""
        started = time.monotonic()  # taken before the read, because this process may be suspended at any line
        row = read()
        if row is None or row.owner is None:
            return row, HolderState.DEAD
        if (known := _known_here(row)) is not None:
            return row, known
        sign = (row.owner, row.heartbeat_at)
        if sign != self._sign:
            self._has_changed = self._sign is not None
            self._sign, self._since = sign, time.monotonic()
        elif started - self._since >= LIFETIME.total_seconds():
            return row, HolderState.DEAD
        return row, HolderState.ALIVE if self._has_changed else HolderState.UNSURE


def here() -> str:
    """Return a prefix that identifies this host and its process namespace.

    Containers may share a host name, but each has its own process ids.
    """
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()}/{boot_id}/{Path('/proc/self/ns/pid').stat().st_ino}/"
    except OSError:  # not on Linux
        return f"{socket.gethostname()}/"


def is_known_dead(process: str | None) -> bool:
    """Return whether the process, named by `here()` and its id, ran on this host and has died."""
    number = process.removeprefix(here()) if process and process.startswith(here()) else ""
    return number.isdigit() and int(number) != os.getpid() and not _is_another_live_process(int(number))


def _known_here(row: LeaseRow) -> HolderState | None:
    """Return whether the holder is alive if it ran on this host and this host knows; else None."""
    if row.owner is None or row.host != socket.gethostname() or not row.owner.startswith(here()):
        return None
    if not _is_another_live_process(row.pid):
        return HolderState.DEAD
    # A suspended process, or another process that now has its id, writes no heartbeat.
    age = None if row.heartbeat_at is None else datetime.now(UTC) - row.heartbeat_at
    return HolderState.ALIVE if age is not None and timedelta(0) <= age < LIFETIME else None


def _is_another_live_process(pid: int | None) -> bool:
    if pid is None or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
