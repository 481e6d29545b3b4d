"""Optional tables that the job neither creates nor reads. A missing one counts as empty."""

from __future__ import annotations

from offsetstream.tables.schema import ColumnSchema, TableSchema

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
