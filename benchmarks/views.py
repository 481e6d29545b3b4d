"""The cost of views over tables with 100,000 committed offsets, computed as by `open_tables(...).view(...)`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.commit_log import OFFSETS_PARTITIONS
from benchmarks.results import Result, Samples, print_seconds
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.tables.schema import load_schema
from offsetstream.tables.store import Store
from offsetstream.views.reader import ViewReader

VIEWS = ("lag", "group-status", "one-instant")
_ROUNDS = 5
_NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
_NOTE = "a fifth of the groups lags; 3 million commits, an hour of samples of 1,000 partitions"
_SOURCES = {
    # Each group has a hundred partitions of one topic. Every fifth group lags.
    "cell": """
        SELECT 'group-' || (i // 100) AS group_id, {homes}[i // 100 + 1] AS offsets_partition, 0 AS log_id, i,
               'topic-' || ((i // 100) % 10) AS topic, i % 100 AS partition, (i // 100) % 5 = 0 AS lags,
               true AS in_coordinator_partition
        FROM range({cells}) AS t(i)""",
    "commit_rows": """
        SELECT *, 30 * i + k AS record_offset, now_at - to_seconds(10 * (30 - k) + i % 7) AS record_timestamp, k,
               record_timestamp AS commit_timestamp, epoch_ms(record_timestamp) AS commit_timestamp_ms,
               false AS is_tombstone, DATE '2026-01-05' AS written_day,
               CASE WHEN lags THEN 100000 - 20 * (30 - k) - 50 * (i % 3) ELSE 100000 - 20 * (29 - k) END
                 AS committed_offset
        FROM cell, range(30) AS s(k), clock""",
    "sampled": """
        SELECT 'topic-' || (i // 100) AS topic, i % 100 AS partition, 0 AS log_start_offset,
               100000 - 20 * k AS high_watermark, high_watermark AS last_stable_offset,
               now_at - to_seconds(10 * k) AS sampled_at, sampled_at AS changed_at,
               now_at - to_seconds(10 * (k + 1)) AS previous_sampled_at, DATE '2026-01-05' AS written_day
        FROM range(1000) AS t(i), range(361) AS s(k), clock""",
}
_TABLES = {
    "offset_commits": "FROM commit_rows",
    "committed_offsets": "FROM commit_rows WHERE k = 29",
    "groups": """
        SELECT DISTINCT offsets_partition, group_id, 0 AS log_id, 'Consumer' AS group_type, 'Stable' AS state,
               1 AS member_count, true AS in_coordinator_partition FROM cell""",
    "group_members": """
        SELECT DISTINCT offsets_partition, group_id, 0 AS log_id, group_id || '-1' AS member_id, 'client' AS client_id,
               '/127.0.0.1' AS client_host, topic AS subscribed_topics, true AS in_coordinator_partition FROM cell""",
    "member_assignments": "SELECT *, 'assigned' AS kind, group_id || '-1' AS member_id FROM cell",
    "end_offsets": "FROM sampled",
    "topic_partitions": "FROM sampled WHERE sampled_at = (SELECT now_at FROM clock)",
    "offsets_partitions": """
        SELECT DISTINCT offsets_partition, 0 AS log_id, 'OWNED' AS load_state, now_at AS caught_up_at,
               now_at - INTERVAL 1 DAY AS history_complete_from
        FROM cell, clock""",
}


def measured_views(wanted: set[str], store: Store) -> Iterator[Result]:
    """Compute each view over the tables of `write_commits` several times, with newly opened tables each time."""
    queries: dict[str, tuple[str, dict[str, Any]]] = {
        "lag": ("lag", {}),
        "group-status": ("group_status", {}),
        "one-instant": ("offsets_at", {"where": {"group_id": ["group-7"]}, "at": _NOW - timedelta(seconds=100)}),
    }
    clock = {"clock": f"SELECT TIMESTAMPTZ '{_NOW}' AS now_at, TIMESTAMPTZ '{_NOW}' - INTERVAL 1 DAY AS since_at"}
    for name in (each for each in VIEWS if each in wanted):
        view, options = queries[name]
        seconds = []
        for _ in range(_ROUNDS):
            reader, started = ViewReader(store, clock), time.monotonic()
            rows = reader.arrow(view, **options).num_rows
            seconds.append(print_seconds(f"{view}, {rows} rows", time.monotonic() - started))
        yield Result.of(name, Samples.of(view, "s", seconds), _NOTE)


def write_commits(folder: Path, cells: int) -> None:
    """Fill the empty tables in a folder with `cells` committed offsets, each committed thirty times."""
    homes = [partition_for(f"group-{number}", OFFSETS_PARTITIONS) for number in range(-(-cells // 100))]
    sources = {name: query.format(cells=cells, homes=homes) for name, query in _SOURCES.items()}
    write_tables(folder, sources, _TABLES, _NOW)


def write_tables(folder: Path, sources: Mapping[str, str], tables: Mapping[str, str], now: datetime) -> None:
    """Fill the empty tables in a folder with the rows of each table's query, which may read `sources` and `clock`."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE VIEW clock AS SELECT TIMESTAMPTZ '{now}' AS now_at")
        for name, query in sources.items():
            connection.execute(f"CREATE VIEW {name} AS {query}")
        for table, query in tables.items():
            schema = load_schema(table).arrow
            rows = connection.sql(query).to_arrow_table()
            columns = [_column(rows, field) for field in schema]
            write_deltalake(folder / table, pa.table(columns, schema=schema), mode="append")


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    known = field.name in rows.column_names
    return rows[field.name].cast(field.type) if known else pa.nulls(len(rows), field.type)
