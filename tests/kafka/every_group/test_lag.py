"""Every row of the view `lag` equals Kafka's own tool, while nothing changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import offsetstream
from offsetstream.cluster.client import Cluster
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.embedded.jvm import CONSUMER_GROUPS, run_tool
from offsetstream.tables.lookup import Lookup
from offsetstream.verify.compare import read_position
from offsetstream.verify.sources import read_tables
from tests.kafka.every_group.all_groups import CLASSIC, NEWEST, AllGroups
from tests.kafka.jobs import JobRunner

pytestmark = pytest.mark.long

some_releases = pytest.mark.parametrize("every_group", [CLASSIC, "4.3.1", NEWEST], indirect=True)
# GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID
_ROW = re.compile(
    r"(?P<group>.+?) +(?P<topic>\S+) +(?P<partition>\d+) +(?P<current>-|\d+) +(?P<end>-|\d+) +(?P<lag>-|\d+) "
)
Row = tuple[str, str, int, int | None, int | None, int | None]


def tool_rows(printed: str) -> Iterator[Row]:
    for line in printed.splitlines():
        if (match := _ROW.match(line)) is not None:
            current, end, lag = (None if match[each] == "-" else int(match[each]) for each in ("current", "end", "lag"))
            yield match["group"], match["topic"], int(match["partition"]), current, end, lag


@some_releases
def test_every_lag_row_equals_kafkas_own_tool(every_group: AllGroups, spark: SparkSession, tmp_path: Path) -> None:
    server = every_group.kafka.bootstrap_server
    runner = JobRunner(spark, server, tmp_path)
    runner.run_once()
    lag = offsetstream.open_tables(runner.tables.root).view("lag").to_pylist()
    printed = run_tool(CONSUMER_GROUPS, ["--bootstrap-server", server, "--describe", "--all-groups"])
    tables = read_tables(Lookup(runner.tables))
    position = read_position(Cluster(server), lambda: False, tables)

    def is_compared(group: str) -> bool:  # a read_committed reader sees nothing behind an open transaction
        return not position.is_blocked(partition_for(group, len(tables.partitions)))

    kafka_rows = {row for row in tool_rows(printed) if is_compared(row[0])}
    columns = ("group_id", "topic", "partition", "committed_offset", "log_end_offset", "lag")
    named = {
        row["group_id"]: row["group_type"] for row in offsetstream.open_tables(runner.tables.root).groups().to_pylist()
    }
    view_rows = {
        tuple(row[name] for name in columns)
        for row in lag
        if is_compared(row["group_id"]) and named.get(row["group_id"]) in ("Classic", "Consumer")
    }
    assert len(kafka_rows) > 50
    assert kafka_rows - view_rows == set()
    assert view_rows - kafka_rows == set()
