"""Variables in client properties, compared with how Kafka's own configuration resolves them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from offsetstream.cluster.properties import resolve_variables
from offsetstream.embedded.artifacts import resolve
from offsetstream.embedded.jvm import java_gateway
from offsetstream.errors import UsageError

_PACKAGE = "org.apache.kafka.common.config.provider."
_PROVIDERS = {
    "config.providers": "env,secrets,mounted",
    "config.providers.env.class": f"{_PACKAGE}EnvVarConfigProvider",
    "config.providers.secrets.class": f"{_PACKAGE}FileConfigProvider",
    "config.providers.mounted.class": f"{_PACKAGE}DirectoryConfigProvider",
}


@pytest.fixture(scope="module")
def clients() -> Iterator[JavaGateway]:
    """A JVM with Kafka's clients on its class path, where they look for their own classes."""
    with java_gateway(resolve(["org.apache.kafka:kafka-clients:4.3.1"])) as running:
        yield running


def _by_kafka(clients: JavaGateway, properties: dict[str, str]) -> dict[str, str]:
    given = clients.jvm.java.util.HashMap()
    for name, value in properties.items():
        given[name] = value
    resolved = clients.jvm.org.apache.kafka.clients.admin.AdminClientConfig(given).originals()
    return {name: resolved[name] for name in properties if not name.startswith("config.providers")}


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    file, folder = tmp_path / "secrets.properties", tmp_path / "mounted"
    file.write_text("password = s3cr${t}\\u00e9ü\nempty=\nwith\\:colon=c\n", "utf-8")
    folder.mkdir()
    (folder / "user").write_text("alice\n")
    (folder / "token").write_text("äöü ${env:HOME}", "utf-8")
    return {"FILE": file, "FOLDER": folder}


@pytest.mark.parametrize(
    "value",
    [
        "${env:HOME}",
        "<${env:HOME}|${env:PATH}>",
        "${secrets:FILE:password}",
        "${secrets:FILE:empty}",
        "a${mounted:FOLDER:user}b${mounted:FOLDER:token}c",
        "${nobody:knows}",
        "${nobody:knows:this}",
        "${no colon}",
        "$${env:HOME}",
        "${${env:HOME}",
        "${env:HOME",
        "{env:HOME}",
        "\\${env:HOME}",
    ],
)
def test_variables_resolve_as_in_kafka(clients: JavaGateway, places: dict[str, Path], value: str) -> None:
    for name, path in places.items():
        value = value.replace(name, str(path))
    properties = {"bootstrap.servers": "localhost:9092", "client.id": value, **_PROVIDERS}
    ours = resolve_variables(properties)
    assert ours == _by_kafka(clients, properties)


@pytest.mark.parametrize(
    ("params", "value", "is_there"),
    [
        ({"env.param.allowlist.pattern": "HO.*"}, "${env:HOME}", True),
        ({"env.param.allowlist.pattern": "H"}, "${env:HOME}", False),
        ({"secrets.param.allowed.paths": "PARENT"}, "${secrets:FILE:empty}", True),
        ({"secrets.param.allowed.paths": "/usr,PARENT"}, "${secrets:FILE:empty}", True),
        ({"secrets.param.allowed.paths": "/usr"}, "${secrets:FILE:empty}", False),
        ({"mounted.param.allowed.paths": "FOLDER"}, "${mounted:FOLDER:user}", True),
        ({"mounted.param.allowed.paths": "FOLDER"}, "${mounted:FOLDER/../mounted:user}", True),
        ({"mounted.param.allowed.paths": "FOLDER"}, "${mounted:FOLDER/..:secrets.properties}", False),
        ({}, "${env:OFFSETSTREAM_NO_SUCH_VARIABLE}", False),
        ({}, "${secrets:FILE:other}", False),
        ({}, "${mounted:FOLDER:other}", False),
        ({}, "${mounted:FOLDER:../secrets.properties}", False),
        ({}, "${secrets:key}", False),
        ({}, "${secrets::key}", False),
    ],
)
def test_variables_that_kafka_cannot_resolve_are_refused(
    clients: JavaGateway,
    places: dict[str, Path],
    params: dict[str, str],
    value: str,
    is_there: bool,
) -> None:
    """Kafka would log in with the variable's text, and fail without naming the cause."""

    def placed(text: str) -> str:
        text = text.replace("PARENT", str(places["FILE"].parent))
        return text.replace("FILE", str(places["FILE"])).replace("FOLDER", str(places["FOLDER"]))

    given = {f"config.providers.{name}": placed(text) for name, text in params.items()}
    properties = {"bootstrap.servers": "localhost:9092", "client.id": placed(value), **_PROVIDERS, **given}
    try:
        theirs = _by_kafka(clients, properties)["client.id"]
    except Py4JJavaError:
        theirs = placed(value)
    if is_there:
        assert resolve_variables(properties)["client.id"] == theirs != placed(value)
    else:
        assert theirs == placed(value)
        with pytest.raises(UsageError, match=r"client.id of the client properties: .* has no value"):
            resolve_variables(properties)
