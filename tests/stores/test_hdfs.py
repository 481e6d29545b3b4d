"""The complete job with tables and checkpoints on a real HDFS, which delta-rs reaches with its own client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from offsetstream.demo.workload import Workload
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.stored_job import StoredJob
from tests.stores.hdfs_cluster import hdfs_cluster

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def hdfs() -> Iterator[str]:
    with hdfs_cluster() as uri:
        yield uri


def test_the_complete_job_on_hdfs(
    hdfs: str, own_kafka: EmbeddedKafka, workload: Workload, tmp_path_factory: pytest.TempPathFactory
) -> None:
    options = ("--conf", "spark.hadoop.dfs.replication=1", "--trigger", "2 seconds")
    job = StoredJob(own_kafka.bootstrap_server, f"{hdfs}/lake", tmp_path_factory.mktemp("hdfs"), options)
    with job.running() as running:
        running.await_(lambda: "Starting checkpoint" in running.said())
        workload.more()
        job.verify()
        job.printed("reload")
        assert workload.groups <= {row["group"] for row in job.rows("groups", "list")}
        job.printed("stop")
        assert running.ended() == 0
    workload.more()
    assert "Continuing from checkpoint" in job.once()
    assert {row["note"] for row in job.rows("maintain")} == {None}
    job.verify()
