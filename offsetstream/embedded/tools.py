"""Run Kafka's command-line tools from their Maven artifacts."""

import re
import subprocess
from collections.abc import Sequence

from offsetstream.embedded.jvm import SHORT_LIVED, kafka_command
from offsetstream.embedded.kafka import DEFAULT_VERSION
from offsetstream.errors import ClusterError, UnreachableError

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_OPTIONS = ("-Xmx256m", *SHORT_LIVED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


def run_tool(
    main_class: str, args: Sequence[str], version: str = DEFAULT_VERSION, *, timeout_seconds: float = 120.0
) -> str:
    """Run a tool of `org.apache.kafka:kafka-tools:<version>` (about 2 seconds). Return its output.

    `main_class` is a full name, such as CONSUMER_GROUPS. Raises ClusterError with the tool's message if it fails,
    UnreachableError if it does not end in time.
    """
    command = kafka_command("kafka-tools", version, main_class, args, _OPTIONS)
    tool = main_class.rpartition(".")[2]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(f"{tool} {' '.join(args)} did not end in {timeout_seconds:.0f} s") from error
    # Some tools print "Error: …" and still exit with 0.
    if result.returncode != 0 or re.search("^Error:", result.stdout, re.MULTILINE):
        lines = (result.stderr.strip() or result.stdout.strip()).splitlines()
        message = " / ".join(line for line in lines if line.strip() and not line.startswith("\tat "))
        raise ClusterError(f"{tool} {' '.join(args)} ended with exit code {result.returncode}: {message}")
    return result.stdout
