"""The tables of the samples: how they are written, and what a job that begins finds in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from offsetstream.cluster.log_ends import TopicPlace
from offsetstream.stream.sampling.sample_book import AT_LEAST_EVERY
from offsetstream.tables.arrow_rows import append_rows
from offsetstream.tables.names import END_OFFSETS, TOPIC_PARTITIONS
from offsetstream.tables.schema import SIGNATURE, load_schema
from offsetstream.tables.small_tables import overwrite_rows, read_rows
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId

Rows = list[dict[str, Any]]


def read_samples(tables: Store) -> tuple[Rows, Mapping[TopicPlace, datetime]]:
    """Return the rows of `topic_partitions`, and when `end_offsets` has the last row of each partition from.

    Only what is as new as the former: of a partition that was sampled until then there is a row every ten minutes.
    """
    rows = read_rows(tables.open(TOPIC_PARTITIONS))
    times = [row["sampled_at"] for row in rows if row["sampled_at"] is not None]
    if not times:
        return rows, {}
    since = max(times) - AT_LEAST_EVERY - timedelta(minutes=5)
    query = (
        "SELECT topic, partition, max(sampled_at) AS sampled_at FROM rows "  # noqa: S608 - our own
        f"WHERE sampled_at >= TIMESTAMP '{since:%Y-%m-%dT%H:%M:%SZ}' GROUP BY topic, partition"
    )
    found = tables.open(END_OFFSETS).query(query).read_all().to_pylist()
    return rows, {TopicPlace(row["topic"], row["partition"]): row["sampled_at"] for row in found}


def write_topic_partitions(tables: Store, rows: Iterable[Mapping[str, Any]], batch: BatchId) -> None:
    """Make the rows the table's only ones."""
    overwrite_rows(tables, TOPIC_PARTITIONS, rows, batch)


def write_end_offsets(tables: Store, rows: Sequence[Mapping[str, Any]], batch: BatchId) -> None:
    """Append the rows, as one file."""
    schema = load_schema(END_OFFSETS).arrow
    unsigned = pa.schema([field for field in schema if field.name not in SIGNATURE])
    append_rows(tables, END_OFFSETS, pa.Table.from_pylist([dict(row) for row in rows], schema=unsigned), batch)
