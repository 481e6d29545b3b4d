"""Names of the tables, and of the load states of an offsets partition."""

from __future__ import annotations

from typing import Literal, TypeAlias

COMMITTED_OFFSETS, GROUP_CELLS = "committed_offsets", "group_cells"
CELL_TABLES = (COMMITTED_OFFSETS, GROUP_CELLS)
GROUPS, ASSIGNMENTS = "groups", "member_assignments"
DERIVED_TABLES = (GROUPS, "group_members", ASSIGNMENTS, "member_subscriptions")
STATE_TABLES = (*CELL_TABLES, *DERIVED_TABLES)

COMMITS, RECORDS, UNDECODABLE = "offset_commits", "group_records", "undecodable_records"
RECORD_TABLES = (COMMITS, RECORDS, UNDECODABLE)
LEDGER = "history_ledger"
GROUP_HISTORY, MEMBER_HISTORY, ASSIGNMENT_HISTORY = "group_history", "member_history", "assignment_history"
DECODED_TABLES = (GROUP_HISTORY, MEMBER_HISTORY, ASSIGNMENT_HISTORY)
DECODED_LOGS = "decoded_logs"

OFFSETS_PARTITIONS, PARTITION_EVENTS = "offsets_partitions", "partition_events"
TOPICS, JOB_LEASE = "topics", "job_lease"
TOPIC_PARTITIONS, END_OFFSETS, CLUSTER = "topic_partitions", "end_offsets", "cluster"

LoadState: TypeAlias = Literal["LOADING", "OWNED", "FAILED", "UNLOADED"]
LOADING: LoadState = "LOADING"
OWNED: LoadState = "OWNED"
FAILED: LoadState = "FAILED"
UNLOADED: LoadState = "UNLOADED"
