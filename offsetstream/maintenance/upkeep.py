"""How the running job keeps its own tables bounded, between its batches (design.md, "What stays bounded")."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from offsetstream.errors import TablesError, first_line
from offsetstream.progress import Progress
from offsetstream.tables.files import Crowd
from offsetstream.tables.ledger_days import sum_up
from offsetstream.tables.names import END_OFFSETS, LEDGER
from offsetstream.tables.schema import TableSchema, all_schemas
from offsetstream.tables.store import Snapshot, Store
from offsetstream.tables.thinning import due_days, thin_day

# Versions after which dead files and old log files are looked for: an hour of batches every ten seconds.
CLEAR_EVERY = 360
# Small files at which a table is compacted.
CROWDED = {"history": 192, "state": 64}


class Upkeep:
    """Compacts, vacuums and cleans the logs of the tables when enough was written; nothing that fails is fatal.

    `measured` is called with a table's name, its data files, and their bytes, when these may be others than before.
    """

    def __init__(self, tables: Store, measured: Callable[[str, int, int], None] | None = None) -> None:
        self._tables = tables
        self._measured = measured
        self._seen = {name: self._tables.open(name).version for name in all_schemas()}
        self._compacted: set[tuple[str, date | None]] = set()
        self._failed: set[str] = set()
        self._summed_up: date | None = None
        self._thinned: date | None = None

    def measure(self) -> None:
        """Tell of all tables, as after a load; raises TablesError."""
        if self._measured is not None:
            for name in all_schemas():
                self._measure(self._tables.open(name))

    def tend(self, between_batches: AbstractContextManager[object], progress: Progress) -> None:
        """Do what is due; `between_batches` keeps batches off the tables while it is open, and may be used again."""
        for schema in all_schemas().values():
            try:
                self._tend(schema, between_batches)
                self._failed.discard(schema.name)
            except (TablesError, PySparkException, Py4JJavaError, OSError) as error:
                if schema.name not in self._failed:  # a conflict, or a store that is slow: the next time will do
                    progress.warn(f"The table {schema.name} is not tidied now, but later: {first_line(error)}")
                self._failed.add(schema.name)

    def _tend(self, schema: TableSchema, between_batches: AbstractContextManager[object]) -> None:
        if schema.name == LEDGER:
            self._sum_up(between_batches)
        if schema.name == END_OFFSETS:
            self._thin()
        table = self._tables.open(schema.name)
        seen, now = self._seen[schema.name], table.version
        if now == seen:
            return
        for crowd in table.files.crowds():
            if self._is_due(schema, crowd):
                with between_batches:
                    table.files.compact(crowd)
                self._compacted.add((schema.name, crowd.day))
                break  # one at a time: a batch may be waiting
        if now // CLEAR_EVERY != seen // CLEAR_EVERY:
            table.refresh()
            table.files.clear()
        self._seen[schema.name] = table.version
        self._measure(table)

    def _measure(self, table: Snapshot) -> None:
        if self._measured is not None:
            present = table.files.present()
            self._measured(table.name, present.files, present.bytes)

    def _sum_up(self, between_batches: AbstractContextManager[object]) -> None:
        """Sum up the ledger once a day, of the days that are over."""
        today = datetime.now(UTC).date()
        if self._summed_up != today:
            with between_batches:
                sum_up(self._tables, today)
            self._summed_up = today

    def _thin(self) -> None:
        """Thin one day of the samples, if one is due; no batch writes to them."""
        today = datetime.now(UTC).date()
        if self._thinned != today:
            due = due_days(self._tables.open(END_OFFSETS), today)
            if due:
                thin_day(self._tables, due[0])
            if len(due) < 2:  # noqa: PLR2004 - none is left
                self._thinned = today

    def _is_due(self, schema: TableSchema, crowd: Crowd) -> bool:
        if not (schema.partitioned_by and crowd.is_closed):
            return crowd.files >= CROWDED[schema.kind]
        return (schema.name, crowd.day) not in self._compacted  # what stays small once will the next time
