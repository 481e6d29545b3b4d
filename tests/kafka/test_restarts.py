"""A job whose checkpoint or tables somebody lost, deleted, replaced by older ones, doubled, or gave own columns."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyspark.sql import SparkSession

from offsetstream.demo.topics import create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import TablesError
from offsetstream.tables.names import STATE_TABLES
from offsetstream.tables.schema import all_schemas
from offsetstream.tables.small_tables import read_rows
from testkit.tables import snapshot_at
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


BOOKS = ("offsets_partitions", "topics", "job_lease")


def double(job: CheckedJob, *names: str) -> None:
    for name in names:
        path = job.runner.tables.table(name)
        write_deltalake(path, DeltaTable(path).to_pyarrow_table(), mode="append")


def keys(job: CheckedJob, name: str) -> list[str]:
    rows = read_rows(job.runner.tables.open(name))
    return [str([row[column] for column in all_schemas()[name].key]) for row in rows]


def doubled(job: CheckedJob) -> list[str]:
    return [name for name in (*STATE_TABLES, *BOOKS) if len(found := keys(job, name)) != len(set(found))]


def test_a_start_repairs_doubled_rows(job: CheckedJob) -> None:
    double(job, *STATE_TABLES, *BOOKS)
    assert {"committed_offsets", "groups", *BOOKS} <= set(doubled(job))
    assert job.run() == []
    assert doubled(job) == []
    assert "the table groups has rows twice in the offsets partitions " in job.runner.said.getvalue()


def test_a_batch_repairs_rows_doubled_while_the_job_runs(job: CheckedJob) -> None:
    before = len(job.runner.said.getvalue())
    with job.runner.running():
        job.commit()
        job.runner.await_(lambda: "Batch" in job.runner.said.getvalue()[before:])
        double(job, "committed_offsets")
        job.commit()
        job.runner.await_(lambda: "Starting checkpoint" in job.runner.said.getvalue()[before:])
        job.runner.await_(lambda: doubled(job) == [])
    assert "committed_offsets has rows twice" in job.runner.said.getvalue()[before:]
    assert job.run() == []


def test_the_job_keeps_a_users_columns_and_reports_a_violated_check(job: CheckedJob) -> None:
    for name in all_schemas():
        alter = DeltaTable(job.runner.tables.table(name)).alter
        alter.add_columns([Field("note", PrimitiveType("string"))])
        DeltaTable(job.runner.tables.table(name)).alter.add_constraint({"mine": "note IS NULL OR note = 'mine'"})
    path = job.runner.tables.table("committed_offsets")
    DeltaTable(path).update({"note": "'mine'"})
    job.commit()
    assert job.run() == []
    assert {row["note"] for row in read_rows(snapshot_at(path))} == {"mine"}  # also in updated rows

    history = job.runner.tables.table("offset_commits")
    DeltaTable(history).alter.add_constraint({"bad": f"record_offset <= {_greatest(history)}"})
    job.commit()
    with pytest.raises(TablesError, match=r"violate a CHECK constraint .*DROP CONSTRAINT bad, .* mine$") as error:
        job.run()
    assert "\n" not in str(error.value)
    DeltaTable(history).alter.drop_constraint("bad")
    assert job.run() == []


def _greatest(path: str) -> int:
    return max(int(row["record_offset"]) for row in read_rows(snapshot_at(path)))


def test_a_load_keeps_a_users_columns(job: CheckedJob) -> None:
    before = _notes(job)
    double(job, "groups")
    assert job.run() == []
    assert _notes(job) == before
    assert "mine" in set(before.values())


def _notes(job: CheckedJob) -> dict[str, str | None]:
    rows = read_rows(job.runner.tables.open("committed_offsets"))
    return {str((row["group_id"], row["topic"], row["partition"])): row["note"] for row in rows}
