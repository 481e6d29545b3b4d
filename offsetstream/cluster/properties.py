"""Translate a Kafka client properties file (`--command-config`) for Spark's Java client and for librdkafka.

Security properties are translated or rejected, never ignored: both clients must connect in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import javaproperties

from offsetstream.cluster import msk
from offsetstream.cluster.config_providers import resolve_variables
from offsetstream.cluster.databricks import java_names, runtime_names
from offsetstream.cluster.sasl import sasl_config
from offsetstream.cluster.stores import own_certificate, trusted_certificates
from offsetstream.errors import UsageError
from offsetstream.settings.databricks import is_databricks

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_UNCHANGED = ("client.id", "client.dns.lookup")
_HOST_CHECK = "ssl.endpoint.identification.algorithm"
_TLS_VERSIONS = "ssl.enabled.protocols"
# Prefixes of properties that are translated elsewhere or do not concern librdkafka, such as intervals.
_ACCEPTED = (
    "ssl.truststore.",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.refresh.",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.retry.backoff.",
    "sasl.kerberos.",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.",
    "sasl.oauthbearer.jwks.",
)
_HARMLESS = {
    "ssl.protocol": {"TLS", "TLSv1.2", "TLSv1.3"},  # ssl.enabled.protocols decides
    "ssl.trustmanager.algorithm": {"PKIX"},
    "ssl.keymanager.algorithm": {"SunX509", "PKIX"},
}
_ADVICE = {
    "config.providers": "set it in the file for --command-config",
    "ssl.cipher.suites": "restrict them on the brokers' listener",
    "sasl.oauthbearer.client.credentials.": "give clientId and clientSecret in sasl.jaas.config",
    "sasl.oauthbearer.scope": "give scope in sasl.jaas.config",
    msk.HANDLER: "use a login mechanism that needs no Java class",
}
# The job sets these itself. Spark rejects some of them, and another group.id would need other rights.
_NOT_FOR_SPARK = {
    "client.id",
    "client.rack",  # a follower's log may have gaps from compaction that the leader's log does not have
    "bootstrap.servers",
    "group.id",
    "group.instance.id",
    "auto.offset.reset",
    "enable.auto.commit",
    "isolation.level",
    "key.deserializer",
    "value.deserializer",
    "interceptor.classes",
}

_BINARY_BYTES = set(range(0x20)) - set(b"\t\n\f\r")


class ClientProperties(dict[str, str]):
    """Client properties that know where they come from: passwords change while a job runs.

    `unread` has those that are not from the file `path`, with their variables.
    """

    def __init__(self, values: Mapping[str, str], path: str | None, unread: Mapping[str, str]) -> None:
        super().__init__(values)
        self._path, self.unread = path, unread

    def read_again(self) -> ClientProperties:
        """Return the properties of now. Raises what `read_properties` raises."""
        return read_properties(self._path, self.unread)


def read_properties(path: str | None, given: Mapping[str, str] | None = None) -> ClientProperties:
    """Return the `given` properties and those of the file, which win, with variables replaced.

    Raises UsageError if the file or the value of a variable cannot be read.
    """
    unread = given.unread if isinstance(given, ClientProperties) else dict(given or {})
    properties = dict(unread)
    try:
        if path is not None:
            properties |= javaproperties.load(BytesIO(_text_of(path)))
    except (OSError, ValueError) as error:
        # The error of a broken escape has its text, which may be part of a password.
        reason = error.strerror if isinstance(error, OSError) else r"a \u escape without four hexadecimal digits"
        raise UsageError(f"cannot read the client properties {path}: {reason}") from error
    return ClientProperties(resolve_variables(properties), path, unread)


def _text_of(path: str) -> bytes:
    """Return the bytes of a text file. Reject binary files: Java would accept a key store and then not log in."""
    data = Path(path).read_bytes()
    if binary := set(data) & _BINARY_BYTES:
        raise UsageError(f"{path} is not a file of client properties: it is binary (byte {min(binary):#04x})")
    return data


def spark_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties for Kafka's clients in Spark's JVM."""
    known = runtime_names(properties) if is_databricks() else properties
    return {name: value for name, value in known.items() if name not in _NOT_FOR_SPARK}


def spark_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties as options of Spark's Kafka source, with the prefix `kafka.`."""
    return {f"kafka.{name}": value for name, value in spark_properties(properties).items()}


def java_system_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the system properties of the JVM: newer clients only use token endpoints that these allow."""
    url = properties.get("sasl.oauthbearer.token.endpoint.url")
    return dict.fromkeys(java_names("org.apache.kafka.sasl.oauthbearer.allowed.urls"), url) if url else {}


def librdkafka_config(properties: Mapping[str, str], bootstrap_server: str = "") -> dict[str, Any]:
    """Return librdkafka's configuration for the properties, with keys and certificates as PEM.

    Raises UsageError for a security property that librdkafka does not support or Kafka's Java client rejects, and
    UnauthorisedError if the login needs a token and there is none.
    """
    given = {name: value.strip() for name, value in properties.items() if value.strip() or name == _HOST_CHECK}
    protocol = given.get("security.protocol", _PROTOCOLS[0]).upper()
    if protocol not in _PROTOCOLS:
        raise UsageError(f"security.protocol must be one of {', '.join(_PROTOCOLS)}")
    has_tls, has_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    relevant = ("security.", "config.", *(["ssl."] if has_tls else []), *(["sasl."] if has_sasl else []))
    for name, value in given.items():
        if name.startswith(relevant) and not _is_translated(name, value, given.get("sasl.mechanism")):
            raise UsageError(f"librdkafka does not support {name} of the client properties: {_advice(name)}")
    config = {name: given[name] for name in _UNCHANGED if name in given} | {"security.protocol": protocol}
    return config | (_tls_config(given) if has_tls else {}) | (sasl_config(given, bootstrap_server) if has_sasl else {})


def _is_translated(name: str, value: str, mechanism: str | None) -> bool:
    if name == msk.HANDLER:
        return mechanism == msk.MECHANISM
    return name in ("security.protocol", _HOST_CHECK, _TLS_VERSIONS) or (
        name.startswith(_ACCEPTED) or value in _HARMLESS.get(name, ())
    )


def _advice(name: str) -> str:
    return next((advice for known, advice in _ADVICE.items() if name.startswith(known)), "remove it")


def _tls_config(given: Mapping[str, str]) -> dict[str, str]:
    versions = given.get(_TLS_VERSIONS, "TLSv1.2").replace(" ", "").split(",")
    if "TLSv1.2" not in versions:
        raise UsageError(
            f"{_TLS_VERSIONS} lacks TLSv1.2, which librdkafka always offers: add it, or disable it on the brokers"
        )
    check = given.get(_HOST_CHECK, "https").lower()
    if check not in ("https", ""):
        raise UsageError(f"{_HOST_CHECK} must be https, or empty to skip the check of host names")
    certificates = trusted_certificates(given)
    trusted = {} if certificates is None else {"ssl.ca.pem": certificates}
    return {_HOST_CHECK: check or "none", **trusted, **own_certificate(given)}
