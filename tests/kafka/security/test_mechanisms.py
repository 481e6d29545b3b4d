"""Every login mechanism works for confluent-kafka, Spark and Kafka's own Admin client with one properties file."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.properties import read_properties
from offsetstream.errors import UnauthorisedError, UsageError
from offsetstream.spark.source import KafkaSource
from offsetstream.stream.apply.raw_reader import RawReader
from offsetstream.stream.monitor.broker_channel import Leaders
from offsetstream.stream.monitor.gaps import lost_offsets
from offsetstream.stream.monitor.truncation import EpochEnd, ends_of_epochs
from testkit.certificates import sign
from tests.kafka.security.broker import SECRETS, Secured, write_properties
from tests.kafka.security.commands import offsetstream

pytestmark = pytest.mark.long

LOGINS = (
    "plain",
    "scram-256",
    "scram-512",
    "oauth",
    "unsecured",
    "mtls-jks",
    "mtls-p12",
    "mtls-pem",
    "mtls-inline",
)


@pytest.mark.parametrize("login", LOGINS)
def test_confluent_kafka_and_spark_log_in_with_one_file(
    secured: Secured, spark: SparkSession, tables: Path, login: str
) -> None:
    file, server = secured.files[login], secured.servers[login]
    options = ("--tables", str(tables), "--bootstrap-server", server, "--command-config", str(file))
    done = offsetstream("coordinator", "--group", "billing", *options, "--output", "csv")
    assert (done.returncode, "billing" in done.stdout) == (0, True), done.stderr

    ends = Cluster(server, read_properties(str(file))).partition_ends(range(50))
    source = KafkaSource(server, read_properties(str(file)))
    read = source.read(
        spark,
        {number: end.log_start_offset for number, end in ends.items()},
        {number: end.last_stable_offset for number, end in ends.items()},
    )
    assert read.count() == sum(end.last_stable_offset - end.log_start_offset for end in ends.values()) > 0

    leaders = Leaders(spark, Cluster(server, read_properties(str(file))), read_properties(str(file)))
    ranges = {number: (end.log_start_offset, end.last_stable_offset) for number, end in ends.items()}
    assert lost_offsets(leaders, {}, ranges) == dict.fromkeys(range(50), 0)
    high_watermarks = {number: end.high_watermark for number, end in ends.items()}
    found = ends_of_epochs(leaders, dict.fromkeys(ends, (0, 0)))
    assert found == {number: EpochEnd(0, high) for number, high in high_watermarks.items()}

    starts, stable = ({number: each[at] for number, each in ranges.items()} for at in (0, 1))
    raw = RawReader(leaders).read(starts, stable, dict.fromkeys(ranges, 0))
    assert sum(batch.num_rows for batch in raw) == read.count()


def test_kafkas_own_admin_client_accepts_the_file(secured: Secured, tables: Path) -> None:
    """It also queries the token endpoint, which newer clients do only if its address is allowed."""
    file, server = str(secured.files["oauth"]), secured.servers["oauth"]
    done = offsetstream("verify", "--tables", str(tables), "--bootstrap-server", server, "--command-config", file)
    assert (done.returncode, done.stderr.strip()) == (
        0,
        "2 groups compared: 0 unexplained differences, 0 explained",
    )


def changed(secured: Secured, login: str, folder: Path, **changes: str) -> dict[str, str]:
    properties = secured.properties(login) | {name.replace("_", "."): value for name, value in changes.items()}
    return read_properties(str(write_properties(folder / "client.properties", properties)))


@pytest.mark.parametrize("name", ["ssl_keystore_password", "ssl_key_password"])
def test_a_jks_store_with_a_wrong_password_is_an_error(secured: Secured, tmp_path: Path, name: str) -> None:
    properties = changed(secured, "mtls-jks", tmp_path, **{name: "wrong-sesame"})
    with pytest.raises(UsageError, match=r"cannot read ssl.keystore.location .* \(JKS\): keytool error") as raised:
        Cluster("127.0.0.1:1", properties)
    assert "sesame" not in str(raised.value)


@pytest.mark.parametrize("login", ["plain", "scram-512", "oauth"])
def test_a_wrong_password_is_reported_at_once_and_not_shown(
    secured: Secured, spark: SparkSession, tmp_path: Path, login: str
) -> None:
    jaas = secured.properties(login)["sasl.jaas.config"]
    for secret in SECRETS:
        jaas = jaas.replace(f'ecret="{secret}"', 'ecret="wrong-sesame"').replace(
            f'rd="{secret}";', 'rd="wrong-sesame";'
        )
    assert "wrong-sesame" in jaas
    wrong = changed(secured, login, tmp_path, sasl_jaas_config=jaas)
    cluster = Cluster(secured.servers[login], wrong)
    with pytest.raises(UnauthorisedError, match="refuses this login") as raised:
        cluster.cluster_id()
    assert "sesame" not in str(raised.value)

    leaders = Leaders(spark, Cluster(secured.servers[login], secured.properties(login)), wrong)
    with pytest.raises(UnauthorisedError, match=r"refuses this login|cannot log in") as raised:
        ends_of_epochs(leaders, {7: (0, 0)})
    assert "sesame" not in str(raised.value)


def test_a_broker_with_an_untrusted_certificate_is_an_error(secured: Secured, tmp_path: Path) -> None:
    other_authority = sign("other", is_authority=True).pem
    properties = changed(secured, "mtls-inline", tmp_path, ssl_truststore_certificates=other_authority)
    with pytest.raises(UnauthorisedError, match=r"is not trusted: .*certificate verify failed"):
        Cluster(secured.servers["mtls-inline"], properties).cluster_id()


def test_a_client_without_the_required_certificate_is_an_error(secured: Secured, tmp_path: Path) -> None:
    properties = changed(secured, "mtls-inline", tmp_path, ssl_keystore_key="", ssl_keystore_certificate_chain="")
    with pytest.raises(UnauthorisedError, match="refuses this login"):
        Cluster(secured.servers["mtls-inline"], properties).cluster_id()
