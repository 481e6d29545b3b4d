"""The decoded history against a derivation from the records: every manual change is found, and nothing else is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from offsetstream.tables.lease import Lease, note_history_kept_from
from offsetstream.tables.names import DECODED_TABLES, RECORDS
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.retention import thin_history
from offsetstream.tables.rows import belongs_to, decode_on_driver, from_rows
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows, update_rows
from offsetstream.verify import decoded_history
from offsetstream.verify.decoded_history import compare_derivation, decoded_differences
from testkit.changes_model import expected_changes
from testkit.tables import append_rows, new_tables
from tests.spark.log import random_log, raw_rows

Row = dict[str, Any]
RENEWED = 2  # this offsets partition also has an earlier log that has ended
DAY, BEFORE = date(2026, 1, 5), datetime(2025, 1, 1, tzinfo=UTC)
NAMES: dict[str, str] = {}


def records_of(seed: int) -> Iterator[Row]:
    """The group records of one log for each partition."""
    raw = raw_rows(random_log(seed, 50))
    decoded = decode_on_driver(raw)
    names = ("group_id", "key_type", "key_json", "value_version", "value_json", "offsets_partition", "record_offset")
    for row in decoded.filter(belongs_to(RECORDS, decoded)).to_pylist():
        at_ms = round(row["record_timestamp"].timestamp() * 1000)
        yield {name: row[name] for name in names} | {
            "record_timestamp_ms": at_ms,
            "is_tombstone": row["value_json"] is None,
            "log_id": int(row["offsets_partition"] == RENEWED),
        }


@pytest.fixture(scope="module")
def records() -> list[Row]:
    over = [row | {"log_id": 0} for row in records_of(2) if row["offsets_partition"] == RENEWED]
    return [*records_of(1), *over]


@pytest.fixture
def tables(tmp_path: Path, records: list[Row]) -> PathStore:
    """Tables with these records and with the model's decoded rows."""
    found = new_tables(tmp_path / "tables")
    append(found, RECORDS, records)
    for name, rows in expected_changes(records, NAMES).items():
        append(found, name, rows)
    end = 1 + max(row["record_offset"] for row in records)
    for partition, log_id in {(row["offsets_partition"], row["log_id"]) for row in records}:
        log = {"offsets_partition": partition, "log_id": log_id}
        append_rows(Path(found.root), "decoded_logs", [log | {"decoded_from_offset": 0}])
        if log_id == int(partition == RENEWED):
            ends = {"next_offset": end, "next_decoded_offset": end, "history_complete_from": BEFORE}
            append_rows(Path(found.root), "offsets_partitions", [log | ends])
    return found


def append(tables: PathStore, name: str, rows: list[Row], day: date = DAY) -> None:
    """Append rows as a job writes them; times are milliseconds."""
    schema = load_schema(name)
    signed = {"checkpoint_id": 1, "batch_id": 7, "written_day": day}
    table = from_rows([dict.fromkeys(schema.column_names) | row for row in rows], schema.unsigned)
    for column, value in signed.items():
        kind = schema.arrow.field(column).type
        table = table.append_column(column, pa.array([value] * table.num_rows, kind))
    tables.open(name).append([table])


def put(tables: PathStore, name: str, rows: list[Row]) -> None:
    tables.open(name).replace("true", [pa.Table.from_pylist(rows, schema=load_schema(name).arrow)])


def compared_of(records: list[Row]) -> int:
    """How many records are compared: of the log that has ended, only those up to its last change."""
    changed = {
        name: [row for row in rows if row["log_id"] == 0] for name, rows in expected_changes(records, NAMES).items()
    }
    last = max(row["record_offset"] for rows in changed.values() for row in rows if row["offsets_partition"] == RENEWED)
    is_over = [row["offsets_partition"] == RENEWED and row["log_id"] == 0 for row in records]
    return sum(not of_it or row["record_offset"] <= last for row, of_it in zip(records, is_over, strict=True))


def found_in(tables: PathStore) -> list[tuple[Any, ...]]:
    return [
        (each.table, each.value_of("record_offset"), each.group_id, each.column)
        for each in compare_derivation(tables).differences
    ]


def test_correctly_decoded_rows_are_no_difference(tables: PathStore, records: list[Row]) -> None:
    result = compare_derivation(tables)
    assert result.differences == []
    assert (result.records, result.not_compared) == (compared_of(records), 0)
    assert all(len(read_rows(tables.open(name))) > 20 for name in DECODED_TABLES)


@pytest.mark.parametrize("name", DECODED_TABLES)
def test_a_changed_removed_or_doubled_row_is_found(tables: PathStore, name: str) -> None:
    rows = read_rows(tables.open(name))
    for row in rows[:: len(rows) // 2]:
        others = [each for each in rows if each is not row]
        place = (name, row["record_offset"], row["group_id"])
        put(tables, name, others)
        assert (*place, "row") in found_in(tables)
        put(tables, name, [*rows, row])
        assert found_in(tables) == [(*place, "rows")]
        column = {"group_history": "state", "member_history": "client_id", "assignment_history": "epoch"}[name]
        put(tables, name, [*others, row | {column: "other" if column != "epoch" else 9999}])
        assert found_in(tables) == [(*place, column)]
        put(tables, name, [*others, row | {"record_offset": row["record_offset"] + 100_000}])
        assert (*place, "row") in found_in(tables)
    put(tables, name, rows)
    assert found_in(tables) == []


def test_an_undecodable_record_is_named(tables: PathStore) -> None:
    rows = read_rows(tables.open(RECORDS))
    row = next(row for row in rows if row["value_json"] is not None)
    for made_up in ("no JSON", "{}", "[]"):
        put(tables, RECORDS, [each | {"value_json": made_up} if each is row else each for each in rows])
        assert found_in(tables) == [(RECORDS, row["record_offset"], row["group_id"], "value_json")]


def test_comparing_groups_in_portions_covers_all(
    tables: PathStore, monkeypatch: pytest.MonkeyPatch, records: list[Row]
) -> None:
    monkeypatch.setattr(decoded_history, "_AT_ONCE", 25_000)  # less than a log has
    groups = {(row["offsets_partition"], row["log_id"], row["group_id"]) for row in records}
    shares = list(decoded_history.portions(tables, decoded_history.compared_spans(tables)))
    assert 4 < len(shares) < len(groups)
    assert (found_in(tables), compare_derivation(tables).records) == ([], compared_of(records))
    name = "group_history"
    rows = read_rows(tables.open(name))
    put(tables, name, [*rows, rows[0] | {"group_id": "~ nobody's, after all others"}])
    assert [each[::2] for each in found_in(tables)] == [(name, "~ nobody's, after all others")]


def test_records_not_decoded_yet_are_not_compared(tables: PathStore) -> None:
    changes = sorted(row["record_offset"] for row in read_rows(tables.open("group_history"), "offsets_partition = 0"))
    end = changes[len(changes) // 2] + 1
    for name in DECODED_TABLES:
        tables.open(name).replace(f"offsets_partition = 0 AND record_offset >= {end}", [])
    assert any(each[1] >= end for each in found_in(tables))
    decoded = {0: {"next_decoded_offset": end}}
    update_rows(tables.open("offsets_partitions"), lambda row: decoded.get(row["offsets_partition"]))
    assert found_in(tables) == []


def test_rows_that_retention_thinned_are_not_compared(tables: PathStore) -> None:
    ends = defaultdict[tuple[int, int], list[int]](list)
    for row in read_rows(tables.open("group_history")):
        ends[row["offsets_partition"], row["log_id"]].append(row["record_offset"])
    middle = {log: sorted(offsets)[len(offsets) // 2] for log, offsets in ends.items()}
    middle[RENEWED, 0] = max(ends[RENEWED, 0]) + 99  # all of it is from before the current log
    for name in (RECORDS, *DECODED_TABLES):
        rows = read_rows(tables.open(name))
        early = [row for row in rows if row["record_offset"] <= middle[row["offsets_partition"], row["log_id"]]]
        for row in early:
            row["written_day"] = DAY - timedelta(days=30)
        put(tables, name, rows)
    Lease.acquire(tables).release()
    note_history_kept_from(tables, datetime.combine(DAY, datetime.min.time(), UTC))
    assert all(thin_history(tables, load_schema(name), DAY) for name in (RECORDS, *DECODED_TABLES))
    assert found_in(tables) == []
    name = "member_history"
    row = next(row for row in read_rows(tables.open(name)) if row["written_day"] == DAY)
    tables.open(name).replace(f"record_offset = {row['record_offset']}", [])
    assert (name, row["record_offset"], row["group_id"], "row") in found_in(tables)


def test_a_group_ended_by_a_load_is_compared_up_to_that_load(tables: PathStore, records: list[Row]) -> None:
    """Compaction had removed the record. From then on it is unknown which of its cells went."""
    place = {"offsets_partition": 0, "log_id": 0}
    of_log = [row for row in read_rows(tables.open("group_history")) if row.items() >= place.items()]
    last = {row["group_id"]: row for row in sorted(of_log, key=lambda row: row["record_offset"])}
    ended = next(row for row in last.values() if not row["is_removed"])
    end = max(row["record_offset"] for row in records if row["offsets_partition"] == 0)
    closing = ended | {"is_removed": True, "record_offset": end, "batch_id": -1, "record_timestamp": BEFORE}
    rows = read_rows(tables.open("group_history"))
    put(tables, "group_history", [*rows, closing])
    result = compare_derivation(tables)
    assert (result.differences, result.not_compared) == ([], 1)
    put(tables, "group_history", [*(row for row in rows if row != ended), closing])
    assert ("group_history", ended["record_offset"], ended["group_id"], "row") in found_in(tables)
    # Where the history is complete, it is a difference.
    put(tables, "group_history", [*rows, closing | {"record_timestamp": BEFORE + timedelta(seconds=1)}])
    assert found_in(tables) == [("group_history", end, ended["group_id"], "row")]


LOG = {"offsets_partition": 0, "log_id": 0}
OF_ALL = LOG | {"group_id": "g", "member_id": "m", "kind": "assigned", "partition": 0, "topic_id": "an-id"}


@pytest.fixture
def at_end(tmp_path: Path) -> PathStore:
    """Tables of a log that is decoded as far as it is applied."""
    found = new_tables(tmp_path / "at-end")
    add(found, "offsets_partitions", LOG | {"next_offset": 9, "next_decoded_offset": 9})
    add(found, "decoded_logs", LOG | {"decoded_from_offset": 0})
    return found


def add(tables: PathStore, name: str, row: Row) -> None:
    append_rows(Path(tables.root), name, [row])


def test_an_assignment_is_the_same_when_its_topics_name_is_learned_later(at_end: PathStore) -> None:
    add(at_end, "assignment_history", OF_ALL | {"topic": "an-id", "record_offset": 1, "change": "assigned"})
    add(at_end, "member_assignments", OF_ALL | {"topic": "orders", "record_offset": 1})
    assert decoded_differences(at_end) == []
    add(at_end, "assignment_history", OF_ALL | {"topic": "orders", "record_offset": 2, "change": "revoked"})
    (found,) = decoded_differences(at_end)
    assert (found.table, found.column, found.in_tables) == ("assignment_history", "row", False)
    at_end.open("member_assignments").replace("true", [])
    assert decoded_differences(at_end) == []
    for topic in ("orders", "payments"):  # a classic group names its topics
        classic = OF_ALL | {"topic_id": None, "topic": topic}
        add(at_end, "assignment_history", classic | {"record_offset": 3, "change": "assigned"})
        add(at_end, "member_assignments", classic | {"record_offset": 3})
    assert decoded_differences(at_end) == []


def test_a_load_may_end_at_a_record_of_the_group_that_it_ended(tables: PathStore) -> None:
    """Chaos with compaction found it: two members were gone after the last record that the load read, their own."""
    rows = read_rows(tables.open("group_history"))
    place = {"offsets_partition": 0, "log_id": 0}
    of_log = [row for row in rows if row.items() >= place.items()]
    last = max(of_log, key=lambda row: row["record_offset"])
    other = last | {"state": "Dead", "batch_id": -1, "record_timestamp": BEFORE}
    put(tables, "group_history", [*(row for row in rows if row is not last), other])
    result = compare_derivation(tables)
    assert (result.differences, result.not_compared) == ([], 1)
    # Where the history is complete, it is a difference.
    complete = other | {"record_timestamp": BEFORE + timedelta(seconds=1)}
    put(tables, "group_history", [*(row for row in rows if row is not last), complete])
    assert ("group_history", last["record_offset"], last["group_id"], "state") in found_in(tables)
