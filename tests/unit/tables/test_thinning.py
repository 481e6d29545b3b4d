"""Thinning of end_offsets compared with a simple model: the last sample of each minute or hour stays."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from offsetstream.tables.names import END_OFFSETS
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.path_store.snapshot import PathSnapshot
from offsetstream.tables.retention import ThinDay, due_days, thin_day
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import Transaction
from testkit.tables import new_tables
from tests.unit.tables.small_writes import Between

Row = dict[str, Any]
TODAY = date(2030, 6, 10)
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


def append(tables: PathStore, rows: Sequence[Row]) -> None:
    write_deltalake(
        tables.table(END_OFFSETS), pa.Table.from_pylist(list(rows), load_schema(END_OFFSETS).arrow), mode="append"
    )


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
        append(tables, rows)
        assert thin(tables) == len(rows) - len(kept(rows))
        assert stored(tables) == kept(rows)
        assert due_days(tables.open(END_OFFSETS), TODAY) == []


def test_no_day_is_thinned_twice(tables: PathStore) -> None:
    append(tables, [sample(YESTERDAY, "a", 0, 0), sample(LONG_AGO, "a", 0, 0)])
    assert due_days(tables.open(END_OFFSETS), TODAY) == [ThinDay(LONG_AGO, "hour"), ThinDay(YESTERDAY, "minute")]
    assert thin(tables) == 0
    before = DeltaTable(tables.table(END_OFFSETS)).version()
    assert thin(tables) == 0
    assert DeltaTable(tables.table(END_OFFSETS)).version() == before


def test_minutes_become_hours_after_thirty_days(tables: PathStore) -> None:
    rows = [sample(YESTERDAY, "a", 0, seconds) for seconds in (0, 20, 60, 3600)]
    append(tables, rows)
    assert thin(tables) == 1
    assert thin(tables, YESTERDAY + timedelta(days=30)) == 0
    assert thin(tables, YESTERDAY + timedelta(days=31)) == 1
    assert [row["high_watermark"] for row in stored(tables)] == [3600, 60]


def test_a_dry_run_counts(tables: PathStore) -> None:
    append(tables, [sample(YESTERDAY, "a", 0, seconds) for seconds in (0, 20)])
    assert thin_day(tables, ThinDay(YESTERDAY, "minute"), dry_run=True) == 1
    assert len(stored(tables)) == 2


def test_no_more_than_an_hour_is_read_at_a_time(tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tables, [sample(YESTERDAY, "a", partition, seconds) for partition in (0, 1) for seconds in (0, 20, 3600)])
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
    append(tables, [sample(YESTERDAY, "a", 0, seconds) for seconds in (0, 20)])
    version, due = DeltaTable(tables.table(END_OFFSETS)).version(), ThinDay(YESTERDAY, "minute")
    between = Between(monkeypatch, tables.table(END_OFFSETS), lambda: thin(tables))
    thin_day(tables, due)
    assert (between.happened, len(stored(tables))) == (True, 1)
    assert DeltaTable(tables.table(END_OFFSETS)).version() == version + 1


def test_samples_of_another_day_are_thinned_with_the_day_that_wrote_them(tables: PathStore) -> None:
    midnight = [sample(YESTERDAY, "a", 0, seconds) for seconds in (-3 * 3600 - 15, -3 * 3600 - 5, 21 * 3600 + 5)]
    append(tables, [row | {"written_day": YESTERDAY} for row in midnight])
    assert thin(tables) == 1
    assert {row["high_watermark"] for row in stored(tables)} == {21 * 3600 + 5, -3 * 3600 - 5}


def test_columns_of_a_user_stay(tables: PathStore) -> None:
    table = DeltaTable(tables.table(END_OFFSETS))
    rows = [sample(YESTERDAY, "a", 0, seconds) | {"note": str(seconds)} for seconds in (0, 20)]
    schema = load_schema(END_OFFSETS).arrow.append(pa.field("note", pa.string()))
    write_deltalake(table, pa.Table.from_pylist(rows, schema), mode="append", schema_mode="merge")
    assert thin(tables) == 1
    assert [row["note"] for row in stored(tables)] == ["20"]
