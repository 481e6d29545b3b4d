from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from offsetstream.cluster.properties import librdkafka_config, read_properties, spark_options
from offsetstream.errors import UsageError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "client.properties"
    path.write_text(text, "latin-1")
    return str(path)


def credentials(jaas: str) -> dict[str, str]:
    return librdkafka_config({"sasl.jaas.config": jaas})


def test_no_file_means_no_properties() -> None:
    assert read_properties(None) == {}


def test_a_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    text = "# comment\nsecurity.protocol = SASL_SSL\nclient.id:a\\\n   b\nssl.key.password=gr\\u00fc\u00df\\=\nempty=\n"
    assert read_properties(file(tmp_path, text)) == {
        "security.protocol": "SASL_SSL",
        "client.id": "ab",
        "ssl.key.password": "grüß=",
        "empty": "",
    }


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    with pytest.raises(UsageError) as raised:
        read_properties(path)
    assert str(raised.value) == f"cannot read the client properties {path}: No such file or directory"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read the client properties .*: Is a directory"):
        read_properties(str(tmp_path))


def test_a_broken_escape(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the client properties") as raised:
        read_properties(file(tmp_path, "a=\\u12"))
    assert "\n" not in str(raised.value)


def test_sparks_options_are_kafkas_with_a_prefix() -> None:
    given = {"security.protocol": "SSL", "sasl.jaas.config": "x;", "client.id": "mine"}
    assert spark_options(given) == {"kafka.security.protocol": "SSL", "kafka.sasl.jaas.config": "x;"}


def test_only_what_librdkafka_knows_reaches_it() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "client.id": "me", "fetch.max.wait.ms": "5"}
    expected = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "client.id": "me"}
    assert librdkafka_config(given) == expected
    AdminClient({**librdkafka_config(given), "sasl.username": "u", "sasl.password": "p"})  # it takes them


def test_no_check_of_the_brokers_name() -> None:
    name = "ssl.endpoint.identification.algorithm"
    assert librdkafka_config({name: ""}) == {name: "none"}
    assert librdkafka_config({name: "https"}) == {name: "https"}


@pytest.mark.parametrize("kind", ["truststore", "keystore"])
@pytest.mark.parametrize("type_", [None, "JKS", "PKCS12"])
def test_a_store_that_librdkafka_cannot_read_is_refused(kind: str, type_: str | None) -> None:
    given = {f"ssl.{kind}.location": "/x"} | ({f"ssl.{kind}.type": type_} if type_ else {})
    with pytest.raises(UsageError, match=rf"ssl\.{kind}\.location must be a PEM file, with ssl\.{kind}\.type=PEM"):
        librdkafka_config(given)


@pytest.mark.parametrize("type_", ["PEM", "pem"])
def test_pem_files(type_: str) -> None:
    trusted = {"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": type_}
    assert librdkafka_config(trusted) == {"ssl.ca.location": "/ca.pem"}
    own = {"ssl.keystore.location": "/me.pem", "ssl.keystore.type": type_, "ssl.key.password": "secret"}
    assert librdkafka_config(own) == {
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.key.password": "secret",
    }


def test_pem_in_the_properties_themselves() -> None:
    given = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CHAIN",
        "ssl.keystore.key": "KEY",
    }
    assert librdkafka_config(given) == {"ssl.ca.pem": "CA", "ssl.certificate.pem": "CHAIN", "ssl.key.pem": "KEY"}


def test_no_jaas_no_credentials() -> None:
    assert librdkafka_config({}) == {}


@pytest.mark.parametrize(
    ("written", "password"),
    [
        ('"secret"', "secret"),
        ("'secret'", "secret"),
        ('""', ""),
        ('"it\'s"', "it's"),
        ("'say \"x\"'", 'say "x"'),
        (r'"say \"x\""', 'say "x"'),
        (r"'it\'s'", "it's"),
        (r'"back\\slash"', r"back\slash"),
        (r'"a\\"', "a\\"),
        (r'"tab\there"', "tab\there"),
        (r'"line\nfeed"', "line\nfeed"),
        (r'"\101\0601"', "A01"),
        (r'"\z"', "z"),
        ('"a;b=c d"', "a;b=c d"),
        ("\"username='no'\"", "username='no'"),
        ('"grüß"', "grüß"),
        ("secret-1.x_$", "secret-1.x_$"),
    ],
)
def test_a_password_as_javas_parser_reads_it(written: str, password: str) -> None:
    expected = {"sasl.username": "alice", "sasl.password": password}
    assert credentials(f'{PLAIN} username="alice" password={written};') == expected
    assert credentials(f"{PLAIN} password = {written}\n  username = 'alice' ;") == expected


def test_other_options_of_a_login_module_are_not_credentials() -> None:
    jaas = f'{PLAIN} serviceName="kafka" user_alice="x" useKeyTab=true username="bob" password="p";'
    assert credentials(jaas) == {"sasl.username": "bob", "sasl.password": "p"}
