"""Maintenance from outside of the job. While a job runs, it does only what is safe then (rule 10)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime

from offsetstream.errors import OffsetstreamError, TablesError
from offsetstream.tables.create import CLUSTER_ID
from offsetstream.tables.files import SmallFiles, TableFiles
from offsetstream.tables.lease import HeartbeatWatch, is_job_alive, note_history_kept_from
from offsetstream.tables.names import CLUSTER, END_OFFSETS, OFFSETS_PARTITIONS, TOPIC_PARTITIONS
from offsetstream.tables.retention import due_days, is_announced, is_complete_before, kept_from, thin_day, thin_history
from offsetstream.tables.schema import TableSchema, all_schemas
from offsetstream.tables.small_tables import Row, as_utc, overwrite, read_rows, update_rows
from offsetstream.tables.store import Store, require_version
from offsetstream.tables.transaction import again_on_conflict

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Done:
    """What maintenance did to a table, or would do. Files and bytes are those of the table's folder."""

    table: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    log_files_before: int
    log_files_after: int
    files_compacted: int
    rows_thinned: int
    note: str | None


class Maintenance:
    """One run of maintenance. `say` gets the lines that explain a wait."""

    def __init__(
        self,
        tables: Store,
        say: Callable[[str], None],
        *,
        dry_run: bool = False,
    ) -> None:
        self._tables = tables
        self._say = say
        self._watch = HeartbeatWatch()  # of a job that may run at the same time
        self._dry_run = dry_run

    def run(self, horizons: Mapping[str, date], timeout: float) -> list[Done]:
        """Do everything that is due, and return the result for each table.

        Thin each history before its horizon; one without a horizon is kept. Raise TablesError if tables are missing or
        of another version, OffsetstreamError if the running job does not answer within `timeout` seconds.
        """
        require_complete(self._tables)
        instant = kept_from(horizons)
        if instant is not None and not self._dry_run:
            self._announce(instant, timeout)
        return [self._maintain(schema, horizons.get(schema.name)) for schema in all_schemas().values()]

    def _announce(self, instant: datetime, timeout: float) -> None:
        """Have `history_complete_from` raised before any row is deleted: by the running job, if there is one."""
        note_history_kept_from(self._tables, instant)
        deadline = time.monotonic() + timeout
        while not is_announced(self._tables, instant):
            if not self._has_job():
                self._raise_complete_from(instant)
            elif time.monotonic() > deadline:
                raise OffsetstreamError(
                    f"the running job did not answer within {timeout:g} s that the history before {instant:%Y-%m-%d} "
                    "may be thinned (it may be loading): nothing was thinned. Try again, or set a longer --timeout"
                )
            else:
                time.sleep(_POLL_SECONDS)

    @again_on_conflict
    def _raise_complete_from(self, instant: datetime) -> None:
        def raise_to_instant(row: Row) -> Row | None:
            return {"history_complete_from": instant} if is_complete_before(row, instant) else None

        update_rows(self._tables.open(OFFSETS_PARTITIONS), raise_to_instant)

    def _has_job(self) -> bool:
        return is_job_alive(self._tables, self._say, self._watch)

    def _maintain(self, schema: TableSchema, horizon: date | None) -> Done:
        before = self._files(schema).stored()
        thinned = 0 if horizon is None else thin_history(self._tables, schema, horizon, dry_run=self._dry_run)
        if schema.name == END_OFFSETS:
            due = due_days(self._tables.open(schema.name), datetime.now(UTC).date())
            thinned += sum(thin_day(self._tables, each, dry_run=self._dry_run) for each in due)
        compacted, note = self._compact(schema)
        files = self._files(schema)
        if not self._dry_run:
            files.clear()
        after = files.stored(without=files.removable() if self._dry_run else ())
        return Done(
            table=schema.name,
            files_before=before.files,
            files_after=after.files,
            bytes_before=before.bytes,
            bytes_after=after.bytes,
            log_files_before=before.log_files,
            log_files_after=after.log_files,
            files_compacted=compacted,
            rows_thinned=thinned,
            note=note,
        )

    def _compact(self, schema: TableSchema) -> tuple[int, str | None]:
        """Compact what the running job does not write to. Return the number of files, and why some were skipped."""
        compacted, note = 0, None
        for crowd in self._files(schema).small_files():
            is_unused = crowd.day is not None and crowd.is_closed
            if not is_unused and self._has_job():  # checked each time: a job may have started meanwhile
                note = "a job runs: it compacts this table itself"
                continue
            try:
                if not self._dry_run:
                    self._compact_crowd(schema, crowd)
            except TablesError as error:
                return compacted, f"not compacted: {error}"
            compacted += crowd.files
        return compacted, note

    @again_on_conflict
    def _compact_crowd(self, schema: TableSchema, crowd: SmallFiles) -> None:
        self._files(schema).compact(crowd)

    def _files(self, schema: TableSchema) -> TableFiles:
        return self._tables.files(self._tables.open(schema.name))


def end_tables(tables: Store, say: Callable[[str], None], *, dry_run: bool = False) -> datetime:
    """Record that no job updates the tables any more. Return the time of their last sample, which is their "now".

    Raise TablesError if a job still writes to them, or if they have no sample.
    """
    require_complete(tables)
    if is_job_alive(tables, say, HeartbeatWatch()):
        raise TablesError(f"a job writes to {tables.name}: stop it with 'offsetstream stop --tables {tables.name}'")
    partitions = tables.open(OFFSETS_PARTITIONS)
    times = [
        row["last"]
        for table, column in ((partitions, "caught_up_at"), (tables.open(TOPIC_PARTITIONS), "sampled_at"))
        for row in table.query(f"SELECT max({column}) AS last FROM rows").read_all().to_pylist()  # noqa: S608 - ours
        if row["last"] is not None
    ]
    if not times:
        raise TablesError(f"{tables.name} has no sample: nothing was loaded into it yet")
    ended_at = as_utc(max(times))
    if not dry_run:
        cluster = tables.open(CLUSTER)
        found = read_rows(cluster) or [{"cluster_id": partitions.properties.get(CLUSTER_ID)}]
        overwrite(cluster, [row | {"ended_at": ended_at} for row in found])
    return ended_at


def require_complete(tables: Store) -> None:
    """Raise TablesError if a table is missing, has another version, or lacks files."""
    for name in all_schemas():
        table = tables.open(name)
        require_version(table)
        if gone := tables.files(table).lost():
            raise TablesError(
                f"{len(gone)} data files of the table {table.where} are missing, the first is {gone[0]}: restore "
                "them, or delete the table's folder and start the job, which creates the table again"
            )
