"""Writes batches like the real job (history, state, book, lease, upkeep), without Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from random import Random

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from rich.console import Console

from offsetstream.cluster.answers import PartitionEnds
from offsetstream.codec import decode_records
from offsetstream.codec.records import encode_record
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.maintenance.upkeep import Upkeep
from offsetstream.progress import Progress
from offsetstream.stream.apply.history import History
from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.stream.state import StateTables
from offsetstream.tables.create import create_tables
from offsetstream.tables.files import StoredFiles
from offsetstream.tables.lease import Lease
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.rows import timestamps
from offsetstream.tables.schema import all_schemas
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import TableWriter

PARTITIONS = 50
BATCH_SECONDS = 10.0  # the interval that a batch stands for
_SECONDS = {"hours": 3600, "days": 86_400}
_KEPT = ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")
Raw = tuple[bytes | None, bytes | None]


class SimulatedJob:
    """Writes batches of `commits` each; now and then a batch also has records of other kinds.

    The commits are of random cells; with `active`, of the first so many, which are whole groups.
    """

    def __init__(self, spark: SparkSession, tables: Store, cells: int, commits: int, active: int = 0) -> None:
        create_tables(tables, "simulated", "new")
        self.tables = tables
        self._rng, self._cells, self._commits = Random(7), cells, commits
        self._active = range(active or cells)
        self._lease = Lease.acquire(tables)
        self._book = PartitionBook(tables, range(PARTITIONS))
        writer = TableWriter(spark, tables)
        self._history = History(writer, self._book.log_ids, {})
        self._state = StateTables(tables, "new", self._book.log_ids, {})
        self._upkeep = Upkeep(tables)
        self._progress = Progress(Console(stderr=True))
        self._next = dict.fromkeys(range(PARTITIONS), 0)

    def fill(self) -> None:
        """Write a commit of each cell, as a batch before the first one."""
        self._write(-1, self._commits_of(range(self._cells), -1))

    def batch(self, number: int) -> None:
        """Write a batch and a heartbeat; run upkeep once a simulated minute."""
        self._write(number, self._records(number))

    def _write(self, number: int, records: Iterable[tuple[int, Raw]]) -> None:
        batch, decoded = BatchId(1, number), self._decoded(list(records))
        self._history.append_uncounted(decoded, batch)()
        self._state.apply(decoded, batch)
        self._book.advance(self._next)
        epoch = number // 500
        self._book.observe({n: PartitionEnds(0, at, at, 1, epoch, datetime.now(UTC)) for n, at in self._next.items()})
        self._book.write(batch)
        self._lease.heartbeat()
        if number % 6 == 5:
            self._upkeep.tend(nullcontext(), self._progress)

    def _records(self, number: int) -> Iterator[tuple[int, Raw]]:
        yield from self._commits_of(self._rng.choices(self._active, k=self._commits), number)
        if number % 5 == 0:
            group = f"group-{self._rng.randrange(self._cells // 20)}"
            data = {"protocolType": "consumer", "generation": number, "protocol": None, "leader": None, "members": []}
            value = {"version": 3, "data": {**data, "currentStateTimestamp": _now_ms()}}
            yield partition_for(group, PARTITIONS), encode_record({"type": 2, "data": {"group": group}}, value)
        if number % 100 == 0:
            yield 0, (b"\x00\x01nonsense", b"\x00\x03")

    def _commits_of(self, cells: Iterable[int], offset: int) -> Iterator[tuple[int, Raw]]:
        for cell in cells:
            group = f"group-{cell // 20}"
            key = {"type": 1, "data": {"group": group, "topic": "orders", "partition": cell % 20}}
            data = {"offset": offset, "leaderEpoch": -1, "metadata": "", "commitTimestamp": _now_ms()}
            yield partition_for(group, PARTITIONS), encode_record(key, {"version": 3, "data": data})

    def _decoded(self, records: list[tuple[int, Raw]]) -> pa.Table:
        keys, values = (pa.array([raw[half] for _, raw in records], pa.binary()) for half in (0, 1))
        decoded = pa.Table.from_batches([decode_records(keys, values)])
        offsets = [self._take(partition) for partition, _ in records]
        is_null = [value is None for value in values.to_pylist()]
        columns = {
            "offsets_partition": pa.array([partition for partition, _ in records], pa.int32()),
            "record_offset": pa.array(offsets, pa.int64()),
            "record_timestamp": timestamps([_now_ms()] * len(records)),
            "value_offset": pa.array([None if null else at for at, null in zip(offsets, is_null, strict=True)]),
            "tombstone_offset": pa.array([at if null else None for at, null in zip(offsets, is_null, strict=True)]),
            "in_coordinator_partition": pa.repeat(pa.scalar(True), len(records)),
            "commit_timestamp": timestamps(decoded["commit_timestamp_ms"].to_pylist()),
            "expire_timestamp": timestamps(decoded["expire_timestamp_ms"].to_pylist()),
            "value_size": pa.array([len(value or b"") for value in values.to_pylist()], pa.int32()),
            "key_bytes": keys,
            "value": values,
        }
        for name, column in columns.items():
            decoded = decoded.append_column(name, column.cast(pa.int64()) if name.endswith("e_offset") else column)
        return decoded

    def _take(self, partition: int) -> int:
        self._next[partition] += 1
        return self._next[partition] - 1


def hurry(tables: PathStore, batch_seconds: float, scale: int = 1) -> None:
    """Let tables keep dead files and logs for as many batches as the real job, divided by `scale`."""
    for name, schema in all_schemas().items():
        hurried = {
            "delta.checkpointInterval": str(max(10, int(schema.properties["delta.checkpointInterval"]) // scale))
        }
        for kept in _KEPT:
            _, count, unit = schema.properties[kept].split()
            seconds = int(count) * _SECONDS[unit] * batch_seconds / BATCH_SECONDS / scale
            hurried[kept] = f"interval {max(1, round(seconds))} seconds"
        DeltaTable(tables.table(name)).alter.set_table_properties(hurried)


def contents(tables: PathStore) -> dict[str, StoredFiles]:
    """Return the files of each table's folder."""
    return {name: tables.files(tables.open(name)).stored() for name in all_schemas()}


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)
