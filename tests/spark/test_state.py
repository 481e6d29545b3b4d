"""The state tables against a plain replay (tests/spark/replay.py) of a random log (tests/spark/log.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from random import Random
from typing import Any, Literal

import pytest
from deltalake import DeltaTable

from offsetstream.codec.records import encode_record
from offsetstream.coordinator.partitioning import Coordinator, partition_for
from offsetstream.stream import state
from offsetstream.stream.apply.log_pass import pass_over
from offsetstream.stream.records import Part, batch_size, collect, with_value_offsets
from offsetstream.stream.state import StateTables
from offsetstream.tables.matching import merge_rows
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.rows import Size
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter
from tests.spark.log import NO_HISTORY, PARTITIONS, Record, decode, frame, random_log
from tests.spark.replay import STATE, Replay, difference

LOGS = dict.fromkeys(range(PARTITIONS), 0)
LOAD = BatchId(1, -1)
SMALL = 5  # rows that a large batch in these tests may bring to the driver at once


class CrashError(Exception):
    """Ends a job in the middle of a batch."""


Way = Literal["small", "large"]  # on the driver at once; or a load in tasks, a batch in portions
both_ways = pytest.mark.parametrize("way", ["small", pytest.param("large", marks=pytest.mark.long)])


@contextmanager
def crash_at(table: str | None, way: Way) -> Iterator[None]:
    """Make a write die when it reaches the table. In portions, it is the second one that dies."""
    calls = list[str]()

    def merge_or_die(where: Any, name: str, *arguments: Any, **how: Any) -> None:
        calls.append(name)
        if name == table and (way == "small" or calls.count(name) > 1):
            raise CrashError
        merge_rows(where, name, *arguments, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "merge_rows", merge_or_die)
        with nullcontext() if table is None else pytest.raises(CrashError):
            yield


def load(
    writer: TableWriter,
    coordinator: Coordinator,
    records: Iterable[Record],
    partitions: Iterable[int],
    log_ids: Mapping[int, int] = LOGS,
    way: Way = "small",
) -> None:
    with pass_over(frame(writer.spark, records), NO_HISTORY, PARTITIONS) as passed:
        cells, state = passed.cells, StateTables(writer.tables, coordinator, log_ids, {})
        state.apply(cells.decoded.toArrow() if way == "small" else cells, LOAD, loaded=sorted(partitions))


def apply(writer: TableWriter, coordinator: Coordinator, records: Iterable[Record], batch: BatchId, way: Way) -> None:
    decoded = with_value_offsets(decode(frame(writer.spark, records), PARTITIONS)).persist()
    state, collected = StateTables(writer.tables, coordinator, LOGS, {}), collect(decoded)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("offsetstream.tables.rows.SMALL_ROWS", SMALL)
        rows = decoded.drop("key", "value", "key_bytes")
        part = Part(lambda: rows, Size(collected.num_rows, collected.nbytes), None)
        state.apply(collected if way == "small" else part, batch, has_cells=batch_size(collected).has_cells)
    decoded.unpersist()


@pytest.mark.parametrize(
    ("coordinator", "way"),
    [
        ("new", "small"),
        ("classic", "small"),
        ("new", "large"),
        pytest.param("classic", "large", marks=pytest.mark.long),
    ],
)
def test_a_load_equals_a_replay(
    writer: TableWriter, tables: PathStore, monkeypatch: pytest.MonkeyPatch, coordinator: Coordinator, way: Way
) -> None:
    monkeypatch.setattr(state, "_TASK_ROWS", 10)
    log = random_log(7, 60)
    load(writer, coordinator, log, range(PARTITIONS), way=way)
    assert difference(tables, Replay(coordinator).apply(log)) == {}


@pytest.mark.parametrize(
    ("way", "coordinator", "crashes"),
    [
        ("small", "new", ("groups", "group_cells", None, "member_assignments", "committed_offsets")),
        ("small", "classic", (None, "groups", "committed_offsets", "group_members")),
        pytest.param("large", "new", ("groups",), marks=pytest.mark.long),
        pytest.param("large", "classic", (None, "group_cells"), marks=pytest.mark.long),
    ],
)
def test_interrupted_and_repeated_batches_equal_a_replay(
    writer: TableWriter,
    tables: PathStore,
    way: Way,
    coordinator: Coordinator,
    crashes: tuple[str | None, ...],
) -> None:
    rng, log, replay = Random(coordinator), random_log(11, 50), Replay(coordinator)
    batch = BatchId(1, 0)
    for number, table in enumerate(crashes):
        records, log = cut(rng, log, 0.7 / len(crashes))
        if table is not None:
            with crash_at(table, way):
                apply(writer, coordinator, records, batch, way)
        if number % 2:  # the job after the crash starts a checkpoint, and its first batch finds more records
            more, log = cut(rng, log, 0.5 / len(crashes))
            records, batch = records + more, BatchId(batch.checkpoint_id + 1, 0)
        apply(writer, coordinator, records, batch, way)
        assert difference(tables, replay.apply(records)) == {}, f"after a crash before {table}"
        last, batch = batch, BatchId(batch.checkpoint_id, batch.batch_id + 1)
    apply(writer, coordinator, records, last, way)
    assert difference(tables, replay) == {}


def cut(rng: Random, log: list[Record], share: float) -> tuple[list[Record], list[Record]]:
    """Divide the log: about that share of each partition, and the rest."""
    head, tail = list[Record](), list[Record]()
    for partition in range(PARTITIONS):
        own = [record for record in log if record.offsets_partition == partition]
        at = rng.randint(0, round(2 * share * len(own)))
        head += own[:at]
        tail += own[at:]
    return head, tail


@both_ways
def test_a_batch_that_changes_no_state_writes_nothing_to_the_state_tables(
    writer: TableWriter, tables: PathStore, way: Way
) -> None:
    log = random_log(5, 30)
    load(writer, "new", log, range(PARTITIONS), way="small")
    before = {name: commits_of(tables, name) for name in STATE}
    last = max(record.record_offset for record in log)
    unknown = {"type": 1, "data": {"group": "group", "topic": "of nobody", "partition": 0}}
    garbage = Record(0, last + 2, 0, b"\x7f\xff", b"garbage", {}, None)
    batches = [
        [garbage],
        [Record(0, last + 1, 0, *encode_record(unknown, None), unknown, None), garbage],
    ]
    for number, records in enumerate(batches):
        apply(writer, "new", records, BatchId(1, number), way)
        assert {name: commits_of(tables, name) for name in STATE} == before, number


def commits_of(tables: PathStore, name: str) -> tuple[int, list[str]]:
    table = DeltaTable(tables.table(name))
    return table.version(), sorted(table.file_uris())


@both_ways
def test_a_load_in_a_running_job_replaces_its_partitions_and_leaves_the_others_alone(
    writer: TableWriter, tables: PathStore, way: Way
) -> None:
    partitions = [[record for record in random_log(3, 30) if record.offsets_partition == n] for n in range(PARTITIONS)]
    load(writer, "new", partitions[0] + partitions[1] + partitions[3], range(PARTITIONS), way=way)
    # Partition 1 has another log with other offsets; partition 2 is new; nothing is left of partition 3.
    log_ids = LOGS | {1: 1}
    other = [replace(record, record_offset=at) for at, record in enumerate(partitions[1][-10:])]
    load(writer, "new", other + partitions[2], [1, 2, 3], log_ids, way=way)
    assert difference(tables, Replay("new", log_ids).apply(partitions[0] + other + partitions[2])) == {}


def test_a_group_in_a_foreign_partition_stays_next_to_the_real_one(writer: TableWriter, tables: PathStore) -> None:
    commits = [plain_commit(partition, offset) for partition, offset in ((0, 10), (1, 5), (2, 7))]
    home = partition_for("group", PARTITIONS)
    load(writer, "new", commits, range(PARTITIONS))
    for table in ("groups", "committed_offsets"):
        rows = read_rows(tables.open(table))
        found = {row["offsets_partition"]: row["in_coordinator_partition"] for row in rows}
        assert found == {partition: partition == home for partition in (0, 1, 2)}


def plain_commit(partition: int, record_offset: int) -> Record:
    key = {"type": 1, "data": {"group": "group", "topic": "t", "partition": 0}}
    data = {"offset": record_offset, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 0}
    value = {"version": 3, "data": data}
    return Record(partition, record_offset, 0, *encode_record(key, value), key, value)
