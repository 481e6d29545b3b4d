"""A job that may not read the topic says which right it lacks, and exits with 3."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from offsetstream.embedded.clients import QUIET, admin_client, coordinator_is_away
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.lookup import Lookup

LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
TOPIC_DESCRIBE = (ResourceType.TOPIC, "__consumer_offsets", LITERAL, AclOperation.DESCRIBE)
TOPIC_READ = (ResourceType.TOPIC, "__consumer_offsets", LITERAL, AclOperation.READ)
GROUP_DESCRIBE = (ResourceType.GROUP, "offsetstream", PREFIXED, AclOperation.DESCRIBE)
Right = tuple[ResourceType, str, ResourcePatternType, AclOperation]


@pytest.fixture(scope="module")
def secured() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(security="sasl_plaintext", users=("alice",)) as kafka:
        login = kafka.librdkafka_properties("admin")
        admin = admin_client(kafka.bootstrap_server, login)
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(30)
        config = {"bootstrap.servers": kafka.bootstrap_server, "group.id": "billing", **login}
        consumer = Consumer(config, logger=QUIET)
        once_there = retry(
            retry=retry_if_exception(coordinator_is_away), stop=stop_after_delay(60), wait=wait_fixed(0.2)
        )
        once_there(consumer.commit)(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
        consumer.close()
        yield kafka


def grant(kafka: EmbeddedKafka, *rights: Right) -> None:
    admin = admin_client(kafka.bootstrap_server, kafka.librdkafka_properties("admin"))
    acls = [AclBinding(*where, "User:alice", "*", what, AclPermissionType.ALLOW) for *where, what in rights]
    for future in admin.create_acls(acls).values():
        future.result(30)


def run_as_alice(kafka: EmbeddedKafka, folder: Path) -> "subprocess.CompletedProcess[str]":
    config = folder / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in kafka.client_properties("alice").items()))
    places = ("--tables", str(folder / "tables"), "--checkpoint", str(folder / "checkpoints"))
    command = [sys.executable, "-m", "offsetstream", "run", "--once", "--command-config", str(config), *places]
    return subprocess.run(
        [*command, "--bootstrap-server", kafka.bootstrap_server], capture_output=True, text=True, check=False
    )


def test_each_missing_right_is_named_and_no_more_are_needed(secured: EmbeddedKafka, tmp_path: Path) -> None:
    """One story, since each job's start takes its time: right after right is given, until the job works."""
    nothing = run_as_alice(secured, tmp_path)
    assert (nothing.returncode, "__consumer_offsets" in nothing.stderr) == (3, True), nothing.stderr

    grant(secured, TOPIC_DESCRIBE)
    no_group = run_as_alice(secured, tmp_path)
    words = "lacks DESCRIBE on the groups with the prefix offsetstream"
    assert (no_group.returncode, words in no_group.stderr) == (3, True), no_group.stderr

    grant(secured, GROUP_DESCRIBE)
    no_read = run_as_alice(secured, tmp_path)
    words = "lacks READ on the topic __consumer_offsets"
    assert (no_read.returncode, words in no_read.stderr) == (3, True), no_read.stderr

    grant(secured, TOPIC_READ)
    enough = run_as_alice(secured, tmp_path)
    assert enough.returncode == 0, enough.stderr
    assert "alice-secret" not in enough.stderr
    rows = Lookup(TablesLocation(str(tmp_path / "tables"))).rows("committed_offsets", ["group_id", "committed_offset"])
    assert rows == [{"group_id": "billing", "committed_offset": 5}]
