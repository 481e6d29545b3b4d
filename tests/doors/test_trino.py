"""Trino reads every table as we do: from disk, object store and Glue, and a job's tables from Hive's metastore.

The first run downloads Trino (0.8 GB) and a Java for it.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from offsetstream.demo.workload import run_workload
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.ports import LOOPBACK
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import all_schemas
from offsetstream.tables.small_tables import read_rows
from testkit.metastore import metastore_in
from testkit.processes import JobProcess
from testkit.s3_server import s3_server
from testkit.waiting import SECONDS
from tests.doors.trino import VERSION, Trino, glue, of_glue, of_hive, on_disk, on_s3, trino

pytestmark = pytest.mark.nightly

BI = (Path(__file__).parents[2] / "docs" / "how-to" / "bi.md").read_text("utf-8")
PLACES = ("disk", "s3", "glue", "hive")


@pytest.fixture(scope="module")
def by_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """What a job wrote to a schema `kafka` of Hive's metastore: the metastore's port, and the schema's folder."""
    metastore = metastore_in(tmp_path_factory.mktemp("metastore"))
    with metastore.running():
        with EmbeddedKafka() as kafka, run_workload(kafka.bootstrap_server, groups=12, seed=7, say=lambda _line: None):
            folder = tmp_path_factory.mktemp("jobs") / "kafka"
            options = ("--once", *metastore.options)
            with JobProcess(kafka.bootstrap_server, folder, *options, tables="spark_catalog.kafka") as job:
                assert job.process.wait(4 * SECONDS) == 0, job.said()
        yield metastore.port, metastore.place_of("kafka")


@pytest.fixture(scope="module")
def server(night: Path, by_job: tuple[int, Path]) -> Iterator[Trino]:
    with ExitStack() as stack:
        s3 = stack.enter_context(s3_server())
        pafs.copy_files(str(night), f"{s3.bucket}/tables", destination_filesystem=s3.files())
        catalogs = {
            "disk": on_disk(night.parent),
            "s3": on_s3(s3.bucket, s3.environment),
            "glue": of_glue(stack.enter_context(glue()), s3.environment),
            "hive": of_hive(f"{LOOPBACK}:{by_job[0]}"),
        }
        found = stack.enter_context(trino(catalogs))
        in_bucket = f"s3://{s3.bucket}/tables"
        for catalog, root in (("disk", "local:///tables"), ("s3", in_bucket), ("glue", in_bucket)):
            place = f"WITH (location = 's3://{s3.bucket}/glue')" if catalog == "glue" else ""
            found.rows(f"CREATE SCHEMA {catalog}.kafka {place}")
            for table in all_schemas():
                found.rows(f"CALL {catalog}.system.register_table('kafka', '{table}', '{root}/{table}')")
        yield found


@pytest.mark.parametrize("place", PLACES)
def test_each_table_has_its_rows(server: Trino, night: Path, by_job: tuple[int, Path], place: str) -> None:
    of_job, total = place == "hive", 0
    tables = PathStore(str(by_job[1] if of_job else night))
    for table, schema in all_schemas().items():
        columns = schema.column_names
        quoted = ", ".join(f'"{name}"' for name in columns)
        theirs = server.rows(f"SELECT {quoted} FROM {place}.kafka.{table}")  # noqa: S608
        rows = read_rows(tables.open(table))
        ours = [[_as_trino(row[name], is_cut=of_job) for name in columns] for row in rows]
        assert sorted(theirs, key=repr) == sorted(ours, key=repr), table
        total += len(ours)
    assert total > 500


@pytest.mark.parametrize("place", PLACES)
def test_each_column_has_its_comment(server: Trino, place: str) -> None:
    for table, schema in all_schemas().items():
        comments = [(row[0], row[3]) for row in server.rows(f"DESCRIBE {place}.kafka.{table}")]
        assert comments == [(column.name, column.comment) for column in schema.columns], table


def test_the_docs_show_the_tested_catalogs() -> None:
    blocks = [set(block.splitlines()) for block in BI.split("```")[1::2]]
    for settings in (on_disk(Path("/lake")), of_hive("metastore:9083")):
        assert any({f"{key}={value}" for key, value in settings.items()} <= block for block in blocks), settings
    of_s3 = (on_s3("lake", defaultdict(str)), of_glue("", defaultdict(str)))
    assert [key for settings in of_s3 for key in settings if key not in BI] == []
    assert f"Trino {VERSION}" in BI


def _as_trino(value: Any, *, is_cut: bool) -> Any:
    """Return a value as Trino's HTTP API shows it.

    Timestamps have milliseconds: rounded in delta-rs' files, cut in Spark's.
    """
    if isinstance(value, datetime):
        kept = value if is_cut else value + timedelta(microseconds=500)
        return f"{kept.isoformat(' ', 'milliseconds').removesuffix('+00:00')} UTC"
    if isinstance(value, date):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
