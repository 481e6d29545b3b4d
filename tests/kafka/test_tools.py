"""Kafka's own tools work with the broker of the test session."""

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.jvm import CONSUMER_GROUPS, run_tool
from offsetstream.errors import ClusterError
from testkit.brokers import BrokerUnderTest
from testkit.waiting import SECONDS
from tests.kafka.admin_answers import committed_offsets


def test_kafkas_own_tool_deletes_offsets(kafka: BrokerUnderTest) -> None:
    admin = admin_client(kafka.bootstrap_server)
    topic, group = "tools-topic", "tools-group"
    admin.create_topics([NewTopic(topic, 2)])[topic].result(SECONDS)
    commits = [TopicPartition(topic, 0, 4, "kept"), TopicPartition(topic, 1, 5)]
    commit_plainly(kafka.bootstrap_server, {group: commits})
    arguments = ["--bootstrap-server", kafka.bootstrap_server, "--group", group]
    printed = run_tool(CONSUMER_GROUPS, [*arguments, "--delete-offsets", "--topic", f"{topic}:1"])
    assert "Successful" in printed
    assert set(committed_offsets(admin, [group])) == {(group, topic, 0)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--group", "nobody", "--delete-offsets", "--topic", "nothing:0"], "The group id does not exist"),
        (["--nonsense"], "nonsense is not a recognized option"),
    ],
)
def test_the_error_of_a_failed_tool_is_quoted(kafka: BrokerUnderTest, arguments: list[str], words: str) -> None:
    with pytest.raises(ClusterError, match=f"ConsumerGroupCommand .*{words}") as raised:
        run_tool(CONSUMER_GROUPS, ["--bootstrap-server", kafka.bootstrap_server, *arguments])
    assert "\n" not in str(raised.value)
