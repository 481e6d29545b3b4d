"""The complete job with tables and checkpoints on a real S3 server."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from offsetstream.cluster.log_ends import LogEnds
from offsetstream.demo.workload import Workload
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.stream.sampling.sampler import Rounds
from offsetstream.tables.create import create_tables
from offsetstream.tables.location import store_at
from offsetstream.tables.matching import merge_on_driver
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import append_rows, read_rows
from offsetstream.tables.store import Merge
from offsetstream.tables.transaction import BatchId
from testkit.merge_model import source_table
from testkit.s3_server import Request, S3Server
from testkit.stored_job import StoredJob
from testkit.waiting import await_
from tests.stores.contract import COMMITS, OFFSETS, commit, history

pytestmark = pytest.mark.long

IDLE_SECONDS = 48  # two heartbeats
BUDGET = 30  # requests per minute
A_SAMPLE = 12  # requests
A_MERGE_AND_AN_APPEND = 18


@pytest.fixture(scope="module")
def job(
    s3: S3Server, own_kafka: EmbeddedKafka, workload: Workload, tmp_path_factory: pytest.TempPathFactory
) -> StoredJob:
    return StoredJob(own_kafka.bootstrap_server, s3.uri("whole"), tmp_path_factory.mktemp("s3"), s3.spark_options)


def test_a_load_batches_and_a_stop(job: StoredJob, workload: Workload) -> None:
    with job.running("--trigger", "2 seconds") as running:
        running.await_(lambda: "Starting checkpoint" in running.said())
        workload.more()
        job.verify()
        groups = {row["group"] for row in job.rows("groups", "list")}
        assert workload.groups <= groups
        (group, *_) = sorted(workload.live_groups)
        assert group in job.printed("groups", "describe", "--group", group)
        job.printed("stop")
        assert running.ended() == 0
        assert "Stopped between two batches" in running.said()


def test_a_restart_resumes(job: StoredJob, workload: Workload) -> None:
    workload.more()
    assert "Continuing from checkpoint" in job.once()
    job.verify()


def test_a_reload(job: StoredJob) -> None:
    with job.running() as running:
        running.await_(lambda: "Continuing from checkpoint" in running.said())
        job.printed("reload")
        job.printed("stop")
        assert running.ended() == 0
    job.verify()


def test_maintenance(job: StoredJob) -> None:
    done = job.rows("maintain")
    assert {row["note"] for row in done} == {None}
    job.verify()


def requests_in(s3: S3Server, seconds: float) -> list[Request]:
    before = len(s3.requests)
    time.sleep(seconds)
    return s3.requests[before:]


def test_an_idle_job_sends_few_requests(job: StoredJob, s3: S3Server) -> None:
    with job.running("--sample-interval", "0") as running:
        running.await_(lambda: "Continuing from checkpoint" in running.said())
        # After its start, it only looks at the lease.
        running.await_(lambda: all("/job_lease/" in each.key for each in requests_in(s3, 10)))
        idle = requests_in(s3, IDLE_SECONDS)
        # A checkpoint of the lease's log reads 20 versions at once, every ten minutes.
        if any(each.api == "PutObject" and "checkpoint" in each.key for each in idle):
            idle = requests_in(s3, IDLE_SECONDS)
        job.printed("stop")
        assert running.ended() == 0
    assert len(idle) * 60 / IDLE_SECONDS <= BUDGET, Counter((each.api, each.key.rpartition("/")[0]) for each in idle)


def test_a_sample_of_end_offsets_sends_few_requests(s3: S3Server, own_kafka: EmbeddedKafka, workload: Workload) -> None:
    cluster, tables, batch = LogEnds(own_kafka.bootstrap_server), store_at(s3.uri("sampled")), BatchId(1, -1)
    create_tables(tables, cluster.cluster_id(), "new")
    rounds = Rounds(tables, cluster, "new", lambda _: None)
    counts = []
    for number in range(6):
        before = len(s3.requests)
        rounds.ask()
        rounds.write(batch)
        s3.files().open_output_stream(f"{s3.bucket}/told/{number}").close()
        await_(lambda: any(each.key == f"told/{number}" for each in s3.requests[before:]))  # noqa: B023 - it tells later
        counts.append(sum(not each.key.startswith("told/") for each in s3.requests[before:]))
    assert len(read_rows(tables.open("topic_partitions"))) == 50
    assert max(counts[1:]) <= A_SAMPLE, (counts, Counter((each.api, each.key) for each in s3.requests[before:]))


def test_a_merge_and_an_append_send_few_requests(s3: S3Server) -> None:
    """They read no log, and no rows that the job wrote before: two lists and two reads are delta-rs's own commit."""
    create_tables(store_at(s3.uri("written")), "cluster-1", "new")
    tables, counts = store_at(s3.uri("written")).for_job(), list[Counter[str]]()
    for number in range(12):
        before, batch = len(s3.requests), BatchId(1, number)
        rows = source_table(load_schema(OFFSETS), [commit(number, f"g{group}", at=number) for group in range(9)])
        merge_on_driver(tables, rows, Merge(load_schema(OFFSETS), newer_only=True), batch)
        append_rows(tables, COMMITS, history(number), batch)
        s3.files().open_output_stream(f"{s3.bucket}/told/{number}").close()
        await_(lambda: any(each.key == f"told/{number}" for each in s3.requests[before:]))  # noqa: B023 - it tells later
        counts.append(Counter(each.api for each in s3.requests[before:] if not each.key.startswith("told/")))
    assert max(each.total() for each in counts[2:9]) <= A_MERGE_AND_AN_APPEND, counts
    assert len(read_rows(tables.open(OFFSETS))) == 9


def test_a_plain_path_is_the_local_disk(
    s3: S3Server, own_kafka: EmbeddedKafka, workload: Workload, tmp_path: Path
) -> None:
    """Whatever Hadoop's default file system is."""
    elsewhere = ("--conf", f"spark.hadoop.fs.defaultFS={s3.uri('')}")
    options = (*s3.spark_options, *elsewhere)
    job = StoredJob(own_kafka.bootstrap_server, str(tmp_path / "here"), tmp_path, options)
    job.once()
    workload.more()
    assert "Continuing from checkpoint" in job.once()
    job.verify()
    assert not [each for each in s3.requests if str(tmp_path).strip("/") in each.key and each.api == "PutObject"]
