"""A real Kafka cluster of one or three nodes on this machine, from Maven artifacts, without containers."""

from __future__ import annotations

import base64
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from offsetstream.embedded import properties as settings
from offsetstream.embedded.artifacts import MEBIBYTE, cache_folder, check_disk_space
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.guarded import GuardedProcesses
from offsetstream.embedded.jvm import DEFAULT_VERSION, SHORT_LIVED, kafka_command
from offsetstream.embedded.ports import LOOPBACK, accepts_connections, check_port_is_free, free_ports
from offsetstream.errors import EnvironmentNotReadyError, UsageError

_DISK_BYTES_PER_BROKER = 300 * MEBIBYTE
_PORTS_PER_NODE = 3
_ATTEMPTS = 3  # new free ports are chosen if another process took one first
_PORT_WAS_TAKEN = "Address already in use"
_STOP_SECONDS = 20.0
_STOP_ALL_SECONDS = 5.0  # the last brokers of three wait in vain for a controller
_SECURITY = ("plaintext", "sasl_plaintext")
# Small and quick to start, since Spark shares the same few cores.
_BROKER_OPTIONS = ("-Xmx512m", *SHORT_LIVED)
_FORMAT_OPTIONS = ("-Xmx128m", *SHORT_LIVED)
_START_SECONDS = 240.0  # an idle machine needs 3; a machine that was paused for a minute needed more than 90
_CHECK_SECONDS = 0.05
_TAIL_LINES = 30


class EmbeddedKafka:
    """A KRaft cluster. Its processes and its folder end with this process, even if this process is killed.

    `version` is Kafka's version. `brokers` is 1 or 3; each is broker and controller. `properties` override the server
    properties of `offsetstream.embedded.properties` (3.9 runs the classic coordinator unless
    `group.coordinator.rebalance.protocols` is `classic,consumer`). `port` is the client port of the first broker, and
    the others get the next ones; by default, free ports are used. With security `sasl_plaintext`, clients log in as
    `admin`, who may do everything, or as one of `users`, who need ACLs. `listeners` are additional listeners: security
    protocols by name, which `properties` configure. `jvm_options` are for the brokers' JVMs.

    Use it with `with`, or call `start` and `close`. Starting raises EnvironmentNotReadyError if Java, the artifacts or
    disk space are missing, a fixed port is in use, or a broker ended (with the last lines of its log).
    """

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        *,
        security: str = "plaintext",
        users: Sequence[str] = ("alice",),
        listeners: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = (),
        port: int | None = None,
    ) -> None:
        if brokers not in (1, 3):
            raise UsageError(f"An embedded Kafka has 1 or 3 brokers, not {brokers}")
        if security not in _SECURITY:
            raise UsageError(f"security must be one of {', '.join(_SECURITY)}, not {security!r}")
        self.version = version
        self.cluster_id = _new_cluster_id()
        self._broker_ids = range(1, brokers + 1)
        self._overrides = dict(properties or {})
        self._users = [settings.ADMIN, *users] if security == "sasl_plaintext" else []
        self._listeners = dict(listeners or {})
        self._jvm_options = tuple(jvm_options)
        self._port = port
        self._nodes: list[settings.Node] = []
        self._processes: GuardedProcesses | None = None
        self._brokers: dict[int, BrokerProcess] = {}
        self._pids: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap_server(self) -> str:
        """Return the addresses of all brokers, as a value for `bootstrap.servers`."""
        return ",".join(f"{LOOPBACK}:{broker.client_port}" for broker in self._brokers.values())

    def address(self, listener: str) -> str:
        """Return the addresses of all brokers for one of the `listeners`, as a value for `bootstrap.servers`."""
        return ",".join(each.address for node in self._nodes for each in node.more if each.name == listener)

    @property
    def pids(self) -> dict[int, int]:
        """Return the process id of each running broker."""
        return dict(self._pids)

    @property
    def folder(self) -> Path:
        """Return the temporary folder of data, properties and logs."""
        return self._running().folder

    def client_properties(self, user: str = settings.ADMIN) -> dict[str, str]:
        """Return the login properties for a Java client (Spark, Kafka's tools)."""
        return settings.client_properties(user if self._users else None)

    def librdkafka_properties(self, user: str = settings.ADMIN) -> dict[str, str]:
        """Return the login properties for a confluent-kafka client."""
        return settings.librdkafka_properties(user if self._users else None)

    def start(self) -> Self:
        """Format and start all brokers, and wait until they serve (about 3 seconds for one)."""
        if self._port is not None:
            for port in self._fixed_ports():
                check_port_is_free(port)
        check_disk_space(
            Path(tempfile.gettempdir()), len(self._broker_ids) * _DISK_BYTES_PER_BROKER, "an embedded Kafka"
        )
        self._processes = GuardedProcesses()
        try:
            self._start_with_free_ports(_ATTEMPTS)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Kill all brokers and remove the folder; a second call does nothing."""
        if self._processes is not None:
            self._processes.close()
        self._processes, self._pids = None, {}

    def stop_broker(self, broker_id: int, *, kill: bool = False) -> None:
        """Stop a broker so that it hands over its partitions, or kill it. Its data stays."""
        self._stop([broker_id], grace_seconds=0.0 if kill else _STOP_SECONDS)

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker with its ports and data, and wait until it serves."""
        self._launch([broker_id])

    def restart(self) -> None:
        """Stop all brokers and start them again with their ports and data."""
        self._stop(list(self._pids), _STOP_ALL_SECONDS)
        self._launch(self._broker_ids)

    def logs(self, lines: int = 200) -> str:
        """Return the last lines that each broker printed."""
        return "\n".join(f"--- {b.name}\n{b.log_tail(lines)}" for b in self._brokers.values())

    def _start_with_free_ports(self, attempts: int) -> None:
        self._nodes = self._choose_nodes()
        self._brokers = self._create_folders(self._nodes, self._running())
        try:
            for broker in self._brokers.values():
                broker.format(self.cluster_id)
            for broker in self._brokers.values():
                broker.await_formatted()
            self._launch(self._broker_ids)
        except BrokerEndedError:
            if attempts == 1 or _PORT_WAS_TAKEN not in self.logs():
                raise
            self._stop(list(self._pids), grace_seconds=0.0)
            self._start_with_free_ports(attempts - 1)

    def _choose_nodes(self) -> list[settings.Node]:
        count = len(self._broker_ids)
        ports = iter(free_ports((_PORTS_PER_NODE + len(self._listeners)) * count))
        client_ports = self._fixed_ports() if self._port is not None else [next(ports) for _ in range(count)]
        ids_and_ports = zip(self._broker_ids, client_ports, strict=True)
        return [
            settings.Node(node_id, port, next(ports), next(ports), self._more_listeners(ports))
            for node_id, port in ids_and_ports
        ]

    def _more_listeners(self, ports: Iterator[int]) -> tuple[settings.Listener, ...]:
        return tuple(settings.Listener(name, protocol, next(ports)) for name, protocol in self._listeners.items())

    def _fixed_ports(self) -> list[int]:
        first = self._port or 0
        return [first + number for number in range(len(self._broker_ids))]

    def _create_folders(self, nodes: Sequence[settings.Node], processes: GuardedProcesses) -> dict[int, BrokerProcess]:
        attempt = Path(tempfile.mkdtemp(dir=processes.folder))
        brokers = {}
        for node in nodes:
            folder = attempt / f"broker-{node.node_id}"
            broker = BrokerProcess(node.node_id, self.version, node.client_port, folder, processes, self._jvm_options)
            broker.write_properties(
                settings.server_properties(node, nodes, self.version, folder / "data", self._users, self._overrides)
            )
            brokers[node.node_id] = broker
        return brokers

    def _launch(self, broker_ids: Sequence[int]) -> None:
        for broker_id in broker_ids:
            self._pids[broker_id] = self._brokers[broker_id].start()
        running = [self._brokers[broker_id] for broker_id in self._pids]
        await_answers(running, self.bootstrap_server, self.librdkafka_properties())

    def _stop(self, broker_ids: Sequence[int], grace_seconds: float) -> None:
        self._running().end([self._brokers[broker_id].name for broker_id in broker_ids], grace_seconds)
        for broker_id in broker_ids:
            del self._pids[broker_id]

    def _running(self) -> GuardedProcesses:
        if self._processes is None:
            raise EnvironmentNotReadyError("The embedded Kafka is not running. Use it inside `with`")
        return self._processes


def _new_cluster_id() -> str:
    """Return a random UUID in 22 characters, like Kafka, that does not start with a hyphen."""
    encoded = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return encoded if not encoded.startswith("-") else _new_cluster_id()


class BrokerEndedError(EnvironmentNotReadyError):
    """A broker's process ended before it answered. The message ends with the last lines of its log."""


@dataclass(frozen=True)
class BrokerProcess:
    """One node of an embedded cluster: its folder (properties, data, log) and its guarded process."""

    node_id: int
    version: str
    client_port: int
    folder: Path
    processes: GuardedProcesses
    jvm_options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of the process."""
        return f"broker-{self.node_id}"

    @property
    def log(self) -> Path:
        """Return the file that has Kafka's output of all starts of this node."""
        return self.folder / "kafka.log"

    def write_properties(self, properties: Mapping[str, str]) -> None:
        """Write the node's properties file in Java's format."""
        self.folder.mkdir(parents=True)
        lines = [f"{name}={value}" for name, value in properties.items()]
        self._properties.write_text("\n".join([*lines, ""]).replace("\\", "\\\\"))

    def format(self, cluster_id: str) -> None:
        """Start StorageTool on the node's data folder. `await_formatted` waits for the result."""
        arguments = ["format", "--cluster-id", cluster_id, "--config", str(self._properties)]
        for feature in settings.features(self.version):
            arguments += ["--feature", feature]
        self._run("format", "kafka.tools.StorageTool", arguments, _FORMAT_OPTIONS)

    def await_formatted(self) -> None:
        """Wait until StorageTool ends. Raises BrokerEndedError if it failed."""
        name = f"{self.name}-format"
        while (code := self.processes.exit_code(name)) is None:
            time.sleep(_CHECK_SECONDS)
        if code != 0:
            raise self._ended("StorageTool", code)

    def start(self) -> int:
        """Start Kafka; return its pid."""
        return self._run("", "kafka.Kafka", [str(self._properties)], (*_BROKER_OPTIONS, *self.jvm_options))

    def check_runs(self) -> None:
        """Raise BrokerEndedError if Kafka's process has ended."""
        code = self.processes.exit_code(self.name)
        if code is not None:
            raise self._ended("Kafka", code)

    def log_tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines of the log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def keep_log(self) -> Path:
        """Copy the log to the cache folder, where it stays after the cluster is gone. Only the last failure is kept."""
        kept = cache_folder() / "logs" / f"kafka-{self.version}-{self.name}.log"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(self.log.read_text(errors="replace") if self.log.exists() else "")
        return kept

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _run(self, step: str, main_class: str, arguments: Sequence[str], options: Sequence[str]) -> int:
        command = kafka_command("kafka_2.13", self.version, main_class, arguments, options)
        name = f"{self.name}-{step}" if step else self.name
        return self.processes.start(name, command, self.log)

    def _ended(self, program: str, code: int) -> BrokerEndedError:
        return BrokerEndedError(
            f"{program} {self.version} of {self.name} ended with exit code {code} before it answered. "
            f"Its log is {self.keep_log()}. The last lines:\n{self.log_tail()}"
        )


def await_answers(running: Sequence[BrokerProcess], bootstrap: str, credentials: Mapping[str, str]) -> None:
    """Wait until the cluster's metadata has all running nodes as brokers.

    Raises BrokerEndedError if one of them ends meanwhile, EnvironmentNotReadyError after four minutes.
    """
    deadline = time.monotonic() + _START_SECONDS
    while silent := [broker for broker in running if not accepts_connections(broker.client_port)]:
        _check_and_pause(running, silent, deadline)
    admin = admin_client(bootstrap, credentials)
    while silent := _not_serving(admin, running):
        _check_and_pause(running, silent, deadline)


def _not_serving(admin: AdminClient, running: Sequence[BrokerProcess]) -> list[BrokerProcess]:
    try:
        serving = admin.list_topics(timeout=1).brokers
    except KafkaException:
        return list(running)
    return [broker for broker in running if broker.node_id not in serving]


def _check_and_pause(running: Sequence[BrokerProcess], silent: Sequence[BrokerProcess], deadline: float) -> None:
    for broker in running:
        broker.check_runs()
    if time.monotonic() > deadline:
        kept = [str(broker.keep_log()) for broker in running]
        raise EnvironmentNotReadyError(
            f"{', '.join(broker.name for broker in silent)} of Kafka {running[0].version} did not answer within "
            f"{_START_SECONDS:.0f} seconds. The logs are {', '.join(kept)}. The last lines of {silent[0].name}:\n"
            f"{silent[0].log_tail()}"
        )
    time.sleep(_CHECK_SECONDS)
