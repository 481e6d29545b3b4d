"""The lease: one job at a time writes to a set of tables (rule 8).

The lease is the one row of the table `job_lease`. It is written by the driver, so that a heartbeat costs milliseconds
and waits for no Spark job. Of two competing updates one wins; the other sees that it has lost.
"""

from __future__ import annotations

import getpass
import os
import socket
import threading
import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa

from offsetstream.errors import ConflictError, LeaseError, NoTableError, TablesError
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.lease_holder import LIFETIME, HeartbeatWatch, LeaseRow, Life, here
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.small_tables import HeldRows, Row, read_rows, update_rows
from offsetstream.tables.store import Snapshot, Store, Transaction
from offsetstream.tables.version import refuse_newer

ROW = "offsets"
_NEVER = datetime.min.replace(tzinfo=UTC)
ALL_PARTITIONS = "all"  # of a request for a reload
_TAKEN_OVER = "another job has taken over the lease of these tables: this one stops"
_JUST_TAKEN = "another job has just taken the lease of these tables: only one may write to them"


class UnsureLeaseError(LeaseError):
    """Whether the job that holds the lease lives is not known yet: watch `row`."""

    def __init__(self, message: str, row: LeaseRow) -> None:
        super().__init__(message)
        self.row = row


class Lease:
    """The claim of one job on a set of tables; made by `acquire`, kept alive by `heartbeat`."""

    def __init__(self, table: Snapshot, owner: str, found: LeaseRow, look_seconds: float) -> None:
        self._held = HeldRows(table)
        self._lock = threading.Lock()  # the heartbeat's thread and the job's share the table
        self.owner = owner
        self.found = found  # what the lease said before: how the job before this one ended
        self.seen = found  # what it said when it was last looked at
        self.look_seconds = look_seconds  # as of the store

    @classmethod
    def acquire(cls, tables: Store, watch: HeartbeatWatch | None = None, *, force: bool = False) -> Lease:
        """Take the lease if its holder is dead, by what `watch` has seen, or in any case with `force`.

        Raises LeaseError if the holder lives or another job takes the lease at this moment, UnsureLeaseError if it is
        not known yet whether the holder lives.
        """
        table = _open(tables)
        if _read(table) is None:
            _insert_row(table)
            table = _open(tables)
        row, life = (watch or HeartbeatWatch()).look(partial(_read_again, table))
        assert row is not None  # noqa: S101 - written above
        if life is not Life.DEAD and not force:
            held = (
                f"another job ({row.holder}) writes to {tables.name}, last sign of life {row.sign_of_life}: stop it by "
                f"'offsetstream stop --tables {tables.name}'; if it has died, wait {LIFETIME.seconds} s, or start this "
                "one with --force"
            )
            raise LeaseError(held) if life is Life.ALIVE else UnsureLeaseError(held, row)
        lease = cls(table, f"{here()}{os.getpid()}/{uuid.uuid4()}", row, tables.look_seconds)
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
            updated = self._held.update(lambda row: claim if row["owner"] == before else None)
        except ConflictError as error:
            raise LeaseError(_JUST_TAKEN) from error
        if not updated:
            raise LeaseError(_JUST_TAKEN)

    def use_checkpoint(self, checkpoint_id: int, location: str) -> None:
        """Note the checkpoint under which this job writes."""
        self._update(lambda _: {"checkpoint_id": checkpoint_id, "checkpoint_location": location})

    def heartbeat(self) -> LeaseRow:
        """Give a sign of life, and return the lease as it stands; LeaseError if another job has taken it."""
        self._update(lambda _: {"heartbeat_at": datetime.now(UTC)})
        with self._lock:
            return self._look()

    def read(self) -> LeaseRow:
        """Return the lease as it stands; LeaseError if another job has taken it."""
        with self._lock:
            self._held.table.refresh()
            return self._look()

    def _look(self) -> LeaseRow:
        row = _row_of(self._held.rows)
        if row is None or row.owner != self.owner:
            raise LeaseError(_TAKEN_OVER)
        self.seen = row
        return row

    def finish_reload(self, request: str, left: Collection[int] = ()) -> None:
        """Take back the request but for the partitions that are `left`, unless more has been asked for since."""
        rest = ",".join(map(str, sorted(left))) or None
        self._update(lambda row: {"reload_requested": rest} if row.get("reload_requested") == request else {})

    def release(self) -> None:
        """Give the lease back, so that the next job starts at once."""
        self._update(lambda _: {"owner": None, "heartbeat_at": datetime.now(UTC), "stop_requested_by": None})

    @again_on_conflict
    def _update(self, change: Callable[[Row], Row]) -> None:
        """Change the row as it was last seen: whether it still is so, the commit tells."""
        with self._lock:
            try:
                updated = self._held.update(lambda row: change(row) if row["owner"] == self.owner else None)
            except ConflictError:
                self._held.table.refresh()
                raise
        if not updated:
            raise LeaseError(_TAKEN_OVER)


def read_lease(tables: Store) -> LeaseRow | None:
    """Return the lease of the tables, None if no job ever ran; TablesError if there are no tables."""
    return _read(_open(tables))


def lease_reader(tables: Store) -> Callable[[], LeaseRow | None]:
    """Return what reads the lease as it stands each time that it is called, at less cost than `read_lease`."""
    held = HeldRows(_open(tables))

    def read() -> LeaseRow | None:
        held.table.refresh()
        return _row_of(held.rows)

    return read


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # as in a container whose user has a number and no name
        return str(os.getuid())


@again_on_conflict
def request_stop(tables: Store) -> None:
    """Ask the job that holds the lease to stop after its present batch."""
    by = f"{_user()}@{socket.gethostname()}"
    update_rows(_open(tables), lambda row: {"stop_requested_by": by} if row["owner"] is not None else None)


@again_on_conflict
def request_reload(tables: Store, partitions: Collection[int]) -> LeaseRow:
    """Ask the job, or the next one, to load offsets partitions anew: those named, or all; LeaseError if none ever ran.

    What was asked for before and is not done yet stays asked for. Returns the lease with the request.
    """
    table = _open(tables)
    row = _read(table)
    if row is None:
        raise LeaseError(f"no job ever wrote to {tables.name}: 'offsetstream run' loads everything")
    if partitions and row.reload_requested != ALL_PARTITIONS:
        before = set(row.reload_requested.split(",")) if row.reload_requested else set()
        request = ",".join(sorted(before | {str(number) for number in partitions}, key=int))
    else:
        request = ALL_PARTITIONS
    update_rows(table, lambda _: {"reload_requested": request})
    return replace(row, reload_requested=request)


@again_on_conflict
def note_history_kept_from(tables: Store, instant: datetime) -> None:
    """Tell the job, and the next ones, that the history may lack rows from before the instant."""

    def raised(row: Row) -> Row | None:
        before = row.get("history_kept_from")
        return {"history_kept_from": instant} if before is None or before < instant else None

    update_rows(_open(tables), raised)


def requested_partitions(request: str | None, existing: Collection[int]) -> list[int]:
    """Return the partitions that a request for a reload means, of those that exist."""
    if request == ALL_PARTITIONS:
        return sorted(existing)
    asked = {int(number) for number in request.split(",")} if request else set()
    return sorted(asked & set(existing))


def _open(tables: Store) -> Snapshot:
    try:
        table = tables.open(JOB_LEASE)
    except NoTableError as error:
        raise TablesError(f"there are no tables in {tables.name}: 'offsetstream run' makes them") from error
    refuse_newer(table)
    return table


def _read_again(table: Snapshot) -> LeaseRow | None:
    table.refresh()
    return _read(table)


def _insert_row(table: Snapshot) -> None:
    row = pa.table({"lease": [ROW], "checkpoint_id": pa.array([0], pa.int32())})
    # Appends never conflict, the transaction makes them: a second row would be a second lease.
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
    names = LeaseRow.__dataclass_fields__
    row: dict[str, Any] = dict.fromkeys(names) | rows[-1]  # a table of an older version lacks the newest columns
    return LeaseRow(**{name: row[name] for name in names})
