"""A group has an undecodable assignment from its leader: `verify` names it and compares the others."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from offsetstream.codec.records import encode_record
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.garbage import produce
from testkit.live_logs import create_topic
from testkit.processes import within
from tests.kafka.jobs import JobRunner

pytestmark = pytest.mark.long

BROKEN = {"too-short": b"\0", "of-version-minus-1": b"\xff\xff"}


def test_verify_names_the_group_and_compares_the_others(spark: SparkSession, tmp_path: Path) -> None:
    with EmbeddedKafka() as kafka:
        server = kafka.bootstrap_server
        create_topic(server, "orders")
        commit_plainly(server, {name: [TopicPartition("orders", 0, 4)] for name in ("one", "two", "three", "four")})
        produce(server, ((partition_for(name, 50), *record(name, each)) for name, each in BROKEN.items()))
        kafka.restart()  # coordinators read the log when they start
        runner = JobRunner(spark, server, tmp_path)
        runner.run_once()
        done = within("verify", "--bootstrap-server", server, "--tables", runner.tables.root, "--settle", "0")
        assert (done.returncode, done.stdout) == (3, ""), done.stderr
        assert "4 groups compared: 0 unexplained differences, 0 explained" in done.stderr
        for name in BROKEN:
            assert f"Not compared: {name}: Kafka's client cannot read a member's assignment" in done.stderr


def record(group: str, assignment: bytes) -> tuple[bytes, bytes | None]:
    member: dict[str, Any] = {"memberId": "m", "clientId": "c", "clientHost": "/h", "groupInstanceId": None}
    member |= {"sessionTimeout": 1_800_000, "rebalanceTimeout": 1_800_000, "subscription": "AAAAAAAA/////w=="}
    members = [member | {"assignment": base64.b64encode(assignment).decode()}]
    value = {"protocolType": "consumer", "generation": 1, "protocol": "range", "leader": "m", "members": members}
    key = {"type": 2, "data": {"group": group}}
    return encode_record(key, {"version": 3, "data": value | {"currentStateTimestamp": 1}})
