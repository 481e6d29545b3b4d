"""The files of a catalog's table, as far as SQL shows them: only the catalog knows their place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from datetime import UTC, date, datetime

from offsetstream.tables.catalog_store.commits import copied_session
from offsetstream.tables.catalog_store.errors import translated_errors
from offsetstream.tables.catalog_store.snapshot import CatalogSnapshot
from offsetstream.tables.files import (
    CurrentFiles,
    SmallFiles,
    StoredFiles,
    TableFiles,
    compaction_order,
    small_files_of,
)
from offsetstream.tables.schema import HISTORY_DAY

_DAY = re.compile(rf"/{HISTORY_DAY}=(\d{{4}}-\d\d-\d\d)/")
# Spark's default would start thousands of tasks to list one folder.
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"


class CatalogFiles(TableFiles):
    """The table's files, as Spark SQL shows them."""

    def __init__(self, table: CatalogSnapshot) -> None:
        self._table = table

    def small_files(self) -> list[SmallFiles]:
        """Return all sets of at least two files, even large ones: OPTIMIZE skips files that are large enough."""
        today = datetime.now(UTC).date()
        with translated_errors(self._table.where):
            files = self._table.frame.inputFiles()
        found = Counter(_day_of(file) for file in files)
        return compaction_order((small_files_of(day, count, today) for day, count in found.items()), today)

    def compact(self, crowd: SmallFiles) -> None:
        """Compact the files with OPTIMIZE."""
        where = "" if crowd.day is None else f"WHERE {HISTORY_DAY} = DATE '{crowd.day}'"
        session = copied_session(self._table.tables.spark)
        for setting in ("minFileSize", "maxFileSize"):
            session.conf.set(f"spark.databricks.delta.optimize.{setting}", str(crowd.target_bytes))
        with translated_errors(self._table.where, "compact"):
            session.sql(f"OPTIMIZE {self._table.table} {where}").collect()

    def clear(self) -> None:
        """Run VACUUM; Delta deletes old log files itself when it writes a checkpoint."""
        self._vacuum("")

    def removable(self) -> set[str]:
        """Return the names of the data files that a VACUUM would delete; SQL shows at most a thousand."""
        return {path.rsplit("/", 1)[-1] for path in self._vacuum("DRY RUN")}

    def present(self) -> CurrentFiles:
        """Return number and bytes of the current data files, from DESCRIBE DETAIL."""
        return CurrentFiles(*self._table.files_and_bytes)

    def stored(self, without: Collection[str] = ()) -> StoredFiles:  # noqa: ARG002 - unused files are not counted anyway
        """Return the data files of the current version: SQL shows neither unused files nor the log."""
        present = self.present()
        return StoredFiles(present.files, 0, present.bytes)

    def lost(self) -> list[str]:
        """Return nothing: Spark reports a missing file when it reads it."""
        return []

    def _vacuum(self, how: str) -> list[str]:
        session = copied_session(self._table.tables.spark)
        session.conf.set(_LISTING, "4")
        with translated_errors(self._table.where, "clean up"):
            return [row["path"] for row in session.sql(f"VACUUM {self._table.table} {how}").collect()]


def _day_of(file: str) -> date | None:
    found = _DAY.search(file)
    return date.fromisoformat(found[1]) if found else None
