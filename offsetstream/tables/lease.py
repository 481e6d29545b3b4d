"""The lease: only one job at a time writes to a set of tables (rule 8).

The lease is the single row of the table `job_lease`. The driver writes it, so a heartbeat takes milliseconds and does
not wait for a Spark job. If two updates compete, one wins and the other fails.
"""

from __future__ import annotations

import getpass
import os
import socket
import threading
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa

from offsetstream.errors import ConflictError, LeaseError, NoTableError, TablesError
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.lease_holder import LIFETIME, HeartbeatWatch, HolderState, LeaseRow, here
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.small_tables import CachedRows, Row, read_rows, update_rows
from offsetstream.tables.store import Snapshot, Store, Transaction
from offsetstream.tables.transaction import last_checkpoint_id
from offsetstream.tables.version import require_version

ROW = "offsets"
_NEVER = datetime.min.replace(tzinfo=UTC)
ALL_PARTITIONS = "all"  # in a reload request
_TAKEN_OVER = "another job has taken over the lease of these tables: this one stops"
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
            raise LeaseError(_TAKEN_OVER)
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
            raise LeaseError(_TAKEN_OVER)


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
