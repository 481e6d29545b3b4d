"""Files of the tables are lost or damaged: the job makes anew what it can, and `repair` keeps the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from offsetstream.demo.topics import create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import DamagedTableError
from offsetstream.tables.create import HEALED_BY_JOB, MADE_ANEW
from offsetstream.tables.names import COMMITS, LEDGER, RECORD_TABLES
from offsetstream.tables.schema import all_schemas
from offsetstream.tables.small_tables import read_rows
from offsetstream.verify.repair import LOST
from testkit.damage import OF_FILES, OF_LOG, cut_last_entry, data_files, lose_file
from testkit.garbage import produce
from testkit.live_logs import joined
from testkit.processes import within
from tests.kafka.partition_seven import set_topic_config
from tests.kafka.quick_compaction import DOOMED, commit_doomed, delete_doomed, quickly_compacting_kafka
from tests.reliability.checked_job import CheckedJob

pytestmark = pytest.mark.long
Damaging = Callable[[Path], None]


@pytest.fixture(scope="module")
def job(
    spark: SparkSession, own_kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CheckedJob]:
    """One job for all tests, with rows in each table, and several commits of each."""
    server = own_kafka.bootstrap_server
    create_topics(admin_client(server))
    made = CheckedJob(spark, server, tmp_path_factory.mktemp("job"))
    with closing(joined(server, "present", "orders")):
        for _ in range(3):
            produce(server, iter([(7, b"\x00\x63 no key", b"no value")]))
            with closing(joined(server, "past", "orders")):
                pass
            made.commit()
            assert made.run() == []
        yield made


def folder_of(job: CheckedJob, name: str) -> Path:
    return Path(job.runner.tables.table(name))


def rows_of(job: CheckedJob, name: str) -> list[dict[str, Any]]:
    return read_rows(job.runner.tables.open(name))


def is_damaged(job: CheckedJob, name: str) -> bool:
    return bool(job.runner.tables.folder(name).damage())


def repair(job: CheckedJob, *more: str) -> str:
    """Repair the tables as a person does, and return what the command said."""
    tables = job.runner.tables.root
    shown = within("repair", "--tables", tables)
    assert shown.returncode == 1, shown.stderr
    done = within("repair", "--tables", tables, "--execute", *more)
    assert done.returncode == 0, done.stderr
    after = within("repair", "--tables", tables)
    assert (after.returncode, after.stdout) == (0, ""), after.stdout
    return shown.stdout + done.stderr


def server_of(job: CheckedJob) -> tuple[str, str]:
    return "--bootstrap-server", job.runner.settings.bootstrap_server


def some_damages(names: Collection[str]) -> list[tuple[str, Damaging]]:
    """Return each table with a damage of its files and one of its log; together, the tables have all kinds."""
    return [
        (name, kinds[number % len(kinds)]) for number, name in enumerate(sorted(names)) for kinds in (OF_FILES, OF_LOG)
    ]


def damaged(job: CheckedJob, name: str, damaging: Damaging) -> Path:
    """Damage a table, and return its folder."""
    table = folder_of(job, name)
    damaging(table)
    assert is_damaged(job, name)
    return table


@pytest.mark.parametrize(("name", "damaging"), some_damages(HEALED_BY_JOB))
def test_the_job_makes_a_damaged_table_anew(job: CheckedJob, name: str, damaging: Damaging) -> None:
    damaged(job, name, damaging)
    before = len(job.runner.said.getvalue())
    job.commit()
    job.runner.run_once()
    if is_damaged(job, name):  # the job had no need to read it
        assert damaging in OF_FILES
        repair(job)
    elif damaging in OF_LOG:  # else it may have replaced all rows
        assert f"The table {name} is made anew" in job.runner.said.getvalue()[before:]
    assert job.run() == []


@pytest.mark.parametrize(("name", "damaging"), some_damages(all_schemas().keys() - MADE_ANEW))
def test_a_history_keeps_its_readable_rows_and_gets_the_others_back(
    job: CheckedJob, name: str, damaging: Damaging
) -> None:
    rows = len(rows_of(job, name))
    damaged(job, name, damaging)
    said = repair(job, *server_of(job))
    assert name in said
    if name in RECORD_TABLES:
        assert len(rows_of(job, name)) == rows
    assert job.run() == []
    assert not [row for row in rows_of(job, "partition_events") if row["event"] == LOST]


def test_what_the_topic_no_longer_has_is_named(tmp_path: Path, spark: SparkSession) -> None:
    with quickly_compacting_kafka() as kafka:
        job = CheckedJob(spark, kafka.bootstrap_server, tmp_path)
        assert job.run() == []
        commit_doomed(kafka)
        assert job.run() == []
        (until,) = {row["record_offset"] for row in rows_of(job, COMMITS) if row["group_id"] == DOOMED}
        set_topic_config(kafka, delete_retention_ms="2000")
        delete_doomed(kafka, 0)  # and no record of it is left in the log
        assert job.run() == []
        set_topic_config(kafka, delete_retention_ms="86400000")
        complete_from = claim(job)
        lost_files = [each for each in data_files(folder_of(job, COMMITS)) if has_offset(each, until)]
        for file in lost_files:
            file.unlink()
        said = repair(job, *server_of(job))
        assert re.search(
            r"Offsets partition 7: [\d,]+ rows of offset_commits up to offset [\d,]+, written on .* are gone", said
        )
        assert claim(job) is None
        (event,) = [row for row in rows_of(job, "partition_events") if row["event"] == LOST]
        assert (event["offsets_partition"], event["log_id"]) == (7, 0)
        assert event["detail"] in said
        assert [row["history"] for row in rows_of(job, LEDGER) if row["rows"] < 0] == [COMMITS]
        assert job.run() == []
        assert claim(job) > complete_from
        verified = within("verify", "--tables", job.runner.tables.root, *server_of(job), "--history")
        assert verified.returncode == 0, verified.stderr


def claim(job: CheckedJob) -> Any:
    (found,) = [
        row["history_complete_from"] for row in rows_of(job, "offsets_partitions") if row["offsets_partition"] == 7
    ]
    return found


def has_offset(file: Path, offset: int) -> bool:
    found = pq.read_table(file, columns=["record_offset"])
    return offset in found["record_offset"].to_pylist()


def test_the_ledger_is_counted_anew(job: CheckedJob) -> None:
    cut_last_entry(folder_of(job, LEDGER))
    with pytest.raises(DamagedTableError, match="history_ledger"):
        job.run()
    assert "earlier losses are then unknown" in repair(job)
    assert job.run() == []


def test_the_job_makes_nothing_anew_if_it_must_not(job: CheckedJob) -> None:
    lose_file(folder_of(job, "committed_offsets"))
    with pytest.raises(DamagedTableError, match="committed_offsets"):
        job.runner.job(once=True, repair=False).run()
    assert job.run() == []
