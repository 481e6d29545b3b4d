"""What one round of the sampler costs: its requests to the cluster, and its writes to the tables."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from benchmarks.results import Result, Samples, print_seconds
from offsetstream.cluster.log_ends import LogEnds
from offsetstream.stream.sampling.sampler import Rounds
from offsetstream.tables.create import create_tables
from offsetstream.tables.location import store_at
from offsetstream.tables.matching import merge_rows
from offsetstream.tables.names import COMMITTED_OFFSETS
from offsetstream.tables.schema import load_schema
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId

_ROUNDS, _BATCH = 5, BatchId(1, -1)


def rounds(name: str, bootstrap_server: str, topics: Sequence[str], each: int) -> Result:
    """Measure rounds over topics of `each` partitions, in this process, with new tables."""
    with TemporaryDirectory() as folder:
        return _measured(name, bootstrap_server, store_at(str(Path(folder) / "tables")), topics, each)


def _measured(name: str, bootstrap_server: str, tables: Store, topics: Sequence[str], each: int) -> Result:
    cluster = LogEnds(bootstrap_server)
    create_tables(tables, cluster.cluster_id(), "new")
    rows = [{"group_id": "bench", "topic": topic, "partition": number} for topic in topics for number in range(each)]
    filled = [
        dict.fromkeys(load_schema(COMMITTED_OFFSETS).column_names) | {"offsets_partition": 0} | row for row in rows
    ]
    merge_rows(tables, COMMITTED_OFFSETS, pa.Table.from_pylist(filled, load_schema(COMMITTED_OFFSETS).arrow), _BATCH)
    sampler = Rounds(tables, cluster, "new", lambda _: None)
    while _sampled(sampler) < len(rows):  # a broker creates about a hundred logs a second
        time.sleep(1)
        sampler.ask()
    asked, written, cpu = [], [], []
    for number in range(_ROUNDS + 1):
        began, used = time.monotonic(), time.process_time()
        sampler.ask()
        between = time.monotonic()
        sampler.write(_BATCH)
        ended = time.monotonic()
        if number:  # the first round is a warm-up
            asked.append(print_seconds("asked", between - began))
            written.append(print_seconds("written", ended - between))
            cpu.append(time.process_time() - used)
    samples = (
        Samples.of("a round", "s", [sum(pair) for pair in zip(asked, written, strict=True)]),
        Samples.of("of it requests to the cluster", "s", asked),
        Samples.of("CPU of the driver", "s", cpu),
    )
    return Result(name, samples[0].median, samples, f"{len(sampler.book.partitions):,} partitions, three brokers")


def _sampled(sampler: Rounds) -> int:
    return sum(row["high_watermark"] is not None for row in sampler.book.rows())
