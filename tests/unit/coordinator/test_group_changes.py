"""Changes of groups in random logs, as brokers write them, equal those of a plain derivation (testkit)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offsetstream.codec.batches import LogRecord
from offsetstream.codec.decoding import COMMIT_KEY_TYPES, decode_records
from offsetstream.coordinator.groups import derive_group
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.group_history.decoding import Span, decoded_changes
from offsetstream.tables.names import ASSIGNMENT_HISTORY, DECODED_TABLES, GROUP_HISTORY, MEMBER_HISTORY
from offsetstream.tables.rows import cell_of, flat_rows
from testkit.changes_model import expected_changes
from testkit.examples import examples
from tests.conformance.histories import History
from tests.conformance.pure_tables import consumed
from tests.conformance.valid_histories import valid_histories

Row = dict[str, Any]
PARTITION = ("member_id", "kind", "subtopology_id", "topic_id", "topic", "partition")
NOTHING_WRITTEN: dict[str, dict[int, int]] = {table: {} for table in DECODED_TABLES}
coordinators: st.SearchStrategy[Coordinator] = st.sampled_from(("new", "classic"))
random_logs = settings(max_examples=examples(80), suppress_health_check=[HealthCheck.too_slow])
histories = coordinators.flatmap(valid_histories)


def group_records(records: Iterable[LogRecord]) -> Iterator[Row]:
    """Return the log's rows of `group_records`. Every ten records share a timestamp, so that there are many steps."""
    for record in records:
        if record.key is None:
            continue
        (row,) = decode_records([record.key], [record.value]).to_pylist()
        if row["error"] is None and row["key_type"] not in COMMIT_KEY_TYPES:
            at = record.offset // 10 * 1000
            yield row | {
                "offsets_partition": 0,
                "log_id": 0,
                "record_offset": record.offset,
                "record_timestamp": datetime.fromtimestamp(at / 1000, UTC),
                "record_timestamp_ms": at,
                "is_final": False,
            }


def decoded(records: Iterable[Row], span: Span, written: Any = NOTHING_WRITTEN) -> dict[str, list[Row]]:
    ordered = sorted(records, key=lambda row: (row["group_id"], row["is_final"], row["record_offset"]))
    found: dict[str, list[Row]] = {table: [] for table in DECODED_TABLES}
    for changes in decoded_changes(ordered, {(0, 0): span}, {}, written):
        for table, rows in changes.items():
            found[table] += flat_rows(rows)
    return found


def counted(rows: dict[str, list[Row]]) -> dict[str, Counter[str]]:
    return {table: Counter(str(sorted(row.items())) for row in own) for table, own in rows.items()}


@random_logs
@given(histories)
def test_changes_equal_the_difference_between_derived_rows_before_and_after_each_step(history: History) -> None:
    records = list(group_records(consumed(history.batches)))
    assert counted(decoded(records, Span(0, 10**9))) == counted(expected_changes(records, {}))


@random_logs
@given(histories, st.data())
def test_a_log_decoded_in_pieces_gives_the_same_changes(history: History, data: st.DataObject) -> None:
    """The last record of each cell, as in the state tables, gives the state before a piece."""
    records = list(group_records(consumed(history.batches)))
    at = data.draw(st.sampled_from([0, *(row["record_offset"] + 1 for row in records)]))
    cells = {(row["group_id"], row["key_type"], row["key_json"]): row for row in records if row["record_offset"] < at}
    before = [row for row in cells.values() if row["value_json"] is not None]
    first = decoded([row for row in records if row["record_offset"] < at], Span(0, at))
    second = decoded([*before, *(row for row in records if row["record_offset"] >= at)], Span(at, 10**9))
    whole = expected_changes(records, {}, {(0, 0): {at - 1}})
    assert counted({table: first[table] + second[table] for table in DECODED_TABLES}) == counted(whole)


@random_logs
@given(histories, st.data())
def test_changes_that_were_written_before_are_not_written_again(history: History, data: st.DataObject) -> None:
    records = list(group_records(consumed(history.batches)))
    offsets = [-1, *(row["record_offset"] for row in records)]
    written = {table: {0: data.draw(st.sampled_from(offsets))} for table in DECODED_TABLES}
    ends = frozenset(of_table[0] for of_table in written.values())
    whole = expected_changes(records, {}, {(0, 0): ends})
    left = {
        table: [row for row in whole[table] if row["record_offset"] > written[table][0]] for table in DECODED_TABLES
    }
    assert counted(decoded(records, Span(0, 10**9, steps_end_at=ends), written)) == counted(left)


@random_logs
@given(histories, st.data())
def test_members_whose_tombstones_were_never_read_leave_at_the_end(history: History, data: st.DataObject) -> None:
    """If the log was compacted meanwhile, the changes lead to the records that are left.

    The last record may be of such a group, too: two rows of one offset would not tell which of them is the last.
    """
    records = list(group_records(consumed(history.batches)))
    lost = data.draw(st.sets(st.sampled_from(range(len(records))))) if records else set()
    read = [row for number, row in enumerate(records) if number not in lost]
    end = (read[-1]["record_offset"] if read else 0) + data.draw(st.sampled_from([1, 5]))
    records = [row for row in records if row["record_offset"] < end]
    cells = {(row["group_id"], row["key_type"], row["key_json"]): row for row in records}
    final = [row | {"is_final": True} for row in cells.values() if row["value_json"] is not None]
    found = decoded([*read, *final], Span(0, end, is_closed=True, closed_at_ms=9))
    assert folded(found) == folded(expected_changes(records, {}))
    rows = Counter((row["group_id"], row["record_offset"]) for row in found[GROUP_HISTORY])
    assert set(rows.values()) <= {1}


@random_logs
@given(histories, st.data())
def test_without_unread_records_nothing_changes_at_the_end(history: History, data: st.DataObject) -> None:
    """The state at the end comes from records of the span, or older ones."""
    records = list(group_records(consumed(history.batches)))
    at = data.draw(st.sampled_from([0, *(row["record_offset"] + 1 for row in records)]))
    older, new = ([row for row in records if (row["record_offset"] < at) is is_older] for is_older in (True, False))
    before, final = (
        [row for row in {(r["group_id"], r["key_type"], r["key_json"]): r for r in rows}.values() if row["value_json"]]
        for rows in (older, records)
    )
    left = [row | {"is_final": True} for row in final]
    found = decoded([*before, *new, *left], Span(at, 10**9, is_closed=True, closed_at_ms=9))
    first = decoded(older, Span(0, at))
    whole = expected_changes(records, {}, {(0, 0): {at - 1}})
    assert counted({table: first[table] + found[table] for table in DECODED_TABLES}) == counted(whole)


def folded(changes: dict[str, list[Row]]) -> dict[str, dict[Any, Row]]:
    """Return the state after all changes, by key."""
    keys = {
        GROUP_HISTORY: ("group_id",),
        MEMBER_HISTORY: ("group_id", "member_id"),
        ASSIGNMENT_HISTORY: ("group_id", *PARTITION),
    }
    result: dict[str, dict[Any, Row]] = {table: {} for table in DECODED_TABLES}
    for table, rows in changes.items():
        for row in sorted(rows, key=lambda each: each["record_offset"]):
            key = tuple(row[name] for name in keys[table])
            if row.get("is_removed") or row.get("change") in ("left", "revoked"):
                del result[table][key]
            else:
                unsaid = ("record_offset", "record_timestamp_ms", "change", "epoch")
                result[table][key] = {name: value for name, value in row.items() if name not in unsaid}
    return result


@random_logs
@given(histories)
def test_changes_add_up_to_the_rows_of_the_state_tables(history: History) -> None:
    records = list(group_records(consumed(history.batches)))
    cells: dict[str, dict[Any, Row]] = {}
    for row in records:
        own, key = cells.setdefault(row["group_id"], {}), (row["key_type"], row["key_json"])
        own.pop(key, None)
        if row["value_json"] is not None:
            own[key] = row
    found = folded(decoded(records, Span(0, 10**9)))
    expected: dict[str, set[Any]] = {table: set() for table in DECODED_TABLES}
    for group, own in cells.items():
        rows = derive_group([cell_of(row) for row in own.values()], group_id=group, exists=False)
        if rows is not None:
            expected[GROUP_HISTORY].add((group, rows.group["state"], rows.group["member_count"]))
            expected[MEMBER_HISTORY] |= {(group, row["member_id"], row["member_epoch"]) for row in rows.members}
            expected[ASSIGNMENT_HISTORY] |= {(group, *(row[name] for name in PARTITION)) for row in rows.assignments}
    assert expected == {
        GROUP_HISTORY: {(*key, row["state"], row["member_count"]) for key, row in found[GROUP_HISTORY].items()},
        MEMBER_HISTORY: {(*key, row["member_epoch"]) for key, row in found[MEMBER_HISTORY].items()},
        ASSIGNMENT_HISTORY: set(found[ASSIGNMENT_HISTORY]),
    }
