"""Compare the decoded history with the state tables: the last change of each cell must be its row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from offsetstream.tables.names import (
    ASSIGNMENT_HISTORY,
    ASSIGNMENTS,
    DECODED_LOGS,
    GROUP_HISTORY,
    GROUPS,
    MEMBER_HISTORY,
    OFFSETS_PARTITIONS,
)
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import Store
from offsetstream.verify.difference import Difference, row_differences, value_differences

STATE = "state tables"
_OF = {GROUP_HISTORY: GROUPS, MEMBER_HISTORY: "group_members", ASSIGNMENT_HISTORY: ASSIGNMENTS}
# These depend on the step or its record, give the row's place, or name a topic id that was renamed meanwhile.
_UNCOMPARED = {"record_offset", "record_timestamp", "log_id", "in_coordinator_partition"}
_LAST = (
    "SELECT {columns} FROM (SELECT *, row_number() OVER (PARTITION BY {cell} ORDER BY record_offset DESC) AS nth "
    "FROM rows WHERE {logs}) r WHERE nth = 1 AND NOT ({gone})"
)


def decoded_differences(tables: Store) -> list[Difference]:
    """Return where the end of the decoded history differs from the state tables.

    In a log that is not decoded from its start (`maintain --fill-history`), only rows of the history are compared.
    """
    if tables.opened(DECODED_LOGS) is None:  # tables of an older version
        return []
    found = set(_differences(tables))
    # A running job writes the tables one after the other: keep only lasting differences.
    return [each for each in _differences(tables) if each in found] if found else []


def _differences(tables: Store) -> Iterator[Difference]:
    starts = {
        (row["offsets_partition"], row["log_id"]): row["decoded_from_offset"]
        for row in read_rows(tables.open(DECODED_LOGS))
    }
    # If a batch ended within a step, the state has the step, but it is not decoded yet.
    logs = {
        row["offsets_partition"]: row["log_id"]
        for row in read_rows(tables.open(OFFSETS_PARTITIONS))
        if (row["offsets_partition"], row["log_id"]) in starts and row["next_decoded_offset"] == row["next_offset"]
    }
    whole = {number for number, log_id in logs.items() if starts[number, log_id] == 0}
    for history, state in _OF.items():
        yield from _of_table(tables, history, state, logs, whole)


def _of_table(tables: Store, history: str, state: str, logs: dict[int, int], whole: set[int]) -> Iterator[Difference]:
    schema = load_schema(state)
    columns = [name for name in schema.column_names if name not in _UNCOMPARED]
    where = " OR ".join(f"(offsets_partition = {p} AND log_id = {log_id})" for p, log_id in logs.items()) or "false"
    query = _LAST.format(
        columns=", ".join(columns),
        cell=load_schema(history).cell_sql,
        logs=where,
        gone=load_schema(history).gone,
    )
    ours = map(_unnamed, tables.open(history).query(query).read_all().to_pylist())
    # A row without a record belongs to a group that has only offsets.
    stored = tables.open(state).rows(f"({where}) AND record_offset IS NOT NULL", columns)
    theirs = (_unnamed(row) for part in stored for row in part.to_pylist())
    alone, pairs = row_differences(history, schema.key, ours, theirs, STATE)
    yield from (each for each in alone if each.in_tables or each.value_of("offsets_partition") in whole)
    yield from value_differences(history, schema.key, pairs, columns, STATE)


def _unnamed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without the topic name if it has an id: the history keeps the name of that time."""
    return row if row.get("topic_id") is None else row | {"topic": None}
