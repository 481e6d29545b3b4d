"""A restart after the checkpoint or tables were lost, deleted or replaced by older ones: nothing else is different."""

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
    """One job for all of them: each begins with the tables that the one before it left."""
    create_topics(admin_client(own_kafka.bootstrap_server))
    made = CheckedJob(spark, own_kafka.bootstrap_server, tmp_path_factory.mktemp("job"))
    made.commit()
    assert made.run() == []
    return made


def test_a_checkpoint_older_than_the_tables(job: CheckedJob, tmp_path: Path) -> None:
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


def test_tables_older_than_the_checkpoint(job: CheckedJob, tmp_path: Path) -> None:
    tables = job.runner.tables.root
    shutil.copytree(tables, tmp_path / "older")
    job.commit()
    assert job.run() == []
    shutil.rmtree(tables)
    shutil.copytree(tmp_path / "older", tables)
    job.commit()
    assert job.run() == []


@pytest.mark.nightly
def test_a_checkpoint_of_other_tables(job: CheckedJob, tmp_path: Path) -> None:
    """Jobs of two sets of tables take checkpoints of one folder in turn, also numbers that the other one had."""
    other = job.beside(tmp_path)
    assert other.run() == []
    checkpoints = Path(job.runner.settings.checkpoint)
    shutil.rmtree(checkpoints)
    for each in (other, job, other, job):
        each.commit()
        assert each.run() == []


ALL = " ".join(all_schemas())
# By table, or tables, that someone deletes: whether everything is loaded anew, and whether the history begins anew.
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
    ALL: (False, True),  # they are new ones, not someone's
}

# Tables of which another one of their kind is tried sooner.
OTHERS, ALIKE = ("group_members", "offset_commits", "offsets_partitions"), pytest.mark.nightly


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(names, id="all" if names == ALL else names, marks=ALIKE if names in OTHERS else ())
        for names in DELETED
    ],
)
def test_deleted_tables_are_made_again(job: CheckedJob, names: str) -> None:
    before, since = len(job.runner.said.getvalue()), datetime.now(UTC)
    for name in names.split():
        shutil.rmtree(job.runner.tables.table(name))
    if "job_lease" in names:
        shutil.rmtree(job.runner.settings.checkpoint)
    job.commit()
    assert job.run() == []
    said = job.runner.said.getvalue()[before:]
    complete_from = [row[0] for row in job.runner.rows("offsets_partitions", "history_complete_from")]
    is_told = f"Someone deleted {names}: all partitions are loaded again" in said
    assert (is_told, min(complete_from) > since) == DELETED[names], said
    assert ("The table history_ledger is missing: it is rebuilt" in said) == (names == "history_ledger")
