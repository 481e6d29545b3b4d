"""Upkeep of the tables by the running job, between its batches (docs/decisions/11-upkeep.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, date, datetime

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from offsetstream.errors import TablesError, first_line
from offsetstream.maintenance.settings import horizons
from offsetstream.progress import Progress
from offsetstream.tables.files import SmallFiles
from offsetstream.tables.lease import note_history_kept_from
from offsetstream.tables.ledger import sum_up_days
from offsetstream.tables.names import END_OFFSETS, LEDGER
from offsetstream.tables.retention import due_days, is_announced, kept_from, thin_day, thin_history
from offsetstream.tables.schema import TableSchema, all_schemas
from offsetstream.tables.store import Snapshot, Store

# Table versions between two searches for dead files and old log files: an hour of batches every ten seconds.
CLEAR_EVERY = 360
# Number of small files at which a table is compacted.
CROWDED = {"history": 192, "state": 64}


class Upkeep:
    """Compact and vacuum the tables, and clean their logs, when enough was written. Failures are not fatal.

    `measured` is called with a table's name, the number of its data files and their bytes, when these may have changed.
    """

    def __init__(
        self,
        tables: Store,
        measured: Callable[[str, int, int], None] | None = None,
        keep_history: Sequence[str] = (),
    ) -> None:
        self._tables = tables
        self._keep_history = keep_history
        self._retained: dict[str, date] = {}  # the last horizon before which each history was thinned
        self._measured = measured
        self._versions = {name: self._tables.open(name).version for name in all_schemas()}
        self._compacted: set[tuple[str, date | None]] = set()
        self._failed: set[str] = set()
        self._summed_up: date | None = None
        self._thinned: date | None = None

    def measure(self) -> None:
        """Call `measured` for all tables, as after a load. Raise TablesError."""
        if self._measured is not None:
            for name in all_schemas():
                self._measure(self._tables.open(name))

    def tend(self, between_batches: AbstractContextManager[object], progress: Progress) -> None:
        """Do what is due. While `between_batches` is open, no batch writes; it can be opened several times."""
        for schema in all_schemas().values():
            try:
                self._tend(schema, between_batches)
                self._failed.discard(schema.name)
            except (TablesError, PySparkException, Py4JJavaError, OSError) as error:
                if schema.name not in self._failed:  # a conflict, or a slow store: the next call tries again
                    progress.warn(f"Cannot compact the table {schema.name}, retrying later: {first_line(error)}")
                self._failed.add(schema.name)

    def _tend(self, schema: TableSchema, between_batches: AbstractContextManager[object]) -> None:
        if schema.name == LEDGER:
            self._sum_up(between_batches)
        if schema.name == END_OFFSETS:
            self._thin()
        self._retain(schema)
        table = self._tables.open(schema.name)
        before, now = self._versions[schema.name], table.version
        if now == before:
            return
        files = self._tables.files(table)
        for crowd in files.small_files():
            if self._is_due(schema, crowd):
                # A batch may write beside our compaction. Spark's OPTIMIZE would make its MERGE fail.
                with between_batches if self._tables.needs_spark else nullcontext():
                    files.compact(crowd)
                self._compacted.add((schema.name, crowd.day))
                break  # one at a time: other tables wait
        if now // CLEAR_EVERY != before // CLEAR_EVERY:
            table.refresh()
            self._tables.files(table).clear()
        self._versions[schema.name] = table.version
        self._measure(table)

    def _measure(self, table: Snapshot) -> None:
        if self._measured is not None:
            present = self._tables.files(table).present()
            self._measured(table.name, present.files, present.bytes)

    def _sum_up(self, between_batches: AbstractContextManager[object]) -> None:
        """Sum up the past days of the ledger, once a day."""
        today = datetime.now(UTC).date()
        if self._summed_up != today:
            with between_batches:
                sum_up_days(self._tables, today)
            self._summed_up = today

    def _thin(self) -> None:
        """Thin one day of the samples, if one is due. No batch writes to them."""
        today = datetime.now(UTC).date()
        if self._thinned != today:
            due = due_days(self._tables.open(END_OFFSETS), today)
            if due:
                thin_day(self._tables, due[0])
            if len(due) < 2:  # noqa: PLR2004 - no day is left
                self._thinned = today

    def _retain(self, schema: TableSchema) -> None:
        """Thin a history before its horizon, once a day. A batch that appends to it meanwhile is written again.

        First the book must say that the history is not complete from an earlier time. The stream has that done, and the
        next call goes on.
        """
        kept = horizons(self._keep_history, datetime.now(UTC).date())
        horizon, instant = kept.get(schema.name), kept_from(kept)
        if horizon is None or instant is None or self._retained.get(schema.name) == horizon:
            return
        if not is_announced(self._tables, instant):
            note_history_kept_from(self._tables, instant)
            return
        thin_history(self._tables, schema, horizon)
        self._retained[schema.name] = horizon

    def _is_due(self, schema: TableSchema, crowd: SmallFiles) -> bool:
        if not (schema.partitioned_by and crowd.is_closed):
            return crowd.files >= CROWDED[schema.kind]
        return (
            schema.name,
            crowd.day,
        ) not in self._compacted  # if files stay small after one compaction, another one does not help
