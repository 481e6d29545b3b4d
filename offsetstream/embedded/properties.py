"""Server properties of embedded brokers, which make them small and quick for tests and the demo."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from offsetstream.embedded.ports import LOOPBACK

_PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
ADMIN = "admin"
_Value = TypeVar("_Value")

# For every node and version. Kafka's own defaults wait longer, because production needs that.
_COMMON = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "BROKER",
    "auto.create.topics.enable": "false",
    "delete.topic.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "4",
    "num.partitions": "1",
    "broker.session.timeout.ms": "4000",  # after a kill, a new broker with the same id must wait this long
    "broker.heartbeat.interval.ms": "1000",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "8388608",  # the default of 128 MiB would be a quarter of the heap
    "log.index.size.max.bytes": "1048576",  # index files are allocated at full size
}

# Additional properties from a release on. The newest release that is not above the broker's applies.
_BY_RELEASE: dict[tuple[int, int], dict[str, str]] = {
    (3, 0): {},
    (4, 0): {
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": "1000",  # members get their assignments in heartbeats
        "share.coordinator.state.topic.num.partitions": "2",
    },
}
_BY_RELEASE[4, 1] = _BY_RELEASE[4, 0] | {"unstable.feature.versions.enable": "true"}  # for streams groups
_BY_RELEASE[4, 2] = _BY_RELEASE[4, 0]

# Features for formatting that a release does not enable by default.
_FEATURES: dict[tuple[int, int], tuple[str, ...]] = {
    (3, 0): (),
    (4, 1): ("share.version=1", "streams.version=1", "metadata.version=27"),  # 27 is 4.1-IV1, the default of 4.1
    (4, 2): (),
}


@dataclass(frozen=True)
class Listener:
    """An additional listener for clients: its name, security protocol and port."""

    name: str
    protocol: str
    port: int

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{LOOPBACK}:{self.port}"


@dataclass(frozen=True)
class Node:
    """One combined broker and controller: its id and its ports on the loopback address."""

    node_id: int
    client_port: int
    broker_port: int
    controller_port: int
    more: tuple[Listener, ...] = ()


def features(version: str) -> tuple[str, ...]:
    """Return the `--feature` arguments of StorageTool for this version of Kafka."""
    return _for_release(_FEATURES, version)


def server_properties(
    node: Node,
    nodes: Sequence[Node],
    version: str,
    data: Path,
    users: Sequence[str],
    overrides: Mapping[str, str],
) -> dict[str, str]:
    """Return all properties of one node, including the overrides.

    With `users`, the client listener uses SASL/PLAIN and an authorizer checks ACLs. Otherwise, it is open to everyone.
    """
    replicas = str(min(3, len(nodes)))
    in_sync = str(min(2, len(nodes)))
    return {
        **_COMMON,
        **_for_release(_BY_RELEASE, version),
        "node.id": str(node.node_id),
        "log.dirs": str(data),
        "listeners": _listeners(node, controller=True),
        "advertised.listeners": _listeners(node, controller=False),
        "listener.security.protocol.map": _protocols(node, "SASL_PLAINTEXT" if users else "PLAINTEXT"),
        "controller.quorum.voters": ",".join(f"{n.node_id}@{LOOPBACK}:{n.controller_port}" for n in nodes),
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        **(_security(users) if users else {}),
        **overrides,
    }


def password(user: str) -> str:
    """Return the password of a user of the SASL listener."""
    return f"{user}-secret"


def client_properties(user: str | None) -> dict[str, str]:
    """Return the login properties of a Java client for the user (None: an open listener)."""
    if user is None:
        return {}
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{_PLAIN_LOGIN} required username="{user}" password="{password(user)}";',
    }


def librdkafka_properties(user: str | None) -> dict[str, str]:
    """Return the login properties of a confluent-kafka client for the user (None: an open listener)."""
    if user is None:
        return {}
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password(user),
    }


def _listeners(node: Node, *, controller: bool) -> str:
    ports = {"CLIENT": node.client_port, "BROKER": node.broker_port}
    ports |= {listener.name: listener.port for listener in node.more}
    if controller:
        ports["CONTROLLER"] = node.controller_port
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items())


def _protocols(node: Node, client_protocol: str) -> str:
    protocols = {"CLIENT": client_protocol, "BROKER": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    protocols |= {listener.name: listener.protocol for listener in node.more}
    return ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())


def _security(users: Sequence[str]) -> dict[str, str]:
    logins = " ".join(f'user_{user}="{password(user)}"' for user in users)
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS",  # ANONYMOUS: the brokers' connections to each other
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f"{_PLAIN_LOGIN} required {logins};",
    }


def _for_release(table: Mapping[tuple[int, int], _Value], version: str) -> _Value:
    release = parse_release(version)
    return table[max(known for known in table if known <= release)]


def parse_release(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version, such as (4, 3) for 4.3.1."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)
