"""The names that Databricks' runtime has for Kafka's classes: for Spark's source there, and for nobody else."""

from __future__ import annotations

import pytest

from offsetstream.cluster.properties import java_system_properties, librdkafka_config, spark_options

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required username='me' password='{}';"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
IAM = "software.amazon.msk.auth.iam"


@pytest.fixture
def databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("sasl.jaas.config", SCRAM, f"kafkashaded.{SCRAM}"),
        ("sasl.jaas.config", f" \n {SCRAM}", f"kafkashaded.{SCRAM}"),
        ("sasl.jaas.config", f"kafkashaded.{SCRAM}", f"kafkashaded.{SCRAM}"),
        ("sasl.jaas.config", f"{IAM}.IAMLoginModule required;", f"shadedmskiam.{IAM}.IAMLoginModule required;"),
        ("sasl.login.callback.handler.class", f"{OAUTH}.X", f"kafkashaded.{OAUTH}.X"),
        ("sasl.client.callback.handler.class", f"{IAM}.X", f"shadedmskiam.{IAM}.X"),
        ("sasl.jaas.config", "com.example.Login required;", "com.example.Login required;"),
        ("ssl.key.password", "org.apache.kafka.", "org.apache.kafka."),  # names no class
    ],
)
@pytest.mark.usefixtures("databricks")
def test_sparks_source_gets_the_runtimes_class_names(name: str, given: str, expected: str) -> None:
    assert spark_options({name: given}) == {f"kafka.{name}": expected}


@pytest.mark.usefixtures("databricks")
def test_the_rest_of_a_login_is_unchanged() -> None:
    login = SCRAM.format("org.apache.kafka.common.security.scram.ScramLoginModule")
    assert spark_options({"sasl.jaas.config": login}) == {"kafka.sasl.jaas.config": f"kafkashaded.{login}"}


def test_outside_databricks_the_names_are_kafkas() -> None:
    assert spark_options({"sasl.jaas.config": SCRAM}) == {"kafka.sasl.jaas.config": SCRAM}


@pytest.mark.usefixtures("databricks")
def test_librdkafka_gets_the_same_as_outside_databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": SCRAM}
    there = librdkafka_config(given)
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION")
    assert librdkafka_config(given) == there


def test_system_properties_have_the_runtimes_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    name, url = "org.apache.kafka.sasl.oauthbearer.allowed.urls", "https://idp.example/token"
    properties = {"sasl.oauthbearer.token.endpoint.url": url}
    assert java_system_properties(properties) == {name: url}
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert java_system_properties(properties) == {name: url, f"kafkashaded.{name}": url}
