"""The broker processes of an embedded cluster: format, start, wait until they answer, logs."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from offsetstream.embedded.artifacts import cache_folder
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.guarded import GuardedProcesses
from offsetstream.embedded.jvm import SHORT_LIVED, kafka_command
from offsetstream.embedded.ports import accepts_connections
from offsetstream.embedded.properties import features
from offsetstream.errors import EnvironmentNotReadyError

# Small and quick to start, since Spark shares the same few cores.
_BROKER_OPTIONS = ("-Xmx512m", *SHORT_LIVED)
_FORMAT_OPTIONS = ("-Xmx128m", *SHORT_LIVED)
_START_SECONDS = 240.0  # an idle machine needs 3; a machine that was paused for a minute needed more than 90
_CHECK_SECONDS = 0.05
_TAIL_LINES = 30


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
        for feature in features(self.version):
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
