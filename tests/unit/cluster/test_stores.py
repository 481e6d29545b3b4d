"""Stores as PEM; the JKS ones, which need Java, are in tests/kafka/security."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.properties import librdkafka_config
from offsetstream.cluster.stores import own_certificate, trusted_certificates
from offsetstream.errors import UsageError
from testkit.certificates import KEY_PASSWORD, STORE_PASSWORD, sign

ROOT = sign("root", is_authority=True)
BETWEEN = sign("between", ROOT, is_authority=True)
ALICE = sign("alice", BETWEEN)


def one_line(pem: str) -> str:
    """As a properties file has it whose lines end in a backslash."""
    return " ".join(pem.split("\n"))


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_no_stores() -> None:
    assert trusted_certificates({}) is None
    assert own_certificate({}) == {}


@pytest.mark.parametrize("fold", [str, one_line])
def test_pem_in_the_properties(fold: Callable[[str], str]) -> None:
    both, key = ROOT.pem + BETWEEN.pem, ALICE.key_pem(KEY_PASSWORD)
    assert trusted_certificates({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": fold(both)}) == both
    given = {
        "ssl.keystore.type": "pem",
        "ssl.keystore.certificate.chain": fold(ALICE.chain),
        "ssl.keystore.key": fold(key),
        "ssl.key.password": KEY_PASSWORD,
    }
    expected = {"ssl.certificate.pem": ALICE.chain, "ssl.key.pem": key, "ssl.key.password": KEY_PASSWORD}
    assert own_certificate(given) == expected


def test_pem_in_files(tmp_path: Path) -> None:
    words = "Bag Attributes\n    friendlyName: grüß\n"
    trusted = written(tmp_path / "ca.pem", words + ROOT.pem)
    assert trusted_certificates({"ssl.truststore.type": "PEM", "ssl.truststore.location": trusted}) == ROOT.pem
    own = written(tmp_path / "own.pem", ALICE.key_pem() + words + ALICE.chain)
    expected = {"ssl.certificate.pem": ALICE.chain, "ssl.key.pem": ALICE.key_pem()}
    assert own_certificate({"ssl.keystore.type": "PEM", "ssl.keystore.location": own}) == expected


@pytest.mark.parametrize("store_type", [None, "JKS", "PKCS12", "pkcs12"])
def test_a_pkcs12_key_store_gives_its_chain_and_key(tmp_path: Path, store_type: str | None) -> None:
    """Java opens a PKCS12 file by the name JKS too, which is Kafka's default."""
    place = {"ssl.keystore.location": str(ALICE.pkcs12(tmp_path / "own.p12")), "ssl.keystore.password": STORE_PASSWORD}
    found = own_certificate(place | ({"ssl.keystore.type": store_type} if store_type else {}))
    assert found["ssl.certificate.pem"] == ALICE.pem + BETWEEN.pem + ROOT.pem
    key = load_pem_private_key(found["ssl.key.pem"].encode(), None)
    assert key.public_key() == ALICE.certificate.public_key()
    AdminClient({"security.protocol": "SSL", **found})  # librdkafka checks that the key is that of the certificate


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ssl.truststore.location": "none"}, "cannot read ssl.truststore.location none: No such file"),
        ({"ssl.truststore.location": "pem"}, "a PEM file needs ssl.truststore.type=PEM"),
        ({"ssl.truststore.location": "p12"}, "is not a JKS or PKCS12 file, or ssl.truststore.password is wrong"),
        ({"ssl.truststore.location": "p12", "ssl.truststore.password": STORE_PASSWORD}, "has a private key"),
        ({"ssl.truststore.location": "empty", "ssl.truststore.type": "PEM"}, "has no certificate"),
        ({"ssl.truststore.location": "pem", "ssl.truststore.type": "BKS"}, "must be one of JKS, PKCS12, PEM"),
        ({"ssl.truststore.certificates": ROOT.pem}, "ssl.truststore.certificates needs ssl.truststore.type=PEM"),
        (
            {"ssl.truststore.certificates": "x", "ssl.truststore.location": "pem", "ssl.truststore.type": "PEM"},
            "cannot be combined with ssl.truststore.location",
        ),
        (
            {"ssl.truststore.location": "pem", "ssl.truststore.type": "PEM", "ssl.truststore.password": "x"},
            "ssl.truststore.password does not work with PEM",
        ),
        ({"ssl.keystore.location": "p12", "ssl.keystore.password": "wrong-sesame"}, "ssl.keystore.password is wrong"),
        ({"ssl.keystore.location": "pem", "ssl.keystore.type": "PEM"}, "and one private key"),
    ],
)
def test_an_unreadable_store_is_named_by_its_property(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ALICE.pkcs12(tmp_path / "p12")
    written(tmp_path / "pem", ROOT.pem)
    written(tmp_path / "empty", "")
    with pytest.raises(UsageError) as raised:
        librdkafka_config({"security.protocol": "SSL", **given})
    assert message in str(raised.value)
    assert "sesame" not in str(raised.value)


def test_stores_are_not_read_without_tls() -> None:
    assert librdkafka_config({"ssl.truststore.location": "none"}) == {"security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("key", "password"),
    [(BETWEEN.key_pem(), None), (ALICE.key_pem(KEY_PASSWORD), "wrong-sesame")],
    ids=["other", "locked"],
)
def test_an_error_of_librdkafka_is_one_line_without_secrets(key: str, password: str | None) -> None:
    given = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": ALICE.chain, "ssl.keystore.key": key}
    if password is not None:
        given["ssl.key.password"] = password
    with pytest.raises(UsageError, match=r"the client properties do not work: .*ssl") as raised:
        Cluster("127.0.0.1:1", {"security.protocol": "SSL", **given})
    assert "sesame" not in str(raised.value)
    assert "\n" not in str(raised.value)
