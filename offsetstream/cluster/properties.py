"""Translate a Kafka client properties file (`--command-config`) for Spark's Java client and for librdkafka.

Security properties are translated or rejected, never ignored: both clients must connect in the same way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import javaproperties

from offsetstream.cluster.login import CLIENT_HANDLER, MSK_IAM, sasl_config
from offsetstream.cluster.stores import own_certificate, trusted_certificates
from offsetstream.errors import UsageError
from offsetstream.settings.places import is_databricks

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
    CLIENT_HANDLER: "use a login mechanism that needs no Java class",
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

# Databricks' runtime renames Kafka's Java classes and those of the login to Amazon MSK:
# https://docs.databricks.com/aws/en/connect/streaming/kafka/authentication
_RENAMED = {"org.apache.kafka.": "kafkashaded.", "software.amazon.msk.": "shadedmskiam."}
# Properties whose values start with a class name.
_NAMES_A_CLASS = (
    "sasl.jaas.config",
    "sasl.login.class",
    "sasl.login.callback.handler.class",
    "sasl.client.callback.handler.class",
)
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


def runtime_names(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the client properties with the class names of the runtime."""
    return {name: _in_runtime(value) if name in _NAMES_A_CLASS else value for name, value in properties.items()}


def _in_runtime(value: str) -> str:
    given = value.lstrip()
    return next((prefix + given for package, prefix in _RENAMED.items() if given.startswith(package)), value)


def java_names(name: str) -> tuple[str, ...]:
    """Return the names under which Kafka's classes may read one of its system properties."""
    return (name, _in_runtime(name)) if is_databricks() else (name,)


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
    if name == CLIENT_HANDLER:
        return mechanism == MSK_IAM
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


# Config providers (KIP-297, KIP-421): a variable `${provider:key}` or `${provider:path:key}` is replaced if
# `config.providers` names the provider. Variables in the new value are not replaced. Kafka's own three providers are
# supported: environment variables, properties files, and folders with a file for each key.
_PROVIDERS = "config.providers"
_VARIABLE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_ENV, _FILE, _DIRECTORY = "EnvVarConfigProvider", "FileConfigProvider", "DirectoryConfigProvider"
_PACKAGE = "org.apache.kafka.common.config.provider."
_ALLOWED_NAMES, _ALLOWED_PATHS = "allowlist.pattern", "allowed.paths"  # KIP-887, KIP-993
_USUAL = {"env": _ENV, "file": _FILE, "directory": _DIRECTORY}

Lookup = Callable[[str, str], str | None]


def resolve_variables(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with their variables replaced, without `config.providers`.

    Raises UsageError for a provider that is not one of Kafka's, for the usual name of a provider that is not declared,
    and for a variable without a value. The error contains no values.
    """
    lookups = _lookups(properties)
    return {
        name: _VARIABLE.sub(lambda found, of=name: _value(of, found, lookups), value)  # type: ignore[misc]  # a default
        for name, value in properties.items()
        if name != _PROVIDERS and not name.startswith(f"{_PROVIDERS}.")
    }


def _value(name: str, variable: re.Match[str], lookups: Mapping[str, Lookup]) -> str:
    provider, path, key = variable[1], variable[2] or "", variable[3]
    if provider in lookups:
        try:
            value = lookups[provider](path, key)
        except OSError as error:
            raise UsageError(f"{name} of the client properties: cannot read {path}: {error.strerror}") from error
        if value is None:
            raise UsageError(f"{name} of the client properties: {variable[0]} has no value")
        return value
    if provider in _USUAL:
        raise UsageError(
            f"{name} of the client properties uses {variable[0]}, but the provider {provider} is not declared: add "
            f"{_PROVIDERS}={provider} and {_PROVIDERS}.{provider}.class={_PACKAGE}{_USUAL[provider]}"
        )
    return variable[0]  # Kafka leaves it unchanged, too


def _lookups(properties: Mapping[str, str]) -> dict[str, Lookup]:
    names = [name.strip() for name in properties.get(_PROVIDERS, "").split(",")]
    return {name: _lookup(name, properties) for name in names if name}


def _lookup(name: str, properties: Mapping[str, str]) -> Lookup:
    prefix = f"{_PROVIDERS}.{name}"
    class_name = properties.get(f"{prefix}.class", "").strip()
    kind = class_name.removeprefix(_PACKAGE)
    if kind not in _USUAL.values():
        raise UsageError(
            f"{prefix}.class of the client properties is {class_name or 'missing'}: it must be {_PACKAGE}{_ENV}, "
            f"{_FILE} or {_DIRECTORY}, because librdkafka cannot run other Java classes"
        )
    if kind == _ENV:
        pattern = _pattern(f"{prefix}.param.{_ALLOWED_NAMES}", properties)
        return lambda path, key: _from_environment(path, key, pattern)
    allowed = properties.get(f"{prefix}.param.{_ALLOWED_PATHS}")
    read = _from_file if kind == _FILE else _from_directory
    return lambda path, key: read(path, key) if path and _is_allowed(path, allowed) else None


def _pattern(name: str, properties: Mapping[str, str]) -> re.Pattern[str] | None:
    try:
        return re.compile(properties[name]) if name in properties else None
    except re.error as error:
        raise UsageError(f"{name} of the client properties is not a valid regular expression: {error}") from error


def _from_environment(path: str, key: str, pattern: re.Pattern[str] | None) -> str | None:
    if path or (pattern is not None and pattern.fullmatch(key) is None):
        return None
    return os.environ.get(key)


def _from_file(path: str, key: str) -> str | None:
    try:
        found: str | None = javaproperties.loads(Path(path).read_text("utf-8")).get(key)
    except ValueError as error:  # its text may contain a secret
        raise UsageError(rf"cannot read {path}: it is not UTF-8, or has a \u escape without four digits") from error
    return found


def _from_directory(path: str, key: str) -> str | None:
    file = Path(path) / key
    if "/" in key or key in {"", ".", ".."} or not file.is_file():
        return None
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {file}: it is not UTF-8") from None  # that error contains a byte of the file


def _is_allowed(path: str, allowed: str | None) -> bool:
    if allowed is None or not allowed.strip():
        return True
    target = Path(os.path.normpath(path))
    return any(target.is_relative_to(os.path.normpath(each.strip())) for each in allowed.split(","))
