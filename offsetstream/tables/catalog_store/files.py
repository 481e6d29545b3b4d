"""The files of a catalog's table, as far as SQL tells of them: where they lie is the catalog's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from offsetstream.tables.catalog_store.errors import told
from offsetstream.tables.catalog_store.sessions import alike
from offsetstream.tables.files import Crowd, Present, Stored, TableFiles, crowd_of, in_turn
from offsetstream.tables.schema import HISTORY_DAY

if TYPE_CHECKING:
    from offsetstream.tables.catalog_store.snapshot import CatalogSnapshot

_DAY = re.compile(rf"/{HISTORY_DAY}=(\d{{4}}-\d\d-\d\d)/")
# Spark's default is thousands of tasks for the listing of one folder.
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"


class CatalogFiles(TableFiles):
    """What Spark tells of the table's files."""

    def __init__(self, table: CatalogSnapshot) -> None:
        self._table = table

    def crowds(self) -> list[Crowd]:
        """Return where there are at least two files, small ones or not: OPTIMIZE leaves those that are large enough."""
        today = datetime.now(UTC).date()
        with told(self._table.where):
            files = self._table.frame.inputFiles()
        found = Counter(_day_of(file) for file in files)
        return in_turn((crowd_of(day, count, today) for day, count in found.items()), today)

    def compact(self, crowd: Crowd) -> None:
        """Put the files together by OPTIMIZE."""
        where = "" if crowd.day is None else f"WHERE {HISTORY_DAY} = DATE '{crowd.day}'"
        session = alike(self._table.store.spark)
        for setting in ("minFileSize", "maxFileSize"):
            session.conf.set(f"spark.databricks.delta.optimize.{setting}", str(crowd.target_bytes))
        with told(self._table.where, "compact"):
            session.sql(f"OPTIMIZE {self._table.table} {where}").collect()

    def clear(self) -> None:
        """Run VACUUM; old log files Delta deletes with its checkpoints."""
        self._vacuum("")

    def removable(self) -> set[str]:
        """Return the names of the data files that a VACUUM would delete, of which SQL shows a thousand at most."""
        return {path.rsplit("/", 1)[-1] for path in self._vacuum("DRY RUN")}

    def present(self) -> Present:
        """Return what DESCRIBE DETAIL tells."""
        return Present(*self._table.files_and_bytes)

    def stored(self, without: Collection[str] = ()) -> Stored:  # noqa: ARG002 - dead files are not in it anyway
        """Return the data files of the present version: of dead ones and of the log SQL does not tell."""
        present = self.present()
        return Stored(present.files, 0, present.bytes)

    def lost(self) -> list[str]:
        """Return nothing: what is missing, Spark says when it reads it."""
        return []

    def _vacuum(self, how: str) -> list[str]:
        session = alike(self._table.store.spark)
        session.conf.set(_LISTING, "4")
        with told(self._table.where, "clear"):
            return [row["path"] for row in session.sql(f"VACUUM {self._table.table} {how}").collect()]


def _day_of(file: str) -> date | None:
    found = _DAY.search(file)
    return date.fromisoformat(found[1]) if found else None
