"""A job whose Spark accepts a task and never answers says so at /healthz, and then ends; the next job continues."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import TopicPartition

from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.ports import free_ports
from testkit.processes import JobProcess, descendants, printed

pytestmark = pytest.mark.long


def health(port: int) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def python_workers(java: int) -> list[int]:
    return [pid for pid in descendants(java) if b"daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_spark_task_that_never_ends(own_kafka: EmbeddedKafka, tmp_path: Path) -> None:
    server, (port,) = own_kafka.bootstrap_server, free_ports(1)
    create_topics(admin_client(server))
    commit_plainly(server, {"first": [TopicPartition("orders", 0, 1)]})
    folder = tmp_path / "job"
    with JobProcess(server, folder, "--max-stall", "1", "--metrics-port", str(port)) as job:
        job.await_(lambda: "Starting checkpoint" in job.said())
        commit_plainly(server, {"first": [TopicPartition("orders", 0, 2)]})
        job.await_(lambda: "Batch 0" in job.said())
        assert health(port) == (200, "ok\n")
        workers = python_workers(job.pid)
        assert workers
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        try:
            commit_plainly(server, {"first": [TopicPartition("orders", 0, 3)]})
            job.await_(lambda: health(port)[0] == 503)
            assert "it waits for Spark" in health(port)[1]
            assert job.ended() == 1
        finally:
            for pid in workers:
                with suppress(ProcessLookupError):  # those whose stopped parent has ended too
                    os.kill(pid, signal.SIGCONT)
        last = job.said().splitlines()[-1]
        assert " ERROR " in last
        assert "has made no progress for " in last  # the batch, or the main loop: both need Spark
        assert "it waits for Spark" in last
    with JobProcess(server, folder, "--once") as job:
        assert job.ended() == 0
    printed("verify", "--bootstrap-server", server, "--history", "--tables", str(folder / "tables"))
    offsets = json.loads(printed("offsets", "list", "--tables", str(folder / "tables"), "--output", "json"))
    assert [row["committed_offset"] for row in offsets] == [3]
