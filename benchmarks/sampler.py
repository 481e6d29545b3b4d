"""What one round of the sampler costs: its questions to the cluster, and its writes to the tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.broker import empty_broker
from benchmarks.results import Result, Samples, tell
from offsetstream.cluster.log_ends import LogEnds
from offsetstream.stream.sampling.rounds import Rounds
from offsetstream.tables.arrow_rows import merge_rows
from offsetstream.tables.create import create_tables
from offsetstream.tables.location import store_at
from offsetstream.tables.names import COMMITTED_OFFSETS
from offsetstream.tables.schema import load_schema
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId

ROWS = ("sampler", "sampler-2000")
_PARTITIONS = {"sampler": 20_000, "sampler-2000": 2_000}
_A_TOPIC, _ROUNDS, _BATCH = 100, 7, BatchId(1, -1)


def measure(wanted: set[str], scale: float) -> Iterator[Result]:
    """Sample topics of 100 partitions each, in the present process."""
    for name, partitions in _PARTITIONS.items():
        if name not in wanted:
            continue
        topics = [f"sampled-{number}" for number in range(max(1, round(partitions * scale) // _A_TOPIC))]
        # One broker would have 20,000 files open, which is more than many machines allow.
        with empty_broker(brokers=3) as kafka, TemporaryDirectory() as folder:
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap_server})
            for topic in topics:
                admin.create_topics([NewTopic(topic, _A_TOPIC, 1)])[topic].result(60)
            yield _measured(name, kafka.bootstrap_server, store_at(str(Path(folder) / "tables")), topics)


def _measured(name: str, bootstrap_server: str, tables: Store, topics: list[str]) -> Result:
    cluster = LogEnds(bootstrap_server)
    create_tables(tables, cluster.cluster_id(), "new")
    rows = [{"group_id": "bench", "topic": topic, "partition": each} for topic in topics for each in range(_A_TOPIC)]
    filled = [
        dict.fromkeys(load_schema(COMMITTED_OFFSETS).column_names) | {"offsets_partition": 0} | row for row in rows
    ]
    merge_rows(tables, COMMITTED_OFFSETS, pa.Table.from_pylist(filled, load_schema(COMMITTED_OFFSETS).arrow), _BATCH)
    rounds = Rounds(tables, cluster, "new", lambda _: None)
    while _sampled(rounds) < len(rows):  # the broker makes about a hundred logs a second
        time.sleep(1)
        rounds.ask()
    asked, written, cpu = [], [], []
    for number in range(_ROUNDS + 1):
        began, used = time.monotonic(), time.process_time()
        rounds.ask()
        between = time.monotonic()
        rounds.write(_BATCH)
        ended = time.monotonic()
        if number:  # the first one makes ready
            asked.append(tell("asked", between - began))
            written.append(tell("written", ended - between))
            cpu.append(time.process_time() - used)
    samples = (
        Samples.of("a round", "s", [sum(pair) for pair in zip(asked, written, strict=True)]),
        Samples.of("of it the cluster's answers", "s", asked),
        Samples.of("CPU of the driver", "s", cpu),
    )
    return Result(name, samples[0].median, samples, f"{len(rounds.book.partitions):,} partitions, three brokers")


def _sampled(rounds: Rounds) -> int:
    return sum(row["high_watermark"] is not None for row in rounds.book.rows())
