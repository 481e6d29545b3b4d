"""What a batch writes into `committed_offsets` with a million cells: merges of 10,000 commits, without Kafka and Spark.

Four workloads: a stable active set of 3 % of the cells; 1 % random cells a batch; 1 % random groups a batch; a sweep
over all cells. The peer is the way of a table with a CHECK constraint, in which delta-rs rewrites the rows of the
affected offsets partitions.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.commit_log import OFFSETS_PARTITIONS
from benchmarks.results import Result, Samples, print_seconds
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.tables.matching import merge_on_driver
from offsetstream.tables.names import COMMITTED_OFFSETS
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import DELETED, load_schema
from offsetstream.tables.store import Merge
from offsetstream.tables.transaction import BatchId
from testkit.tables import new_tables

_CELLS, _EACH, _COMMITS, _BATCHES = 1_000_000, 100, 10_000, 30
_SWEEP = 130  # batches: more than a cycle, since the first one finds groups where the load has put them
Cells = npt.NDArray[np.int64]
_WORKLOADS: dict[str, Callable[[np.random.Generator, int, int], Cells]] = {
    "writes-active": lambda rng, cells, _: rng.choice(cells * 3 // 100, min(_COMMITS, cells * 3 // 100), replace=False),
    "writes-cells": lambda rng, cells, _: rng.choice(cells, cells // 100, replace=False),
    "writes-groups": lambda rng, cells, _: np.concatenate(
        [np.arange(_EACH) + _EACH * group for group in rng.choice(cells // _EACH, cells // _EACH // 100, replace=False)]
    ),
    "writes-sweep": lambda _, cells, batch: (np.arange(_COMMITS) + batch * _COMMITS) % cells,
}
ROWS = tuple(_WORKLOADS)


class _Written(NamedTuple):
    bytes: float
    files: float
    seconds: float


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Measure each workload on new tables, in both ways."""
    cells = round(_CELLS * scale)
    rows = _Rows(cells)
    for name, chosen in _WORKLOADS.items():
        if name in wanted:
            count = _SWEEP if name == "writes-sweep" else _BATCHES
            batches = [chosen(np.random.default_rng(number), cells, number) for number in range(count)]
            changed = Samples.of("its changed rows", "MiB", (_size(rows.of(batch, 1)) / 2**20 for batch in batches))
            ours, theirs = (_run(rows, batches, checked=checked) for checked in (False, True))
            written = Samples.of("a batch writes", "MiB", (each.bytes / 2**20 for each in ours))
            before = Samples.of("all rows of its partitions", "MiB", (each.bytes / 2**20 for each in theirs))
            seconds, peer = (median(each.seconds for each in run) for run in (ours, theirs))
            note = f"{seconds:.2f} s and {median(each.files for each in ours):.0f} files a batch; the peer {peer:.2f} s"
            figure = written.median / (changed.median if name == "writes-active" else before.median)
            yield Result(name, figure, (written, changed, before), note)


def _run(rows: _Rows, batches: list[Cells], *, checked: bool) -> list[_Written]:
    schema = load_schema(COMMITTED_OFFSETS)
    with tempfile.TemporaryDirectory(prefix="offsetstream-bench-") as folder:
        tables: PathStore = new_tables(Path(folder)).for_job()
        place = tables.table(COMMITTED_OFFSETS)
        everywhere = Merge(schema, replace_where="true")
        merge_on_driver(tables, rows.of(np.arange(rows.cells), 0), everywhere, BatchId(1, -1))
        if checked:
            DeltaTable(place).alter.add_constraint({"always": "partition >= 0"})
        found = []
        for number, batch in enumerate(batches):
            source, before = rows.of(batch, number + 1), _files(place)
            started = time.monotonic()
            merge_on_driver(tables, source, Merge(schema, newer_only=True), BatchId(1, number))
            seconds = time.monotonic() - started
            after = _files(place)
            new = after.keys() - before.keys()
            found.append(_Written(sum(after[path] for path in new), len(new), seconds))
        print_seconds("a batch of the peer" if checked else "a batch", median(each.seconds for each in found))
        return found[-20:]  # the first ones wake up what is active


class _Rows:
    """Rows of `committed_offsets`: `cells` of them, a hundred for each group."""

    def __init__(self, cells: int) -> None:
        self.cells = cells
        self._groups = pa.array([f"bench-{number}" for number in range(-(-cells // _EACH))])
        homes = [partition_for(group, OFFSETS_PARTITIONS) for group in self._groups.to_pylist()]
        self._homes = np.array(homes, np.int32)

    def of(self, cells: Cells, batch: int) -> pa.Table:
        """Return a merge's source: a commit of each of these cells."""
        schema = load_schema(COMMITTED_OFFSETS).arrow
        groups, count = cells // _EACH, len(cells)
        now = pa.array(np.full(count, time.time_ns() // 1000)).cast(pa.timestamp("us", "UTC"))
        given = {
            "offsets_partition": self._homes[groups],
            "group_id": self._groups.take(pa.array(groups)),
            "topic": pa.repeat("clicks", count),
            "partition": cells % _EACH,
            "committed_offset": cells * 3 + batch * 1_000_003,
            "record_offset": np.arange(count) + batch * self.cells,
            "log_id": np.zeros(count, np.int64),
        }
        columns = [
            pa.array(given[field.name]).cast(field.type)
            if field.name in given
            else now.cast(field.type)
            if pa.types.is_timestamp(field.type) and field.name != "expire_timestamp"
            else pa.nulls(count, field.type)
            for field in schema
        ]
        return pa.table(columns, schema=schema).append_column(DELETED, pa.repeat(pa.scalar(False), count))


def _files(place: str) -> dict[str, int]:
    added = pa.table(DeltaTable(place).get_add_actions())
    return dict(zip(added["path"].to_pylist(), added["size_bytes"].to_pylist(), strict=True))


def _size(rows: pa.Table) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(rows.drop_columns([DELETED]), sink)
    return int(sink.tell())
