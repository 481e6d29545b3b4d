"""A Kafka client properties file (``--command-config``) for both clients: Spark's Java one and librdkafka."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import javaproperties

from offsetstream.errors import UsageError

# As Java's StreamTokenizer reads them, Kafka's JaasConfig being built on it: quoted with escapes, or a bare word.
_JAAS_OPTION = re.compile(r"""(\w[\w.]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"'=]+))""")
_JAAS_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_JAAS_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
# Java's names that librdkafka has too; it needs no others to ask what we ask.
_JAVA_TO_LIBRDKAFKA = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.key.password": "ssl.key.password",
    "sasl.mechanism": "sasl.mechanism",
    "security.protocol": "security.protocol",
    "client.id": "client.id",
    "ssl.endpoint.identification.algorithm": "ssl.endpoint.identification.algorithm",
}


def read_properties(path: str | None) -> dict[str, str]:
    """Return the properties of the file; UsageError if it cannot be read."""
    if path is None:
        return {}
    try:
        with Path(path).open("rb") as file:
            return dict(javaproperties.load(file))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read the client properties {path}: {reason}") from error


def spark_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties as options of Spark's Kafka source: each name with ``kafka.`` before it."""
    return {f"kafka.{name}": value for name, value in properties.items() if name != "client.id"}


def librdkafka_config(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties in librdkafka's words; UsageError for one that it cannot have."""
    config: dict[str, str] = {}
    for name, value in properties.items():
        if name in _JAVA_TO_LIBRDKAFKA:
            config[_JAVA_TO_LIBRDKAFKA[name]] = value
    if config.get("ssl.endpoint.identification.algorithm") == "":
        config["ssl.endpoint.identification.algorithm"] = "none"
    for kind in ("truststore", "keystore"):
        if f"ssl.{kind}.location" in properties and properties.get(f"ssl.{kind}.type", "JKS").upper() != "PEM":
            raise UsageError(
                f"ssl.{kind}.location must be a PEM file, with ssl.{kind}.type=PEM: both clients read that"
            )
    if "ssl.keystore.location" in properties:
        config |= {
            "ssl.certificate.location": properties["ssl.keystore.location"],
            "ssl.key.location": properties["ssl.keystore.location"],
        }
    return config | _credentials(properties.get("sasl.jaas.config"))


def _credentials(jaas: str | None) -> dict[str, str]:
    if jaas is None:
        return {}
    options = {name: _unescape(quoted or single) or bare for name, quoted, single, bare in _JAAS_OPTION.findall(jaas)}
    wanted = {"username": "sasl.username", "password": "sasl.password"}
    return {wanted[name]: value for name, value in options.items() if name in wanted}


def _unescape(text: str) -> str:
    return _JAAS_ESCAPE.sub(lambda found: _escaped(found[1]), text)


def _escaped(code: str) -> str:
    return chr(int(code, 8)) if code.isdigit() and code[0] < "8" else _JAAS_ESCAPES.get(code, code)
