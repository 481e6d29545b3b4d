"""The embedded broker: its versions, its nodes, its end, and its message when it cannot start."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded import kafka as embedded
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.ports import LOOPBACK, free_ports
from offsetstream.errors import EnvironmentNotReadyError, UsageError
from testkit.processes import await_gone, is_alive
from testkit.waiting import SECONDS
from tests.kafka.admin_answers import committed_offsets

pytestmark = pytest.mark.nightly

HOLDER = """
import time
from offsetstream.embedded.kafka import EmbeddedKafka
with EmbeddedKafka() as kafka:
    print(kafka.pids[1], kafka.folder, flush=True)
    time.sleep(600)
"""


def create_topic(admin: AdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 2)])[name].result(SECONDS)


def commit(kafka: EmbeddedKafka, group: str, topic: str, offset: int) -> None:
    commit_plainly(kafka.bootstrap_server, {group: [TopicPartition(topic, 0, offset)]})


@pytest.mark.parametrize("version", ["4.4.0", "4.3.1", "4.1.2", "3.9.2"])
def test_each_version_keeps_commits_over_a_restart_and_leaves_nothing_behind(version: str) -> None:
    with EmbeddedKafka(version) as kafka:
        admin = admin_client(kafka.bootstrap_server)
        assert admin.describe_cluster().result(SECONDS).cluster_id == kafka.cluster_id
        create_topic(admin, "orders")
        commit(kafka, "billing", "orders", 7)
        kafka.restart()
        found = committed_offsets(admin_client(kafka.bootstrap_server), ["billing"])
        assert found["billing", "orders", 0].committed_offset == 7
        assert "Kafka Server started" in kafka.logs(lines=5000)
        pid, folder = kafka.pids[1], kafka.folder
        assert is_alive(pid)
        assert folder.is_dir()
    assert not is_alive(pid)
    assert not folder.exists()


def test_three_nodes_replicate_and_continue_without_one() -> None:
    with EmbeddedKafka(brokers=3) as kafka:
        admin = admin_client(kafka.bootstrap_server)
        create_topic(admin, "orders")
        commit(kafka, "billing", "orders", 7)
        offsets_topic = admin.list_topics("__consumer_offsets", timeout=SECONDS).topics["__consumer_offsets"]
        assert len(offsets_topic.partitions) == 50
        assert {len(partition.replicas) for partition in offsets_topic.partitions.values()} == {3}
        kafka.stop_broker(2)
        assert set(kafka.pids) == {1, 3}
        commit(kafka, "billing", "orders", 8)
        kafka.start_broker(2)
        kafka.stop_broker(1, kill=True)
        commit(kafka, "billing", "orders", 9)
        assert committed_offsets(admin, ["billing"])["billing", "orders", 0].committed_offset == 9


def test_broker_and_folder_disappear_with_a_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        pid, folder = parent.stdout.readline().split()
        assert is_alive(int(pid))
        os.kill(parent.pid, signal.SIGKILL)
    await_gone(int(pid), Path(folder))


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        pytest.param({"num.io.threads": "none"}, "num.io.threads", id="while-formatting"),
        pytest.param({"authorizer.class.name": "no.such.Authorizer"}, "no.such.Authorizer", id="at-start"),
    ],
)
def test_a_broker_that_cannot_start_shows_and_keeps_its_log(
    properties: dict[str, str], words: str, tmp_path: Path
) -> None:
    with pytest.raises(EnvironmentNotReadyError) as raised, EmbeddedKafka(properties=properties):
        pass
    first_line, log_tail = str(raised.value).split("\n", maxsplit=1)
    assert "4.3.1 of broker-1 ended with exit code 1 before it answered" in first_line
    assert words in log_tail
    kept_log = Path(first_line.split("Its log is ")[1].split(". The last lines")[0])
    assert words in kept_log.read_text()


def test_a_fixed_port_is_used_and_an_occupied_one_is_named() -> None:
    (port,) = free_ports(1)
    with EmbeddedKafka(port=port) as kafka:
        assert kafka.bootstrap_server == f"{LOOPBACK}:{port}"
        assert kafka.client_properties() == {}
        with pytest.raises(EnvironmentNotReadyError, match=f"Port {port} on {LOOPBACK} .*in use.*another port"):
            EmbeddedKafka(port=port).start()


def test_other_ports_are_chosen_if_the_first_ones_get_occupied(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other_socket:
        other_socket.bind((LOOPBACK, 0))
        other_socket.listen()
        taken = other_socket.getsockname()[1]
        choices = [[taken, *free_ports(2)], free_ports(3)]
        monkeypatch.setattr(embedded, "free_ports", lambda _count: choices.pop(0))
        with EmbeddedKafka() as kafka:
            assert not kafka.bootstrap_server.endswith(f":{taken}")
    assert choices == []


@pytest.mark.parametrize("arguments", [{"brokers": 2}, {"security": "ssl"}])
def test_invalid_arguments_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        EmbeddedKafka(**arguments)  # type: ignore[arg-type]  # wrong on purpose
