"""The decoded history compared with the state tables: the last change of a group, member or assignment is its row."""

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
# Of the step or of its one record; what tells the row's place; the name that an id may have got meanwhile.
_UNCOMPARED = {"record_offset", "record_timestamp", "log_id", "in_coordinator_partition"}
_LAST = (
    "SELECT {columns} FROM (SELECT *, row_number() OVER (PARTITION BY {cell} ORDER BY record_offset DESC) AS nth "
    "FROM rows WHERE {logs}) r WHERE nth = 1 AND NOT ({gone})"
)


def decoded_differences(tables: Store) -> list[Difference]:
    """Return where the decoded history ends otherwise than the state tables are.

    Of logs that are not decoded from their start (`maintain --fill-history`) only what the history has is compared.
    """
    if tables.opened(DECODED_LOGS) is None:  # tables of an older version
        return []
    found = set(_differences(tables))
    # A job may be at it, which writes one after the other.
    return [each for each in _differences(tables) if each in found] if found else []


def _differences(tables: Store) -> Iterator[Difference]:
    starts = {
        (row["offsets_partition"], row["log_id"]): row["decoded_from_offset"]
        for row in read_rows(tables.open(DECODED_LOGS))
    }
    # A step that a batch ended within is in the state, and not decoded yet.
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
    # A row of no record is that of a group that has offsets only.
    stored = tables.open(state).rows(f"({where}) AND record_offset IS NOT NULL", columns)
    theirs = (_unnamed(row) for part in stored for row in part.to_pylist())
    alone, pairs = row_differences(history, schema.key, ours, theirs, STATE)
    yield from (each for each in alone if each.in_tables or each.value_of("offsets_partition") in whole)
    yield from value_differences(history, schema.key, pairs, columns, STATE)


def _unnamed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without the name of a topic that has an id: the history has the one known then."""
    return row if row.get("topic_id") is None else row | {"topic": None}
