"""Tables beside those of the job, which neither makes nor reads them: absent is as empty."""

from __future__ import annotations

from offsetstream.tables.schema import ColumnSchema, TableSchema

THRESHOLDS = TableSchema(
    name="thresholds",
    kind="state",
    comment="Yours: when the views call a group slow, late or dead. No job writes to it",
    key=("group_id",),
    columns=(
        ColumnSchema(
            "group_id", "STRING", "Group id; null for all groups, where their own row has a null or is not there"
        ),
        ColumnSchema("allowed_lag", "BIGINT", "Messages that may wait: such a lag counts as none. Null: 0"),
        ColumnSchema("minimum_complete", "DOUBLE", "Share of the window of commits that is judged at least. Null: 0"),
        ColumnSchema("intervals", "INT", "Commits in that window, and samples of the log's end. Null: 10"),
        ColumnSchema("window_seconds", "BIGINT", "How far back the verdict looks, in seconds. Null: 300"),
        ColumnSchema("max_time_lag_seconds", "BIGINT", "Seconds that a message may wait before it is late. Null: any"),
    ),
)
OPERATIONS = TableSchema(
    name="operations",
    kind="state",
    comment="What commands did to the live cluster: a row when one begins, and one when it ends. No job writes to it",
    key=("operation_id", "status"),
    columns=(
        ColumnSchema("operation_id", "STRING", "Id of the operation; its snapshot's file is named by it"),
        ColumnSchema("happened_at", "TIMESTAMP", "Time of the row, by the clock of the machine that ran the command"),
        ColumnSchema("kind", "STRING", "reset, import, undo, delete-offsets or delete-groups"),
        ColumnSchema("status", "STRING", "started; then done, partial (some refused), failed, or ended (no answer)"),
        ColumnSchema("user_name", "STRING", "User of that machine: what it said, which nobody has checked"),
        ColumnSchema("host", "STRING", "Name of that machine"),
        ColumnSchema("client_version", "STRING", "Version of offsetstream"),
        ColumnSchema("cluster_id", "STRING", "Id of the cluster"),
        ColumnSchema("command", "STRING", "Command line"),
        ColumnSchema("groups", "STRING", "Ids of the groups: a JSON list"),
        ColumnSchema("snapshot", "STRING", "File of what was committed before"),
        ColumnSchema("changes", "STRING", "Offsets before and after of each partition: a JSON list; null when it ends"),
        ColumnSchema("result", "STRING", "Errors of partitions, and what ended it: JSON; null when it begins"),
    ),
)
BESIDE = {schema.name: schema for schema in (THRESHOLDS, OPERATIONS)}
