"""Retention compared with simple models.

Histories: removed rows, kept rows, and results for past times. End offsets: the last sample of each minute or hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetstream.tables import retention
from offsetstream.tables.names import END_OFFSETS
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.path_store.snapshot import PathSnapshot
from offsetstream.tables.retention import ThinDay, due_days, thin_day, thin_history
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import Transaction
from testkit.tables import new_tables
from tests.unit.tables.small_writes import Between

Row = dict[str, Any]
TODAY = date(2030, 6, 10)
HORIZON = TODAY - timedelta(days=3)
CELLS: dict[str, list[Row]] = {
    "offset_commits": [{"group_id": group, "topic": "orders", "partition": n} for group in ("a", "b'") for n in (0, 1)],
    "group_records": [
        {"key_type": kind, "key_json": f'{{"k":{n}}}', "group_id": "g"} for kind in (2, 3) for n in (0, 1)
    ],
    "group_history": [{"group_id": group} for group in "abcd"],
    "member_history": [{"group_id": group, "member_id": member} for group in "ab" for member in "cd"],
}
# For each history: the values of a tombstone row, and the values of a row whose cell exists.
GONE: dict[str, list[Row]] = {
    "group_history": [{"is_removed": True}, {"is_removed": False}],
    "member_history": [{"change": "left"}, {"change": "changed"}],
}
TOMBSTONE: list[Row] = [{"is_tombstone": True}, {"is_tombstone": False}]


def append(tables: PathStore, name: str, rows: Iterable[Row]) -> None:
    """Append rows with any days of writing, in two batches."""
    schema, filled = load_schema(name), [dict.fromkeys(load_schema(name).column_names) | row for row in rows]
    for batch in (filled[::2], filled[1::2]):
        write_deltalake(tables.table(name), pa.Table.from_pylist(batch, schema=schema.arrow), mode="append")


def rows(tables: PathStore, name: str) -> list[Row]:
    return sorted(read_rows(tables.open(name)), key=place)


def place(row: Row) -> tuple[Any, ...]:
    return row["offsets_partition"], row["log_id"], row["record_offset"]


def history(name: str, seed: int, count: int = 40) -> list[Row]:
    """Records of two offsets partitions in the order of their offsets; partition 1 starts a new log midway."""
    rng, found = Random(f"{name}{seed}"), []
    for partition in (0, 1):
        days = sorted(TODAY - timedelta(days=rng.randrange(9)) for _ in range(count))
        for at, day in enumerate(days):
            renewed = partition == 1 and at > count // 2
            written = datetime.combine(day, time(rng.randrange(24)), UTC)
            found.append(
                rng.choice(CELLS[name])
                | {"offsets_partition": partition, "log_id": int(renewed), "record_offset": at % 21 if renewed else at}
                | GONE.get(name, TOMBSTONE)[rng.random() > 0.4]
                | {"record_timestamp": written, "written_day": day}
            )
    return found


def cell_of(name: str, row: Row) -> tuple[Any, ...]:
    return tuple(row[column] for column in load_schema(name).cell)


def answer(name: str, history: Iterable[Row], before: date) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return the state at the start of the day: the last row of each cell, unless it is a tombstone."""
    last: dict[tuple[Any, ...], Row] = {}
    for row in sorted(history, key=place):
        if row["written_day"] < before:
            last[cell_of(name, row)] = row
    return {cell: place(row) for cell, row in last.items() if not is_gone(name, row)}


def is_gone(name: str, row: Row) -> bool:
    return row.items() >= GONE.get(name, TOMBSTONE)[0].items()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", CELLS)
def test_retention_keeps_exactly_the_rows_that_results_within_the_horizon_need(
    tables: PathStore, name: str, seed: int
) -> None:
    before = history(name, seed)
    append(tables, name, before)
    thinned = thin_history(tables, load_schema(name), HORIZON, dry_run=True)
    assert len(rows(tables, name)) == len(before)
    assert thin_history(tables, load_schema(name), HORIZON) == thinned > 0
    after = rows(tables, name)
    assert len(after) == len(before) - thinned
    for days in range(4):  # including the end of today
        day = HORIZON + timedelta(days=days)
        assert answer(name, after, day) == answer(name, before, day)
    within = [place(row) for row in before if row["written_day"] >= HORIZON]
    assert [place(row) for row in after if row["written_day"] >= HORIZON] == sorted(within)
    kept = [row for row in after if row["written_day"] < HORIZON]
    ends = {(row["offsets_partition"], row["log_id"]): row["record_offset"] for row in sorted(before, key=place)}
    for row in kept:  # one row per cell, and tombstones only at the end of a log
        assert not is_gone(name, row) or ends[row["offsets_partition"], row["log_id"]] == row["record_offset"]
    assert len({cell_of(name, row) for row in kept}) == len(kept)
    for log in ((0, 0), (1, 1)):  # the current logs: a load must not append known records again
        assert max(row["record_offset"] for row in after if place(row)[:2] == log) == ends[log]
    assert thin_history(tables, load_schema(name), HORIZON) == 0


def test_the_last_record_of_a_log_stays_even_if_it_is_a_tombstone(tables: PathStore) -> None:
    """A load reads there up to where the history is written; without it, the load would append the record again."""
    of_all = {"offsets_partition": 0, "log_id": 0, "group_id": "a", "topic": "orders", "partition": 0}
    days = [date(2030, 1, 1), date(2030, 1, 2), date(2030, 1, 3)]
    append(
        tables,
        "offset_commits",
        [of_all | {"written_day": day, "record_offset": at, "is_tombstone": at > 0} for at, day in enumerate(days)],
    )
    thin_history(tables, load_schema("offset_commits"), HORIZON)
    assert [row["record_offset"] for row in rows(tables, "offset_commits")] == [2]


def test_an_interrupted_run_is_finished_by_the_next(tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    name, before = "offset_commits", history("offset_commits", 3)
    append(tables, name, before)
    days = sorted({row["written_day"] for row in before if row["written_day"] < HORIZON})
    whole = retention._thin_day

    def die_at_last_day(tables: PathStore, schema: Any, day: str, horizon: date, dry_run: bool) -> int:
        if day == str(days[-1]):
            raise KeyboardInterrupt
        return whole(tables, schema, day, horizon, dry_run)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(retention, "_thin_day", die_at_last_day)
        thin_history(tables, load_schema(name), HORIZON)
    assert answer(name, rows(tables, name), HORIZON) == answer(name, before, HORIZON)
    thin_history(tables, load_schema(name), HORIZON)
    assert answer(name, rows(tables, name), HORIZON) == answer(name, before, HORIZON)


def test_the_log_decides_which_row_is_last_when_a_clock_went_back(tables: PathStore) -> None:
    """The newer record has the earlier day, and so has a tombstone, whose deleted commit must not come back."""
    first, second = date(2030, 1, 1), date(2030, 1, 2)
    written = [("a", second, 100, False), ("a", first, 101, False), ("b", second, 110, False), ("b", first, 111, True)]
    written.append(("z", second, 200, False))  # the end of the log
    of_all = {"offsets_partition": 0, "log_id": 0, "topic": "orders", "partition": 0}
    columns = ("group_id", "written_day", "record_offset", "is_tombstone")
    append(tables, "offset_commits", [of_all | dict(zip(columns, row, strict=True)) for row in written])
    for kept in ([101, 111, 200], [101, 200]):
        thin_history(tables, load_schema("offset_commits"), HORIZON)
        assert [row["record_offset"] for row in rows(tables, "offset_commits")] == kept


def test_the_last_event_of_each_kind_and_partition_stays(tables: PathStore) -> None:
    def event(partition: int, what: str, load_id: int, days: int) -> Row:
        at = datetime.combine(TODAY - timedelta(days=days), time(1), UTC)
        columns = {"offsets_partition": partition, "log_id": 0, "event": what, "load_id": load_id}
        return columns | {"event_at": at, "written_day": at.date()}

    gone = [event(0, "loaded", 1, 8), event(0, "unloaded", 1, 7)]
    kept = [event(0, "loaded", 2, 6), event(0, "unloaded", 2, 5), event(1, "loaded", 1, 8), event(0, "loaded", 3, 1)]
    append(tables, "partition_events", gone + kept)
    assert thin_history(tables, load_schema("partition_events"), HORIZON) == len(gone)
    found = [(row["offsets_partition"], row["event"], row["load_id"]) for row in _events(tables)]
    assert found == sorted((row["offsets_partition"], row["event"], row["load_id"]) for row in kept)


def _events(tables: PathStore) -> list[Row]:
    found = read_rows(tables.open("partition_events"))
    return sorted(found, key=lambda row: (row["offsets_partition"], row["event"], row["load_id"]))


def test_a_concurrent_write_restarts_retention(tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    name, before = "offset_commits", history("offset_commits", 4)
    append(tables, name, before)

    def beat() -> None:
        DeltaTable(tables.table(name)).optimize.compact()
        append(tables, name, [history(name, 5)[-1] | {"written_day": TODAY, "record_offset": 1000}])

    between = Between(monkeypatch, tables.table(name), beat)
    thin_history(tables, load_schema(name), HORIZON)
    after = rows(tables, name)
    assert between.happened
    assert len({place(row) for row in after}) == len(after)
    assert answer(name, after, HORIZON) == answer(name, before, HORIZON)
    assert 1000 in {row["record_offset"] for row in after}


def test_the_last_sample_of_each_partition_stays(tables: PathStore) -> None:
    name, places = "end_offsets", [(topic_id, partition) for topic_id in (None, "a") for partition in (0, 1)]
    days = [HORIZON + timedelta(days=days) for days in (-3, -2, -1, 0)]
    before = [
        {"topic": "orders", "topic_id": topic_id, "partition": partition}
        | {"sampled_at": datetime.combine(day, time(12), UTC), "written_day": day}
        for topic_id, partition in places
        for day in days[partition:]
    ]
    append(tables, name, before)
    assert thin_history(tables, load_schema(name), HORIZON) == 2 * 2 + 2 * 1
    kept = [(row["topic_id"], row["partition"], row["written_day"]) for row in read_rows(tables.open(name))]
    assert sorted(kept, key=repr) == sorted(((*place, day) for place in places for day in days[2:]), key=repr)


def test_an_assignment_keeps_its_cell_when_its_topic_gets_a_name(tables: PathStore) -> None:
    """An assignment has only the topic's id until the name is known; both forms are the same cell."""
    name, assigned, learned = "assignment_history", TODAY - timedelta(days=8), TODAY - timedelta(days=5)
    of_all = {
        "offsets_partition": 0,
        "log_id": 0,
        "group_id": "g",
        "member_id": "m",
        "kind": "assigned",
        "partition": 0,
    }
    known_by = {"gone": ("an-id", "orders"), "held": ("another", "payments")}
    before = [
        of_all
        | {"topic_id": topic_id, "topic": topic}
        | {"record_offset": offset, "change": change, "written_day": day}
        for offset, topic_id, topic, change, day in (
            (1, known_by["gone"][0], known_by["gone"][0], "assigned", assigned),
            (2, known_by["held"][0], known_by["held"][0], "assigned", assigned),
            (3, *known_by["gone"], "revoked", learned),
            (4, *known_by["held"], "changed", learned),
            (5, None, "named", "assigned", assigned),  # a classic group names its topics
            (6, None, "other", "assigned", learned),
        )
    ]
    append(tables, name, before)
    assert thin_history(tables, load_schema(name), HORIZON) == 2 + 1
    assert [row["record_offset"] for row in rows(tables, name)] == [4, 5, 6]


YESTERDAY, LONG_AGO = TODAY - timedelta(days=1), TODAY - timedelta(days=31)
TIMES = st.integers(0, 3 * 3600 // 20).map(lambda at: at * 20)  # three hours: some share a minute
SAMPLES = st.tuples(
    st.sampled_from([YESTERDAY, LONG_AGO, TODAY]), st.sampled_from([None, "a"]), st.integers(0, 1), TIMES
)


def sample(day: date, topic_id: str | None, partition: int, seconds: int) -> Row:
    at = datetime.combine(day, time(3), UTC) + timedelta(seconds=seconds)
    row = {"topic": "orders", "topic_id": topic_id, "partition": partition, "high_watermark": seconds}
    times = {"sampled_at": at, "previous_sampled_at": at - timedelta(seconds=10), "written_day": day}
    return dict.fromkeys(load_schema(END_OFFSETS).column_names) | row | times


def stored(tables: PathStore) -> list[Row]:
    return sorted(read_rows(tables.open(END_OFFSETS)), key=repr)


def thin(tables: PathStore, today: date = TODAY) -> int:
    return sum(thin_day(tables, due) for due in due_days(tables.open(END_OFFSETS), today))


def kept(rows: Sequence[Row]) -> list[Row]:
    """Return the last row of each minute of yesterday, of each hour of a month ago, and all rows of today.

    A row gets the previous time of the first row of its minute or hour.
    """
    last: dict[tuple[Any, ...], Row] = {}
    for row in sorted(rows, key=lambda row: row["sampled_at"]):
        at = row["sampled_at"]
        unit = {TODAY: at, YESTERDAY: at.replace(second=0), LONG_AGO: at.replace(minute=0, second=0)}
        place = row["topic_id"], row["partition"], unit[row["written_day"]]
        last[place] = row | {"previous_sampled_at": last.get(place, row)["previous_sampled_at"]}
    return sorted(last.values(), key=repr)


@settings(max_examples=15)
@given(st.lists(SAMPLES, min_size=1, max_size=60, unique=True))
def test_the_last_row_of_each_minute_and_hour_stays(samples: Sequence[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as folder:
        tables, rows = new_tables(Path(folder)), [sample(*each) for each in samples]
        append(tables, END_OFFSETS, rows)
        assert thin(tables) == len(rows) - len(kept(rows))
        assert stored(tables) == kept(rows)
        assert due_days(tables.open(END_OFFSETS), TODAY) == []


def test_no_day_is_thinned_twice(tables: PathStore) -> None:
    append(tables, END_OFFSETS, [sample(YESTERDAY, "a", 0, 0), sample(LONG_AGO, "a", 0, 0)])
    assert due_days(tables.open(END_OFFSETS), TODAY) == [ThinDay(LONG_AGO, "hour"), ThinDay(YESTERDAY, "minute")]
    assert thin(tables) == 0
    before = DeltaTable(tables.table(END_OFFSETS)).version()
    assert thin(tables) == 0
    assert DeltaTable(tables.table(END_OFFSETS)).version() == before


def test_minutes_become_hours_after_thirty_days(tables: PathStore) -> None:
    rows = [sample(YESTERDAY, "a", 0, seconds) for seconds in (0, 20, 60, 3600)]
    append(tables, END_OFFSETS, rows)
    assert thin(tables) == 1
    assert thin(tables, YESTERDAY + timedelta(days=30)) == 0
    assert thin(tables, YESTERDAY + timedelta(days=31)) == 1
    assert [row["high_watermark"] for row in stored(tables)] == [3600, 60]


def test_a_dry_run_counts(tables: PathStore) -> None:
    append(tables, END_OFFSETS, [sample(YESTERDAY, "a", 0, seconds) for seconds in (0, 20)])
    assert thin_day(tables, ThinDay(YESTERDAY, "minute"), dry_run=True) == 1
    assert len(stored(tables)) == 2


def test_no_more_than_an_hour_is_read_at_a_time(tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    append(
        tables,
        END_OFFSETS,
        [sample(YESTERDAY, "a", partition, seconds) for partition in (0, 1) for seconds in (0, 20, 3600)],
    )
    sizes, read = list[tuple[int, int]](), list[str]()
    replace, query = PathSnapshot.replace, PathSnapshot.query

    def seen(table: PathSnapshot, where: str, rows: Iterable[pa.Table], *transactions: Transaction) -> None:
        begun = len(read)

        def one_by_one() -> Iterator[pa.Table]:
            for part in rows:
                sizes.append((part.num_rows, len(read) - begun))
                yield part

        replace(table, where, one_by_one(), *transactions)

    def noted(table: PathSnapshot, sql: str) -> pa.RecordBatchReader:
        read.append(sql)
        return query(table, sql)

    monkeypatch.setattr(PathSnapshot, "replace", seen)
    monkeypatch.setattr(PathSnapshot, "query", noted)
    assert thin(tables) == 2
    assert [begun for _, begun in sizes] == list(range(1, len(sizes) + 1))
    assert sorted(rows for rows, _ in sizes if rows) == [2, 2]


def test_only_one_of_two_concurrent_runs_thins_a_day(tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tables, END_OFFSETS, [sample(YESTERDAY, "a", 0, seconds) for seconds in (0, 20)])
    version, due = DeltaTable(tables.table(END_OFFSETS)).version(), ThinDay(YESTERDAY, "minute")
    between = Between(monkeypatch, tables.table(END_OFFSETS), lambda: thin(tables))
    thin_day(tables, due)
    assert (between.happened, len(stored(tables))) == (True, 1)
    assert DeltaTable(tables.table(END_OFFSETS)).version() == version + 1


def test_samples_of_another_day_are_thinned_with_the_day_that_wrote_them(tables: PathStore) -> None:
    midnight = [sample(YESTERDAY, "a", 0, seconds) for seconds in (-3 * 3600 - 15, -3 * 3600 - 5, 21 * 3600 + 5)]
    append(tables, END_OFFSETS, [row | {"written_day": YESTERDAY} for row in midnight])
    assert thin(tables) == 1
    assert {row["high_watermark"] for row in stored(tables)} == {21 * 3600 + 5, -3 * 3600 - 5}


def test_columns_of_a_user_stay(tables: PathStore) -> None:
    table = DeltaTable(tables.table(END_OFFSETS))
    rows = [sample(YESTERDAY, "a", 0, seconds) | {"note": str(seconds)} for seconds in (0, 20)]
    schema = load_schema(END_OFFSETS).arrow.append(pa.field("note", pa.string()))
    write_deltalake(table, pa.Table.from_pylist(rows, schema), mode="append", schema_mode="merge")
    assert thin(tables) == 1
    assert [row["note"] for row in stored(tables)] == ["20"]
