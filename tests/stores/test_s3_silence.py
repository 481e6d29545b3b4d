"""A job outlives an S3 server that is away for minutes. One that never answers ends it; the next job continues."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from offsetstream.demo.workload import Workload
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.s3_server import S3Server
from testkit.stored_job import StoredJob

pytestmark = pytest.mark.nightly


def test_a_store_that_never_answers(s3: S3Server, own_kafka: EmbeddedKafka, workload: Workload, tmp_path: Path) -> None:
    job = StoredJob(own_kafka.bootstrap_server, s3.uri("silence"), tmp_path, s3.spark_options)
    with job.running("--trigger", "2 seconds", "--max-stall", "1") as running:
        running.await_(lambda: "Starting checkpoint" in running.said())
        os.kill(s3.pid, signal.SIGSTOP)
        try:
            assert running.ended() == 1
        finally:
            os.kill(s3.pid, signal.SIGCONT)
        last = running.said().splitlines()[-1]
        assert " ERROR " in last
    workload.more()
    job.once()
    job.verify()


def test_a_store_that_refuses_connections_for_minutes(
    s3: S3Server, own_kafka: EmbeddedKafka, workload: Workload, tmp_path: Path
) -> None:
    job = StoredJob(own_kafka.bootstrap_server, s3.uri("away"), tmp_path, s3.spark_options)
    with job.running("--trigger", "2 seconds") as running:
        running.await_(lambda: "Starting checkpoint" in running.said())
        with s3.away():
            workload.more()
            running.await_(lambda: running.said().count("; retrying in ") > 3)
        running.await_(lambda: running.said().count("Starting checkpoint") > 1)
        running.signal(signal.SIGTERM)
        assert running.ended() == 0
        assert " ERROR " not in running.said()
    job.once()
    job.verify()
