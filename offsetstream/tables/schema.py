"""The tables as data: one JSON file per table in `schemas/`, read here into columns, keys and comments."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from offsetstream.tables.version import PROPERTY, SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow as pa

HISTORY_DAY = "written_day"
SIGNATURE = ("checkpoint_id", "batch_id", HISTORY_DAY)  # who wrote a row of a history
# State is written anew with each batch; a history must outlast those who read it as a stream once a day.
_KEEP_DELETED_FILES = {"state": "interval 6 hours", "history": "interval 2 days"}
# Versions from one checkpoint of the log to the next, all of which are read by whoever opens the table, as each batch
# does. A checkpoint names what was deleted while deleted files are kept.
_CHECKPOINT_INTERVAL, _OF_LONG_KEPT = "20", "100"
# What no table has at the beginning, whatever a session or a workspace sets for new ones: delta-rs cannot write it, and
# not every reader can read it.
SWITCHED_OFF = {
    "delta.enableDeletionVectors": "false",
    "delta.columnMapping.mode": "none",
    "delta.appendOnly": "false",
    "delta.enableRowTracking": "false",
    "delta.enableInCommitTimestamps": "false",
    "delta.enableTypeWidening": "false",
}
# Columns of a history's files of which Delta keeps the ranges.
SKIPPED_BY = ("offsets_partition", "record_offset", "sampled_at", "checkpoint_id", "batch_id")
_ARROW_TYPES = {
    "INT": "int32",
    "BIGINT": "int64",
    "STRING": "string",
    "BOOLEAN": "bool",
    "DOUBLE": "float64",
    "BINARY": "binary",
    "DATE": "date32",
}


@dataclass(frozen=True)
class ColumnSchema:
    """A column: its name, its type in Spark SQL's words, its comment, and what that was in earlier versions."""

    name: str
    type: str
    comment: str
    earlier_comments: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableSchema:
    """A table: `kind` is state (upserted) or history (appended); `key` names the columns that identify a row.

    `cell` names the columns of a history of which retention keeps the last row; a history without one is kept whole.
    `gone` is a condition, in SQL, of the rows that say that their cell is there no longer.
    """

    name: str
    kind: str
    comment: str
    key: tuple[str, ...]
    columns: tuple[ColumnSchema, ...]
    cell: tuple[str, ...] = ()
    gone: str | None = None
    internal: bool = False
    keep_deleted_files: str | None = None  # an interval as Delta's properties have it; None: that of its kind

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns in their order."""
        return tuple(column.name for column in self.columns)

    @property
    def position(self) -> str:
        """The column that orders the rows of a history within one log."""
        return next(name for name in ("record_offset", "event_at", "sampled_at") if name in self.column_names)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that identify a row; of a history without a key, where its record is and what it tells of."""
        place = [
            name for name in ("offsets_partition", "log_id", "record_offset", "sampled_at") if name in self.column_names
        ]
        return self.key or (*place, *(name for name in self.cell if name not in place))

    @property
    def cell_sql(self) -> str:
        """The columns of the cell in SQL; a topic that has an id is the same by whatever name it was known."""
        named = "CASE WHEN topic_id IS NULL THEN topic END"
        has_id = "topic_id" in self.cell
        return ", ".join(named if has_id and name == "topic" else name for name in self.cell)

    @property
    def unsigned(self) -> TableSchema:
        """The table without the columns that say who wrote a row."""
        return replace(self, columns=tuple(column for column in self.columns if column.name not in SIGNATURE))

    @property
    def arrow(self) -> pa.Schema:
        """The columns as Arrow has them."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and a quick look needs no Arrow

        instant = pa.timestamp("us", "UTC")
        return pa.schema([(column.name, _ARROW_TYPES.get(column.type, instant)) for column in self.columns])

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """History lies by the day on which it was written, so that retention rewrites whole days."""
        return (HISTORY_DAY,) if self.kind == "history" else ()

    @property
    def properties(self) -> dict[str, str]:
        """Delta's table properties (design.md, "What stays bounded"): any Delta reader can read the tables."""
        keep = self.keep_deleted_files or _KEEP_DELETED_FILES[self.kind]
        shared = {
            PROPERTY: str(SCHEMA_VERSION),
            "delta.checkpointInterval": _OF_LONG_KEPT if keep.endswith("days") else _CHECKPOINT_INTERVAL,
            "delta.deletedFileRetentionDuration": keep,
            # A version without its files is of no use; and each write lists the log.
            "delta.logRetentionDuration": keep,
            # The job does it once an hour: delta-rs would list the log for it with each commit.
            "delta.enableExpiredLogCleanup": "false",
        }
        if self.kind == "history":
            return shared | {
                "delta.autoOptimize.autoCompact": "true",
                "delta.autoOptimize.optimizeWrite": "true",
                "delta.dataSkippingStatsColumns": ",".join(name for name in SKIPPED_BY if name in self.column_names),
            }
        return shared | {"delta.enableDeletionVectors": "false", "delta.columnMapping.mode": "none"}


@cache
def load_schema(name: str) -> TableSchema:
    """Return the schema of the table `name`; KeyError if there is no such table."""
    return all_schemas()[name]


@cache
def all_schemas() -> dict[str, TableSchema]:
    """Return every table's schema by the table's name."""
    folder = resources.files("offsetstream.tables") / "schemas"
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".json")), key=lambda e: e.name)
    return {schema.name: schema for schema in (_parse(json.loads(entry.read_text("utf-8"))) for entry in files)}


def is_history(name: str) -> bool:
    """Tell whether the table `name` is a history; tables beside those of the job are none."""
    return name in all_schemas() and load_schema(name).kind == "history"


def _parse(table: dict[str, Any]) -> TableSchema:
    columns = tuple(
        ColumnSchema(**column | {"earlier_comments": tuple(column.get("earlier_comments", ()))})
        for column in table.pop("columns")
    )
    return TableSchema(columns=columns, key=tuple(table.pop("key")), cell=tuple(table.pop("cell", ())), **table)
