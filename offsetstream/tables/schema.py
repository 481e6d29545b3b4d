"""The table schemas: one JSON file per table in `schemas/`, and the optional tables, which the job does not create.

The joins between tables are data too (`joins.json`): docs/reference/tables.md prints them, tests run them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from offsetstream.tables.sql import literal, quoted

if TYPE_CHECKING:
    import pyarrow as pa


SCHEMA_VERSION = 1  # a release that changes a table or its properties raises it
PROPERTY = "offsetstream.schema_version"


HISTORY_DAY = "written_day"
DELETED = "_deleted"  # column of a merge's source: true if the row's key is to be deleted
SIGNATURE = ("checkpoint_id", "batch_id", HISTORY_DAY)  # which batch wrote a history's row, and the day

# Each batch rewrites state files. A history's files must stay for readers that stream it once a day.
_KEEP_DELETED_FILES = {"state": "interval 6 hours", "history": "interval 2 days"}

# Commits between two checkpoints of the Delta log. To open a table, as each batch does, all commits since the last
# checkpoint are read. A checkpoint also lists deleted files while they are kept, so it is larger if that is long.
_CHECKPOINT_INTERVAL, _LONG_CHECKPOINT_INTERVAL = "20", "100"

# Features that new tables never have, whatever a session or a workspace sets: delta-rs cannot write them, and some
# readers cannot read them.
SWITCHED_OFF = {
    "delta.enableDeletionVectors": "false",
    "delta.columnMapping.mode": "none",
    "delta.appendOnly": "false",
    "delta.enableRowTracking": "false",
    "delta.enableInCommitTimestamps": "false",
    "delta.enableTypeWidening": "false",
}

# Columns for which Delta keeps the minimum and maximum of each file of a history.
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
    """A column: its name, Spark SQL type and comment."""

    name: str
    type: str
    comment: str


@dataclass(frozen=True)
class TableSchema:
    """A table. `kind` is state (updated) or history (appended); `key` has the columns that identify a row.

    `cell` has columns of a history: retention keeps the last row of each of their values. A history without a cell is
    kept completely. `gone` is the SQL condition for rows that delete their cell (tombstones).
    """

    name: str
    kind: str
    comment: str
    key: tuple[str, ...]
    columns: tuple[ColumnSchema, ...]
    cell: tuple[str, ...] = ()
    gone: str | None = None
    internal: bool = False
    keep_deleted_files: str | None = None  # an interval for Delta's properties; None: the default of the kind

    @property
    def column_names(self) -> tuple[str, ...]:
        """The column names in order."""
        return tuple(column.name for column in self.columns)

    @property
    def columns_sql(self) -> str:
        """The columns with their comments, for CREATE TABLE in Spark."""
        told = (f"{quoted(column.name)} {column.type} COMMENT {literal(column.comment)}" for column in self.columns)
        return ", ".join(told)

    @property
    def position(self) -> str:
        """The column that orders the rows of a history within one log."""
        return next(name for name in ("record_offset", "event_at", "sampled_at") if name in self.column_names)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns that identify a row. For a history without a key: its record's position and its cell."""
        place = [
            name for name in ("offsets_partition", "log_id", "record_offset", "sampled_at") if name in self.column_names
        ]
        return self.key or (*place, *(name for name in self.cell if name not in place))

    @property
    def cell_sql(self) -> str:
        """The columns of the cell in SQL. If a topic has an id, its name does not count."""
        name_without_id = "CASE WHEN topic_id IS NULL THEN topic END"
        has_id = "topic_id" in self.cell
        return ", ".join(name_without_id if has_id and name == "topic" else name for name in self.cell)

    @property
    def unsigned(self) -> TableSchema:
        """The table without the columns of `SIGNATURE`."""
        return replace(self, columns=tuple(column for column in self.columns if column.name not in SIGNATURE))

    @property
    def arrow(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and look-ups do not need it

        timestamp = pa.timestamp("us", "UTC")
        return pa.schema([(column.name, _ARROW_TYPES.get(column.type, timestamp)) for column in self.columns])

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The partition columns. Histories are partitioned by the day of writing, so retention rewrites single days."""
        return (HISTORY_DAY,) if self.kind == "history" else ()

    @property
    def properties(self) -> dict[str, str]:
        """Delta's table properties (docs/decisions/11-upkeep.md). Any Delta reader can read such tables."""
        keep = self.keep_deleted_files or _KEEP_DELETED_FILES[self.kind]
        shared = {
            PROPERTY: str(SCHEMA_VERSION),
            "delta.checkpointInterval": _LONG_CHECKPOINT_INTERVAL if keep.endswith("days") else _CHECKPOINT_INTERVAL,
            "delta.deletedFileRetentionDuration": keep,
            # Log files of a version are useless without its data files, and each write lists the log.
            "delta.logRetentionDuration": keep,
            # The job cleans the log once an hour; delta-rs would list the log at each commit to do it.
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
    """Return the schema of the table `name`; KeyError if it does not exist."""
    return all_schemas()[name]


@cache
def all_schemas() -> dict[str, TableSchema]:
    """Return the schemas of all tables by name."""
    folder = resources.files("offsetstream.tables") / "schemas"
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".json")), key=lambda e: e.name)
    return {schema.name: schema for schema in (_parse(json.loads(entry.read_text("utf-8"))) for entry in files)}


def is_history(name: str) -> bool:
    """Return whether the table `name` is a history; false for the optional tables, which the job does not keep."""
    return name in all_schemas() and load_schema(name).kind == "history"


def is_by_group(name: str) -> bool:
    """Return whether the table `name` has the state of groups, of which a batch changes some."""
    return name in all_schemas() and load_schema(name).kind == "state" and "group_id" in load_schema(name).column_names


def _parse(table: dict[str, Any]) -> TableSchema:
    columns = tuple(ColumnSchema(**column) for column in table.pop("columns"))
    return TableSchema(columns=columns, key=tuple(table.pop("key")), cell=tuple(table.pop("cell", ())), **table)


@dataclass(frozen=True)
class Join:
    """A documented join of each table in `rows` to the table `of`, by columns (`by`) that have the same names in both.

    `always`: each row has exactly one match. `what` is what the joined row adds.
    """

    rows: tuple[str, ...]
    of: str
    by: tuple[str, ...]
    always: bool
    what: str


def all_joins() -> list[Join]:
    """Return every documented join."""
    joins = json.loads((resources.files("offsetstream.tables") / "joins.json").read_text("utf-8"))
    return [Join(**join | {"rows": tuple(join["rows"]), "by": tuple(join["by"])}) for join in joins]


THRESHOLDS = TableSchema(
    name="thresholds",
    kind="state",
    comment="Yours: limits by which the views call a group slow, late or dead. No job writes to it",
    key=("group_id",),
    columns=(
        ColumnSchema(
            "group_id", "STRING", "Group id. The row with null holds the defaults of all groups, column by column"
        ),
        ColumnSchema("allowed_lag", "BIGINT", "Lag in messages that counts as no lag. Null: 0"),
        ColumnSchema(
            "minimum_complete",
            "DOUBLE",
            "Share of `intervals` commits below which the verdict is OK. Null: 0",
        ),
        ColumnSchema("intervals", "INT", "Number of commits, and of end offset samples, in the window. Null: 10"),
        ColumnSchema("window_seconds", "BIGINT", "Length of the window that the verdict judges, in seconds. Null: 300"),
        ColumnSchema(
            "max_time_lag_seconds", "BIGINT", "Seconds that a message may wait before it is late. Null: no limit"
        ),
    ),
)
OPERATIONS = TableSchema(
    name="operations",
    kind="state",
    comment="Changes by commands to the live cluster: a row when one starts, a row when it ends. No job writes to it",
    key=("operation_id", "status"),
    columns=(
        ColumnSchema("operation_id", "STRING", "Id of the operation; its snapshot file has this name"),
        ColumnSchema("happened_at", "TIMESTAMP", "Time of the row, by the clock of the machine that ran the command"),
        ColumnSchema("kind", "STRING", "reset, import, undo, delete-offsets or delete-groups"),
        ColumnSchema(
            "status",
            "STRING",
            "started; then done, partial (some refused), failed, or ended (no answer). A row with taken is no "
            "operation: it holds the groups for a command that has changed nothing yet, and is removed",
        ),
        ColumnSchema("user_name", "STRING", "User name on that machine, which nobody has verified"),
        ColumnSchema("host", "STRING", "Name of that machine"),
        ColumnSchema("client_version", "STRING", "Version of offsetstream"),
        ColumnSchema("cluster_id", "STRING", "Id of the cluster"),
        ColumnSchema("command", "STRING", "Command line"),
        ColumnSchema("groups", "STRING", "Ids of the groups: a JSON list"),
        ColumnSchema("snapshot", "STRING", "File with the offsets that were committed before"),
        ColumnSchema("changes", "STRING", "Offsets before and after, by partition: a JSON list; null in the end's row"),
        ColumnSchema(
            "result",
            "STRING",
            "Errors of partitions, and why it ended early: JSON; null in the start's row",
        ),
        ColumnSchema(
            "held_by", "STRING", "Process that holds the groups, so that no second operator changes them. Null: none"
        ),
        ColumnSchema(
            "held_until", "TIMESTAMP", "Time at which the hold ends if it is not renewed, by the clock of that machine"
        ),
    ),
)
OPTIONAL_TABLES = {schema.name: schema for schema in (THRESHOLDS, OPERATIONS)}
