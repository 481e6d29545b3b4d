"""If a job cannot reach its store or its executors, it says so in one line before it reads anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.processes import offsetstream
from testkit.s3_server import S3Server

pytestmark = pytest.mark.long

NOBODY = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def server(own_kafka: EmbeddedKafka) -> str:
    create_topics(admin_client(own_kafka.bootstrap_server))
    commit_plainly(own_kafka.bootstrap_server, {"first": [TopicPartition("orders", 0, 1)]})
    return own_kafka.bootstrap_server


def last_line(server: str, tables: str, checkpoint: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a job that cannot work to its end. Returns its error, which must be one line."""
    places = ("--tables", tables, "--checkpoint", checkpoint)
    done = offsetstream("run", "--bootstrap-server", server, *places, "--once", environment=environment)
    assert done.returncode == 1, done.stderr
    before, error = done.stderr.split(" ERROR ")
    assert "Traceback" not in before
    assert "Exception" not in before
    assert error.count("\n") == 1, error
    return error


def test_tables_that_hadoop_cannot_reach(s3: S3Server, server: str, tmp_path: Path) -> None:
    said = last_line(server, s3.uri("no-hadoop/tables"), str(tmp_path))
    assert said.startswith(f"Spark cannot reach {s3.uri('no-hadoop/tables/job_lease')}")
    assert "--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3.4.1" in said


def test_checkpoints_that_hadoop_cannot_reach(s3: S3Server, server: str, tmp_path: Path) -> None:
    said = last_line(server, str(tmp_path / "tables"), s3.uri("no-hadoop/checkpoints"))
    assert said.startswith(f"Spark cannot reach {s3.uri('no-hadoop/checkpoints')}")


def test_a_wrong_secret(s3: S3Server, server: str, tmp_path: Path) -> None:
    said = last_line(server, s3.uri("wrong/tables"), str(tmp_path), {"AWS_SECRET_ACCESS_KEY": "wrong"})
    assert said.startswith(f"cannot read the table {s3.uri('wrong/tables/')}")
    assert "SignatureDoesNotMatch" in said
    assert "set the store's address, region and credentials in the environment" in said


def test_no_credentials(s3: S3Server, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    said = last_line(server, s3.uri("none/tables"), str(tmp_path), {"AWS_METADATA_ENDPOINT": NOBODY})
    assert said.startswith(f"cannot read the table {s3.uri('none/tables/')}")
    assert "set the store's address, region and credentials in the environment" in said
