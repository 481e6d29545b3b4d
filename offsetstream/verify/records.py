"""Compare the state tables with the records that the job keeps. This checks what no cluster reports.

Groups, members, assignments and subscriptions are derived again from `group_cells`. Committed offsets and cells are
compared with the history rows of the same record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from offsetstream.coordinator.reduction import GROUP_KEY_TYPES
from offsetstream.coordinator.rows import Cell, Row
from offsetstream.tables.names import DERIVED_TABLES
from offsetstream.tables.names import RECORDS as GROUP_RECORDS
from offsetstream.tables.placement import RECORDS as LATEST_RECORDS
from offsetstream.tables.placement import Placement, latest_homes
from offsetstream.tables.rows import cell_of, flat_rows, from_rows, rows_of_group
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import Store
from offsetstream.verify.difference import RECORDS, Difference, row_differences, value_differences

HISTORY = {"committed_offsets": "offset_commits", "group_cells": "group_records"}
_RECORD = ("log_id", "offsets_partition", "record_offset")
REMOVALS = "removals"  # of groups whose offsets are left, by the tombstones in the history


def read_records(tables: Store) -> dict[str, list[Row]]:
    """Read the state tables, topics and partitions, and the history records of the state rows."""
    names = (*DERIVED_TABLES, *HISTORY, "topics", "offsets_partitions")
    rows = {name: read_rows(tables.open(name)) for name in names}
    rows |= {history: _records_of(tables, state, history) for state, history in HISTORY.items()}
    return rows | {REMOVALS: _removals(tables, rows)}


def _records_of(tables: Store, state: str, history: str) -> list[Row]:
    same = " AND ".join(f"h.{name} = s.{name}" for name in _RECORD)
    query = f"SELECT h.* FROM rows h JOIN s ON {same}"  # noqa: S608 - the program's own SQL
    found: list[Row] = tables.open(history).query(query, s=tables.open(state)).read_all().to_pylist()
    return found


def _removals(tables: Store, rows: Mapping[str, list[Row]]) -> list[Row]:
    """Return the last tombstones of groups that are not in the tables, while offsets of them are.

    No coordinator leaves offsets when it removes a group, but another program may write such a log.
    """
    if not {_group(row) for row in rows["committed_offsets"]} - {_group(row) for row in rows["groups"]}:
        return []
    kinds = ", ".join(map(str, GROUP_KEY_TYPES))
    columns = "log_id, offsets_partition, group_id"
    query = (
        f"SELECT {columns}, max(record_offset) AS record_offset FROM rows "  # noqa: S608 - the program's own SQL
        f"WHERE is_tombstone AND key_type IN ({kinds}) GROUP BY {columns}"
    )
    found: list[Row] = tables.open(GROUP_RECORDS).query(query).read_all().to_pylist()
    return found


def disagreements(rows: Mapping[str, list[Row]]) -> list[Difference]:
    """Return every difference between the state tables and the records."""
    derived = _derived(rows)
    found: list[Difference] = []
    for table in DERIVED_TABLES:
        schema = load_schema(table)
        theirs = from_rows(derived[table], schema).to_pylist()
        alone, pairs = row_differences(table, schema.key, rows[table], theirs, RECORDS)
        found += [*alone, *value_differences(table, schema.key, pairs, schema.column_names)]
    for state, history in HISTORY.items():
        found += _against_history(rows, state, history)
    return sorted(found, key=lambda each: (each.table, str(each.key), each.column))


def _against_history(rows: Mapping[str, list[Row]], state: str, history: str) -> Iterator[Difference]:
    """Yield the differences between state rows and their records."""
    key = load_schema(state).key
    columns = [name for name in load_schema(state).column_names if name in load_schema(history).column_names]
    logs = {row["offsets_partition"]: row["log_id"] for row in rows["offsets_partitions"]}
    kept = {row["offsets_partition"] for row in rows["offsets_partitions"] if row["history_complete_from"] is not None}
    placement = _placement(rows)
    records = {tuple(row[name] for name in _RECORD): row for row in rows[history]}
    for row in rows[state]:
        if row["offsets_partition"] not in kept:
            continue  # the job keeps no history (--no-history)
        place = tuple(row[name] for name in key)
        log_id = logs.get(row["offsets_partition"])
        record = records.get((log_id, row["offsets_partition"], row["record_offset"]))
        if record is None or place != tuple(record[name] for name in key):
            yield Difference(state, key, place, "record_offset", row["record_offset"], None, RECORDS)
            continue
        told = {**record, "in_coordinator_partition": placement.is_own(row["group_id"], row["offsets_partition"])}
        yield from value_differences(state, key, [(place, row, told)], [*columns, "in_coordinator_partition"])


def _derived(rows: Mapping[str, list[Row]]) -> dict[str, list[Row]]:
    cells: dict[tuple[int, str], list[Cell]] = defaultdict(list)
    for row in rows["group_cells"]:
        cells[row["offsets_partition"], row["group_id"]].append(cell_of(row))
    names = {row["topic_id"]: row["topic"] for row in rows["topics"]}
    logs = {row["offsets_partition"]: row["log_id"] for row in rows["offsets_partitions"]}
    # An offset shows that its group exists, unless a later tombstone removed the group. Without offsets and own
    # records, only the coordinator knows the group.
    removed = {(row["log_id"], *_group(row)): row["record_offset"] for row in rows[REMOVALS]}
    committed = (
        _group(row)
        for row in rows["committed_offsets"]
        if row["record_offset"] > removed.get((row["log_id"], *_group(row)), -1)
    )
    existing = {*map(_group, rows["groups"]), *committed}
    found: dict[str, list[Row]] = {table: [] for table in DERIVED_TABLES}
    placement = _placement(rows)
    for key in existing | cells.keys():
        place = {
            "offsets_partition": key[0],
            "log_id": logs.get(key[0], 0),
            "in_coordinator_partition": placement.is_own(key[1], key[0]),
        }
        derived = rows_of_group(cells[key], key[1], names, exists=key in existing, place=place)
        for table, of_group in (derived or {}).items():
            found[table] += flat_rows(of_group)
    return found


def _group(row: Row) -> tuple[int, str]:
    return row["offsets_partition"], row["group_id"]


def _placement(rows: Mapping[str, list[Row]]) -> Placement:
    """Return each group's own partition by the rule that the tables name, computed again from the record times."""
    partitions = rows["offsets_partitions"]
    if all(row.get("placement_rule") != LATEST_RECORDS for row in partitions):
        return Placement(len(partitions))
    copies = (
        {**row, "newest": row["record_timestamp"]}
        for table in ("committed_offsets", "group_cells", "groups")
        for row in rows[table]
    )
    return Placement(len(partitions), latest_homes(copies))
