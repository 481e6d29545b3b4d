"""The decoded history as the job writes it in batches and loads, against a plain derivation from the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from offsetstream.group_history import driver_changes
from offsetstream.maintenance import fill_history as filling
from offsetstream.maintenance.fill_history import Undecoded, fill_history, undecoded_logs
from offsetstream.stream.apply.batch import BatchReader
from offsetstream.stream.apply.history import DecodedHistory, History
from offsetstream.stream.apply.log_pass import LogPass, pass_over
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.state import StateTables
from offsetstream.tables import write
from offsetstream.tables.filters import NO_FILTERS
from offsetstream.tables.names import DECODED_LOGS, DECODED_TABLES, OWNED
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.rows import MAX_SMALL_ROWS
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter
from offsetstream.verify.decoded_history import compare_derivation, decoded_differences
from offsetstream.verify.ledger import doubled_rows
from testkit.changes_model import difference
from testkit.large import exceed_the_driver
from tests.spark.log import PARTITIONS, Record, frame, random_log

Way = Literal["small", "reduced", "large"]  # by the driver alone, with tasks that reduce the records, or by Spark
both_ways = pytest.mark.parametrize(
    "way",
    ["small", pytest.param("reduced", marks=pytest.mark.long), pytest.param("large", marks=pytest.mark.nightly)],
)
_MANY = 10**6
# The writes of a batch, in this order. A job may die before each.
WRITES = ("records", *DECODED_TABLES, "state", "book")


class CrashError(Exception):
    """Ends a job in the middle of a batch."""


class Job:
    """One run of a job over the tables, starting from their recorded position."""

    def __init__(self, writer: TableWriter, way: Way, checkpoint_id: int, most_at_once: int = _MANY) -> None:
        self._way = way
        self.writer, self.tables = writer, writer.tables
        self.book = PartitionBook(self.tables, range(PARTITIONS))
        self.checkpoint_id, self._batches = checkpoint_id, 0
        self.state = StateTables(writer.tables, "new", self.book.log_ids, {})
        self.decoded_history = DecodedHistory(writer, self.book, {}, most_at_once)
        self.history = self._opened()

    def _opened(self) -> History:
        batch = BatchId(self.checkpoint_id, -1)
        history = History.open(self.writer, self.book.log_ids, 0, batch, keeps_records=True)
        self.decoded_history.open(history.recorded, batch)
        return history

    def apply(self, records: list[Record], ends: Mapping[int, int], dies_before: str | None = None) -> None:
        """Apply the new records as one batch that ends at `ends`."""
        batch = BatchId(self.checkpoint_id, self._batches)
        new = [r for r in records if r.record_offset >= self.book.next_offsets.get(r.offsets_partition, 0)]
        reader = BatchReader(self.history, PARTITIONS, NO_FILTERS)
        offsets = len(new) if self._way == "small" else MAX_SMALL_ROWS + 1
        with (
            large_if(self._way),
            reader.read(frame(self.writer.spark, new), offsets, batch) as read,
            dying_before(dies_before),
        ):
            assert isinstance(read.records, LogPass) is (self._way != "small")
            die_at("records", dies_before)
            count = read.append_to(self.history, batch)
            self.decoded_history.append(read.of_groups, read.size, ends, batch)
            die_at("state", dies_before)
            self.state.apply(read.cells, batch, has_cells=read.size.has_cells)
            count()  # it runs in parallel with the others, and may end last
            die_at("book", dies_before)
            self.book.advance(ends)
            self.book.write(batch)
        self._batches += 1

    def apply_as_of_old(self, records: list[Record], ends: Mapping[int, int]) -> None:
        """Apply the records as older jobs did, which decoded nothing."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.decoded_history, "append", lambda *_: None)
            self.apply(records, ends)
        for number in ends:
            self.book.finish_load(number, 0, 0, 0)
        self.book.note_decoded(dict.fromkeys(ends))
        self.book.write(BatchId(self.checkpoint_id, 1))

    def load(self, records: list[Record], ends: Mapping[int, int], dies_before: str | None = None) -> None:
        """Load partitions completely; these records are left up to that end."""
        batch = BatchId(self.checkpoint_id, -1)
        self.book.start_load(ends)
        self.book.write(batch)
        self.history = self._opened()
        passes = pass_over(frame(self.writer.spark, records), self.history.target(batch), PARTITIONS)
        with large_if(self._way), passes as passed:
            of_groups, cells = passed.of_groups.fetched(), passed.cells.fetched()
            with dying_before(dies_before):
                die_at("records", dies_before)
                self.history.append_passed(passed, batch)()
                self.decoded_history.append_load(of_groups, cells, passed.shares, list(ends), batch)
                die_at("state", dies_before)
                self.state.apply(cells, batch, loaded=list(ends))
                die_at("book", dies_before)
                for number in ends:
                    self.book.finish_load(number, 0, 0, 0)
                self.book.write(batch)
        self.history = self._opened()


@contextmanager
def large_if(way: Way) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if way == "large":
            exceed_the_driver(patch)
        yield


def die_at(place: str, dies_before: str | None) -> None:
    if place == dies_before:
        raise CrashError


@contextmanager
def dying_before(table: str | None) -> Iterator[None]:
    """Have a job die before it writes a table of the decoded history, or before another named step."""
    with pytest.MonkeyPatch.context() as patch:
        writes = ((driver_changes, "append_rows"), (write, "append_from_tasks"), (filling, "append_from_tasks"))
        for owner, name in writes:
            patch.setattr(owner, name, _dying(getattr(owner, name), table))
        if table is None:
            yield
        else:
            with pytest.raises(CrashError):
                yield


def _dying(write: Any, table: str | None) -> Any:
    def write_or_die(where: Any, name: str, *arguments: Any) -> Any:
        die_at(name, table)
        return write(where, name, *arguments)

    return write_or_die


def parts_of(rng: Random, log: list[Record], count: int) -> Iterator[dict[int, int]]:
    """Yield batch ends for each partition: at any record, also within records that were appended together."""
    offsets = {
        number: [record.record_offset for record in log if record.offsets_partition == number]
        for number in range(PARTITIONS)
    }
    at = dict.fromkeys(offsets, 0)
    for left in range(count, 0, -1):
        ends = {}
        for number, own in offsets.items():
            end = len(own) if left == 1 else at[number] + rng.randint(0, 2 * (len(own) - at[number]) // left)
            at[number] = min(end, len(own))
            ends[number] = own[at[number] - 1] + 1 if at[number] else 0
        yield ends


def below(log: list[Record], ends: Mapping[int, int]) -> list[Record]:
    return [record for record in log if record.record_offset < ends[record.offsets_partition]]


@both_ways
def test_batches_that_split_steps_and_crash_write_each_change_once(
    writer: TableWriter, tables: PathStore, way: Way
) -> None:
    rng, log = Random(way), random_log(3, 60 if way == "small" else 25)
    job = Job(writer, way, 1, most_at_once=0)  # so that a batch may end within a step
    job.load([], dict.fromkeys(range(PARTITIONS), 0))
    deaths = ["member_history"] if way == "large" else [None, *WRITES]
    rng.shuffle(deaths)
    for number, ends in enumerate(parts_of(rng, log, len(deaths))):
        dies_before = deaths[number]
        job.apply(below(log, ends), ends, dies_before)
        if dies_before is not None:  # the next batch has another checkpoint and another number
            job = Job(writer, way, number + 2, most_at_once=0)
    last = ends_of(log)
    job = Job(writer, way, 99)
    job.apply(log, last)
    job.apply(log, {number: end + 5 for number, end in last.items()})
    assert difference(tables, {}) == {}
    assert compare_derivation(tables).differences == []
    assert {row.next_decoded_offset == row.next_offset for row in job.book.rows.values()} == {True}


def test_two_appends_in_one_millisecond_stay_as_first_decoded(writer: TableWriter, tables: PathStore) -> None:
    """A batch ended between them, and its job died. The next batch has both together."""
    rng, log = Random(4), random_log(4, 60)
    Job(writer, "small", 1).load([], dict.fromkeys(range(PARTITIONS), 0))
    for number, ends in enumerate(parts_of(rng, log, len(WRITES))):
        Job(writer, "small", number + 2).apply(below(log, ends), ends, WRITES[number])
    Job(writer, "small", 99).apply(log, ends_of(log))
    assert difference(tables, {}, steps_may_be_split=True) == {}
    assert compare_derivation(tables).differences == []


@both_ways
def test_a_load_writes_the_changes_of_the_log(writer: TableWriter, tables: PathStore, way: Way) -> None:
    log = random_log(5, 50)
    ends = ends_of(log)
    job = Job(writer, way, 1)
    job.load(log, ends)
    assert difference(tables, {}) == {}
    assert {row.load_state for row in job.book.rows.values()} == {OWNED}
    # Again, and by a job that died: no row is doubled.
    Job(writer, way, 2).load(log, ends)
    more = random_log(5, 80)
    ends = ends_of(more)
    for number, place in enumerate(("group_history", "state", "book")):
        Job(writer, way, 3 + number).load(more, ends, place)
    Job(writer, way, 9).load(more, ends)
    assert difference(tables, {}) == {}
    assert {row["decoded_from_offset"] for row in read_rows(tables.open(DECODED_LOGS))} == {0}


@both_ways
def test_after_a_load_of_a_compacted_log_the_changes_lead_to_the_current_state(
    writer: TableWriter, tables: PathStore, way: Way
) -> None:
    """Members that left while no job ran, without a record in the log, are removed by the load."""
    log = random_log(6, 60)
    half = {number: [r for r in log if r.offsets_partition == number][25].record_offset for number in range(4)}
    job = Job(writer, way, 1)
    job.load(below(log, half), half)
    ends = ends_of(log)
    last = {(record.offsets_partition, record.key): record for record in log}
    left = [record for record in log if last[record.offsets_partition, record.key] is record and record.value]
    Job(writer, way, 2).load(left, ends)
    members = read_rows(tables.open("member_history"))
    newest = {(r["offsets_partition"], r["group_id"], r["member_id"]): r for r in sorted(members, key=_place)}
    there = {key for key, row in newest.items() if row["change"] != "left"}
    stored = read_rows(tables.open("group_members"))
    assert there == {(r["offsets_partition"], r["group_id"], r["member_id"]) for r in stored} != set()
    derived = compare_derivation(tables)
    assert derived.differences == []
    assert 0 < derived.not_compared < len({(r["offsets_partition"], r["group_id"]) for r in members})


@pytest.mark.long
def test_earlier_history_is_decoded_up_to_the_start_of_the_job(
    spark: SparkSession, writer: TableWriter, tables: PathStore
) -> None:
    log = random_log(8, 60)
    middle = {number: [r for r in log if r.offsets_partition == number][30].record_offset for number in range(4)}
    old, ends = Job(writer, "small", 1), ends_of(log)
    old.apply_as_of_old(below(log, middle), middle)
    job = Job(writer, "small", 2)
    job.apply(log, ends)
    assert undecoded_logs(tables) == [
        Undecoded((number, 0), middle[number], len([r for r in below(log, middle) if is_group_record(r, number)]))
        for number in range(4)
    ]
    assert decoded_differences(tables) == []  # from the recorded history
    assert compare_derivation(tables).differences == []
    assert difference(tables, {}) == {}
    with dying_before("assignment_history"):
        fill_history(spark, tables, print)
    for _ in range(2):
        fill_history(spark, tables, print)
        assert difference(tables, {}, steps_may_be_split=True) == {}
    assert undecoded_logs(tables) == []
    assert decoded_differences(tables) == []
    assert compare_derivation(tables).differences == []


def test_verify_finds_a_missing_and_an_extra_change(writer: TableWriter, tables: PathStore) -> None:
    log = random_log(9, 60)
    Job(writer, "small", 1).load(log, ends_of(log))
    assert decoded_differences(tables) == []
    for name, change in (("group_history", "is_removed"), ("member_history", "change = 'left'")):
        rows = read_rows(tables.open(name))
        tables.open(name).replace(change, [])
        assert {(each.table, each.column) for each in decoded_differences(tables)} == {(name, "row")}
        tables.open(name).replace("true", [pa.Table.from_pylist(rows, schema=load_schema(name).arrow)])
        assert decoded_differences(tables) == []
        tables.open(name).append([pa.Table.from_pylist(rows[:1], schema=load_schema(name).arrow)])
        assert {each.table for each in doubled_rows(tables)} == {name}
        tables.open(name).replace("true", [pa.Table.from_pylist(rows, schema=load_schema(name).arrow)])


def ends_of(log: list[Record]) -> dict[int, int]:
    return {record.offsets_partition: record.record_offset + 1 for record in log}  # they are in order


def is_group_record(record: Record, partition: int) -> bool:
    return record.offsets_partition == partition and bool(record.key_json) and record.key_type not in (0, 1)


def _place(row: Mapping[str, Any]) -> int:
    offset: int = row["record_offset"]
    return offset
