"""A Kafka client properties file (`--command-config`) for both clients: Spark's Java one and librdkafka.

What bears on security is translated or refused, never left out in silence: the two clients must not connect in
different ways by the same file.
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
_SAME = ("client.id", "client.dns.lookup")
_HOST_CHECK = "ssl.endpoint.identification.algorithm"
_TLS_VERSIONS = "ssl.enabled.protocols"
# Translated elsewhere, or of no consequence to librdkafka: intervals, names of Java's own algorithms at their defaults,
# what only brokers read.
_TAKEN = (
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
    "ssl.protocol": {"TLS", "TLSv1.2", "TLSv1.3"},  # ssl.enabled.protocols is what counts
    "ssl.trustmanager.algorithm": {"PKIX"},
    "ssl.keymanager.algorithm": {"SunX509", "PKIX"},
}
_ADVICE = {
    "config.providers": "it is looked at in the file of --command-config only",
    "ssl.cipher.suites": "restrict them on the brokers' listener",
    "sasl.oauthbearer.client.credentials.": "give clientId and clientSecret in sasl.jaas.config",
    "sasl.oauthbearer.scope": "give scope in sasl.jaas.config",
    msk.HANDLER: "log in by a mechanism that needs no Java class of its own",
}
# What the job itself decides: Spark refuses some of these, and another group.id would need other rights.
_NOT_FOR_SPARK = {
    "client.id",
    "client.rack",  # a follower's log may be compacted where the leader's, which is asked of gaps, is not
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

_NEVER_IN_TEXT = set(range(0x20)) - set(b"\t\n\f\r")


def read_properties(path: str | None, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the properties of the file, and those given that it does not have, with the values of their variables.

    Raises UsageError if the file, or what a variable stands for, cannot be read.
    """
    properties = dict(given or {})
    try:
        if path is not None:
            properties |= javaproperties.load(BytesIO(_text_of(path)))
    except (OSError, ValueError) as error:
        # Of a broken escape the error has the text, which may be of a password.
        reason = error.strerror if isinstance(error, OSError) else r"a \u escape without four hexadecimal digits"
        raise UsageError(f"cannot read the client properties {path}: {reason}") from error
    return resolve_variables(properties)


def _text_of(path: str) -> bytes:
    """Read a file of text: Java would take a keystore, too, and log in with nothing of what is in it."""
    data = Path(path).read_bytes()
    if strange := set(data) & _NEVER_IN_TEXT:
        raise UsageError(f"{path} is no file of client properties: it has the byte {min(strange):#04x}, as no text has")
    return data


def spark_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties as Kafka's clients in Spark's JVM take them."""
    known = runtime_names(properties) if is_databricks() else properties
    return {name: value for name, value in known.items() if name not in _NOT_FOR_SPARK}


def spark_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties as options of Spark's Kafka source: each name with `kafka.` before it."""
    return {f"kafka.{name}": value for name, value in spark_properties(properties).items()}


def java_system_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return what a JVM must be told besides: newer clients ask only those token endpoints that it allows."""
    url = properties.get("sasl.oauthbearer.token.endpoint.url")
    return dict.fromkeys(java_names("org.apache.kafka.sasl.oauthbearer.allowed.urls"), url) if url else {}


def librdkafka_config(properties: Mapping[str, str], bootstrap_server: str = "") -> dict[str, Any]:
    """Return the properties in librdkafka's words; keys and certificates are in it as PEM, read now.

    Raises UsageError for a property of security that librdkafka cannot have, or that Kafka's Java client refuses;
    UnauthorisedError where a token is needed for the login, and nobody gives one.
    """
    given = {name: value.strip() for name, value in properties.items() if value.strip() or name == _HOST_CHECK}
    protocol = given.get("security.protocol", _PROTOCOLS[0]).upper()
    if protocol not in _PROTOCOLS:
        raise UsageError(f"security.protocol is none of {', '.join(_PROTOCOLS)}")
    has_tls, has_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    relevant = ("security.", "config.", *(["ssl."] if has_tls else []), *(["sasl."] if has_sasl else []))
    for name, value in given.items():
        if name.startswith(relevant) and not _is_translated(name, value, given.get("sasl.mechanism")):
            raise UsageError(f"{name} of the client properties has no counterpart in librdkafka: {_advice(name)}")
    config = {name: given[name] for name in _SAME if name in given} | {"security.protocol": protocol}
    return config | (_tls_config(given) if has_tls else {}) | (sasl_config(given, bootstrap_server) if has_sasl else {})


def _is_translated(name: str, value: str, mechanism: str | None) -> bool:
    if name == msk.HANDLER:
        return mechanism == msk.MECHANISM
    return name in ("security.protocol", _HOST_CHECK, _TLS_VERSIONS) or (
        name.startswith(_TAKEN) or value in _HARMLESS.get(name, ())
    )


def _advice(name: str) -> str:
    return next((advice for known, advice in _ADVICE.items() if name.startswith(known)), "leave it out")


def _tls_config(given: Mapping[str, str]) -> dict[str, str]:
    versions = given.get(_TLS_VERSIONS, "TLSv1.2").replace(" ", "").split(",")
    if "TLSv1.2" not in versions:
        raise UsageError(
            f"{_TLS_VERSIONS} leaves out TLSv1.2, which librdkafka cannot: add it, or turn it off on the brokers"
        )
    check = given.get(_HOST_CHECK, "https").lower()
    if check not in ("https", ""):
        raise UsageError(f"{_HOST_CHECK} must be https, or empty for no check of the brokers' names")
    certificates = trusted_certificates(given)
    trusted = {} if certificates is None else {"ssl.ca.pem": certificates}
    return {_HOST_CHECK: check or "none", **trusted, **own_certificate(given)}
