"""Kafka's console consumer with its formatter: the peer of all benchmarks that read the whole topic."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from benchmarks.results import print_seconds
from offsetstream.embedded.jvm import DEFAULT_VERSION, kafka_command

_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_FORMATTER = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"


def console_command(server: str, records: int) -> list[str]:
    """Return the command that reads the first `records` records of the topic."""
    topic = ("--bootstrap-server", server, "--topic", "__consumer_offsets", "--from-beginning")
    how = ("--formatter", _FORMATTER, "--isolation-level", "read_committed", "--max-messages", str(records))
    return kafka_command("kafka-tools", DEFAULT_VERSION, _CONSUMER, [*topic, *how], ("-Xmx512m",))


def process_seconds(command: list[str], folder: Path) -> float:
    """Run the command with its output in a file, and return how long the process took."""
    started = time.monotonic()
    with (folder / "output").open("wb") as file:
        subprocess.run(command, check=True, stdout=file, stderr=subprocess.DEVNULL)
    return print_seconds(f"process with {Path(command[0]).name} {command[-1]}", time.monotonic() - started)
