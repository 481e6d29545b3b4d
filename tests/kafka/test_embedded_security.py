"""The embedded broker with an authorizer: missing rights are refused, granted rights work."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from offsetstream.embedded.clients import QUIET, admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.waiting import SECONDS, await_


@pytest.fixture(scope="module")
def secured() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(security="sasl_plaintext", users=("alice",)) as kafka:
        admin = admin_client(kafka.bootstrap_server, kafka.librdkafka_properties("admin"))
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(SECONDS)
        yield kafka


def describe_orders(kafka: EmbeddedKafka, user: str) -> str:
    admin = admin_client(kafka.bootstrap_server, kafka.librdkafka_properties(user))
    return str(admin.describe_topics(TopicCollection(["orders"]))["orders"].result(SECONDS).name)


def test_a_user_may_do_what_acls_allow_and_nothing_else(secured: EmbeddedKafka) -> None:
    assert describe_orders(secured, "admin") == "orders"
    with pytest.raises(KafkaException) as raised:
        describe_orders(secured, "alice")
    assert raised.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    admin = admin_client(secured.bootstrap_server, secured.librdkafka_properties("admin"))
    right = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([right])[right].result(SECONDS)

    def is_allowed() -> bool:
        try:
            return describe_orders(secured, "alice") == "orders"
        except KafkaException as error:
            assert error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            return False

    await_(is_allowed)  # a busy broker learns of the right a little later than the controller


def test_a_wrong_password_is_refused(secured: EmbeddedKafka) -> None:
    errors: list[KafkaError] = []
    consumer = Consumer(
        {
            "bootstrap.servers": secured.bootstrap_server,
            "group.id": "billing",
            **secured.librdkafka_properties("alice"),
            "sasl.password": "wrong",
            "error_cb": errors.append,
        },
        logger=QUIET,
    )
    try:
        with pytest.raises(KafkaException):
            consumer.list_topics(timeout=5)
        consumer.poll(0.5)
    finally:
        consumer.close()
    assert KafkaError._AUTHENTICATION in {error.code() for error in errors}


def test_java_clients_get_the_same_login_as_java_properties(secured: EmbeddedKafka) -> None:
    properties = secured.client_properties("alice")
    assert properties["security.protocol"] == "SASL_PLAINTEXT"
    assert 'username="alice"' in properties["sasl.jaas.config"]
