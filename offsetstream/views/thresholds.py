"""The user's own table beside ours: when the views call a group slow, late or dead. Absent is as empty."""

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
