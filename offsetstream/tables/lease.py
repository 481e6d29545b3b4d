"""The lease: one job at a time writes to a set of tables (design, rule 8).

The lease is the one row of the table ``job_lease``. It is written by delta-rs, so that a heartbeat costs milliseconds
and waits for no Spark job. Of two competing updates Delta lets one win; the other sees that it has lost.
"""

from __future__ import annotations

import getpass
import os
import socket
import threading
import uuid
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from offsetstream.errors import LeaseError, TablesError
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.small import read_rows, sql_text, sql_timestamp
from offsetstream.tables.version import refuse_newer

LIFETIME = timedelta(seconds=60)
TABLE = "job_lease"
ROW = "offsets"
ALL_PARTITIONS = "all"  # of a request for a reload
_JUST_TAKEN = "another job has just taken the lease of these tables: only one may write to them"


@dataclass(frozen=True)
class LeaseRow:
    """The lease as it stands: who holds it, under which checkpoint, and what the holder is asked to do."""

    checkpoint_id: int
    checkpoint_location: str | None
    owner: str | None
    host: str | None
    pid: int | None
    heartbeat_at: datetime | None
    stop_requested_by: str | None
    reload_requested: str | None
    history_kept_from: datetime | None

    @property
    def is_live(self) -> bool:
        """Whether the job that holds the lease may still run; a dead process of this host is known to be dead."""
        if self.owner is None or self.heartbeat_at is None or datetime.now(UTC) - self.heartbeat_at > LIFETIME:
            return False
        is_here = self.host == socket.gethostname() and self.owner.startswith(_here())
        return not is_here or _is_another_live_process(self.pid)


def _here() -> str:
    """Return where a process's number is its own: containers may share a host's name, and each counts for itself."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()}/{boot_id}/{Path('/proc/self/ns/pid').stat().st_ino}/"
    except OSError:  # not on Linux
        return f"{socket.gethostname()}/"


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


class Lease:
    """The claim of one job on a set of tables; made by :meth:`acquire`, kept alive by :meth:`heartbeat`."""

    def __init__(self, table: DeltaTable, owner: str, found: LeaseRow) -> None:
        self._table = table
        self._lock = threading.Lock()  # the heartbeat's thread and the job's share the table
        self.owner = owner
        self.found = found  # what the lease said before: how the job before this one ended

    @classmethod
    def acquire(cls, tables: TablesLocation) -> Lease:
        """Take the lease; LeaseError if a live job holds it or takes it at this moment."""
        table = _open(tables)
        row = _read(table)
        if row is None:
            _insert_row(table)
            table = _open(tables)
            row = _read(table)
            assert row is not None  # noqa: S101 - written a line ago
        if row.is_live:
            raise LeaseError(
                f"another job (process {row.pid} on {row.host}) writes to {tables.root}, last sign of life at "
                f"{row.heartbeat_at:%H:%M:%S} UTC: stop it by 'offsetstream stop --tables {tables.root}', or wait "
                f"{LIFETIME.seconds} s after it died"
            )
        lease = cls(table, f"{_here()}{os.getpid()}/{uuid.uuid4()}", row)
        was = "owner IS NULL" if row.owner is None else f"owner = {sql_text(row.owner)}"
        lease._claim(was)
        return lease

    def _claim(self, condition: str) -> None:
        claim = {
            "owner": sql_text(self.owner),
            "host": sql_text(socket.gethostname()),
            "pid": str(os.getpid()),
            "heartbeat_at": "now()",
            "lease_milliseconds": str(int(LIFETIME.total_seconds() * 1000)),
            "stop_requested_by": "NULL",
        }
        try:
            updated = self._table.update(predicate=condition, updates=claim)
        except CommitFailedError as error:
            raise LeaseError(_JUST_TAKEN) from error
        if not updated["num_updated_rows"]:
            raise LeaseError(_JUST_TAKEN)

    def use_checkpoint(self, checkpoint_id: int, location: str) -> None:
        """Note the checkpoint under which this job writes."""
        self._update({"checkpoint_id": str(checkpoint_id), "checkpoint_location": sql_text(location)})

    def heartbeat(self) -> None:
        """Give a sign of life; LeaseError if another job has taken the lease."""
        self._update({"heartbeat_at": "now()"})

    def read(self) -> LeaseRow:
        """Return the lease as it stands; LeaseError if another job has taken it."""
        with self._lock:
            self._table.update_incremental()
            row = _read(self._table)
        if row is None or row.owner != self.owner:
            raise LeaseError("another job has taken over the lease of these tables: this one stops")
        return row

    def finish_reload(self, request: str) -> None:
        """Take back the request that is done, unless more has been asked for since."""
        is_done = f"reload_requested = {sql_text(request)}"
        self._update({"reload_requested": f"CASE WHEN {is_done} THEN NULL ELSE reload_requested END"})

    def release(self) -> None:
        """Give the lease back, so that the next job starts at once."""
        self._update({"owner": "NULL", "heartbeat_at": "now()", "stop_requested_by": "NULL"})

    @again_on_conflict
    def _update(self, updates: dict[str, str]) -> None:
        with self._lock:
            self._table.update_incremental()
            updated = self._table.update(predicate=f"owner = {sql_text(self.owner)}", updates=updates)
        if not updated["num_updated_rows"]:
            raise LeaseError("another job has taken over the lease of these tables: this one stops")


def read_lease(tables: TablesLocation) -> LeaseRow | None:
    """Return the lease of the tables, None if no job ever ran; TablesError if there are no tables."""
    return _read(_open(tables))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # as in a container whose user has a number and no name
        return str(os.getuid())


@again_on_conflict
def request_stop(tables: TablesLocation) -> None:
    """Ask the job that holds the lease to stop after its present batch."""
    by = f"{_user()}@{socket.gethostname()}"
    _open(tables).update(predicate="owner IS NOT NULL", updates={"stop_requested_by": sql_text(by)})


@again_on_conflict
def request_reload(tables: TablesLocation, partitions: Collection[int]) -> LeaseRow:
    """Ask the job, or the next one, to load offsets partitions anew: those named, or all; LeaseError if none ever ran.

    What was asked for before and is not done yet stays asked for. Returns the lease with the request.
    """
    table = _open(tables)
    row = _read(table)
    if row is None:
        raise LeaseError(f"no job ever wrote to {tables.root}: 'offsetstream run' loads everything")
    if partitions and row.reload_requested != ALL_PARTITIONS:
        before = set(row.reload_requested.split(",")) if row.reload_requested else set()
        request = ",".join(sorted(before | {str(number) for number in partitions}, key=int))
    else:
        request = ALL_PARTITIONS
    table.update(updates={"reload_requested": sql_text(request)})
    return replace(row, reload_requested=request)


@again_on_conflict
def note_history_kept_from(tables: TablesLocation, instant: datetime) -> None:
    """Tell the job, and the next ones, that the history may lack rows from before the instant."""
    at = sql_timestamp(instant)
    _open(tables).update(
        predicate=f"history_kept_from IS NULL OR history_kept_from < {at}", updates={"history_kept_from": at}
    )


def requested_partitions(request: str | None, existing: Collection[int]) -> list[int]:
    """Return the partitions that a request for a reload means, of those that exist."""
    if request == ALL_PARTITIONS:
        return sorted(existing)
    asked = {int(number) for number in request.split(",")} if request else set()
    return sorted(asked & set(existing))


def _open(tables: TablesLocation) -> DeltaTable:
    try:
        table = DeltaTable(tables.table(TABLE))
    except TableNotFoundError as error:
        raise TablesError(f"there are no tables in {tables.root}: 'offsetstream run' makes them") from error
    refuse_newer(table)
    return table


def _insert_row(table: DeltaTable) -> None:
    row = pa.table({"lease": [ROW], "checkpoint_id": pa.array([0], pa.int32())})
    # Appends never conflict, the transaction makes them: a second row would be a second lease.
    once = CommitProperties(app_transactions=[Transaction(TABLE, 1)])
    try:
        write_deltalake(table, row, mode="append", schema_mode="merge", commit_properties=once)
    except CommitFailedError as error:
        raise LeaseError(_JUST_TAKEN) from error


def _read(table: DeltaTable) -> LeaseRow | None:
    rows = read_rows(table)
    if not rows:
        return None
    names = LeaseRow.__dataclass_fields__
    row: dict[str, Any] = dict.fromkeys(names) | rows[0]  # a table of an older version lacks the newest columns
    return LeaseRow(**{name: row[name] for name in names})
