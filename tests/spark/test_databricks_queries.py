"""Every query in docs and in Databricks' notebook and dashboard runs on our tables, also over Spark Connect."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from offsetstream.tables.path_store import PathStore
from testkit.metastore import Metastore
from testkit.simulated_job import SimulatedJob
from testkit.tables import append_rows
from tests.spark.databricks_queries import answers, cells, datasets, register

pytestmark = pytest.mark.long

GROUP = "group-1"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
# Older than every commit; otherwise the rows that the job has just written would not show.
EMPTY = ("USE IDENTIFIER", "-- Where a group stood an hour ago")


@pytest.fixture(scope="module")
def tables(spark: SparkSession, metastore: Metastore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tables as a job leaves them, with a group that has a member."""
    tables = PathStore(str(tmp_path_factory.mktemp("databricks") / "tables"))
    job = SimulatedJob(spark, tables, cells=60, commits=100)
    for number in range(6):
        job.batch(number)
    root = Path(tables.root)
    place = {"offsets_partition": 0, "group_id": GROUP, "in_coordinator_partition": True}
    append_rows(root, "group_members", [{**place, "member_id": "m", "client_host": "/10.0.0.1"}])
    assigned = {"member_id": "m", "kind": "assigned", "topic": "orders", "partition": 3}
    append_rows(root, "member_assignments", [{**place, **assigned}])
    old = {"topic": "long-ago", "partition": 0, "committed_offset": 1, "commit_timestamp": AT}
    append_rows(root, "committed_offsets", [{**place, **old}])
    register(spark, "of_databricks", root)
    yield root
    spark.sql("USE default")
    spark.sql("DROP SCHEMA of_databricks CASCADE")


def test_every_query_answers(spark: SparkSession, tables: Path) -> None:
    rows = {query: frame.collect() for query, frame in answers(spark, "of_databricks", tables, GROUP)}
    assert len(rows) == 1 + len(cells()) + len(datasets()) > 15
    assert {query for query, found in rows.items() if not found} == {q for q in rows if q.startswith(EMPTY)}
    assert rows["members_by_group"] == [(GROUP, 1, 1)]
    (offsets,) = (found for query, found in rows.items() if query.startswith("-- The committed offsets of a group"))
    assert [row.partition for row in offsets if row.member_id == "m"] == [3]
    assert [row.number_of_groups > 0 for row in rows["totals"]] == [True]
    assert sum(row.commits for row in rows["commits_per_minute"]) == 600


@pytest.mark.nightly
def test_every_query_answers_over_spark_connect(tables: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.spark.connect_session", str(tables), str(tmp_path), GROUP]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {query for query, rows in found["rows"].items() if not rows} == {
        query for query in found["rows"] if query.startswith(EMPTY)
    }
    assert len(found["rows"]) == 1 + len(cells()) + len(datasets())
    assert "key" in found["decoded"]
    assert "dedicated compute" in found["job"]
