"""A restart gives the same tables after the checkpoint or tables were lost, deleted or replaced by older ones."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from offsetstream.demo.topics import create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.tables.schema import all_schemas
from tests.reliability.checked_job import CheckedJob

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def job(spark: SparkSession, own_kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> CheckedJob:
    """One job for all tests: each test starts with the tables that the previous one left."""
    create_topics(admin_client(own_kafka.bootstrap_server))
    made = CheckedJob(spark, own_kafka.bootstrap_server, tmp_path_factory.mktemp("job"))
    made.commit()
    assert made.run() == []
    return made


def test_restart_with_a_checkpoint_older_than_the_tables(job: CheckedJob, tmp_path: Path) -> None:
    job.commit()
    assert job.run() == []
    shutil.copytree(job.runner.settings.checkpoint, tmp_path / "older")
    for _ in range(2):
        job.commit()
        assert job.run() == []
    shutil.rmtree(job.runner.settings.checkpoint)
    shutil.copytree(tmp_path / "older", job.runner.settings.checkpoint)
    job.commit()
    assert job.run() == []


def test_restart_with_tables_older_than_the_checkpoint(job: CheckedJob, tmp_path: Path) -> None:
    tables = job.runner.tables.root
    shutil.copytree(tables, tmp_path / "older")
    job.commit()
    assert job.run() == []
    shutil.rmtree(tables)
    shutil.copytree(tmp_path / "older", tables)
    job.commit()
    assert job.run() == []


@pytest.mark.nightly
def test_restart_with_a_checkpoint_of_other_tables(job: CheckedJob, tmp_path: Path) -> None:
    """Two jobs with their own tables use one checkpoint folder in turn, with numbers that the other one used too."""
    other_job = job.beside(tmp_path)
    assert other_job.run() == []
    checkpoints = Path(job.runner.settings.checkpoint)
    shutil.rmtree(checkpoints)
    for each in (other_job, job, other_job, job):
        each.commit()
        assert each.run() == []


ALL = " ".join(all_schemas())
# By deleted tables: whether all partitions are loaded again, and whether the history starts again.
DELETED = {
    "committed_offsets": (True, False),
    "group_members": (True, False),
    "offset_commits": (True, True),
    "member_history": (True, False),
    "offsets_partitions": (True, True),
    "job_lease": (False, False),
    "topics partition_events": (False, False),
    "topic_partitions end_offsets cluster": (False, False),
    "history_ledger": (False, False),
    ALL: (False, True),  # without any table the job starts from nothing
}

# Tables for which a similar one is tested before the night.
OTHERS, ALIKE = ("group_members", "offset_commits", "offsets_partitions"), pytest.mark.nightly


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(names, id="all" if names == ALL else names, marks=ALIKE if names in OTHERS else ())
        for names in DELETED
    ],
)
def test_restart_recreates_deleted_tables(job: CheckedJob, names: str) -> None:
    before, since = len(job.runner.said.getvalue()), datetime.now(UTC)
    for name in names.split():
        shutil.rmtree(job.runner.tables.table(name))
    if "job_lease" in names:
        shutil.rmtree(job.runner.settings.checkpoint)
    job.commit()
    assert job.run() == []
    output = job.runner.said.getvalue()[before:]
    complete_from = [row[0] for row in job.runner.rows("offsets_partitions", "history_complete_from")]
    is_reported = f"Someone deleted {names}: all partitions are loaded again" in output
    assert (is_reported, min(complete_from) > since) == DELETED[names], output
    assert ("The table history_ledger is missing: it is rebuilt" in output) == (names == "history_ledger")
