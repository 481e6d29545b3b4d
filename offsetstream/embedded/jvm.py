"""Run Java from Python: a Kafka program, one of Kafka's tools, or a JVM whose classes Python calls."""

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

from py4j import protocol
from py4j.java_gateway import GatewayClient, GatewayParameters, JavaGateway, launch_gateway

from offsetstream.embedded.artifacts import classpath, pyspark_jar, resolve
from offsetstream.embedded.java import archive_options, java_executable
from offsetstream.errors import ClusterError, UnreachableError

DEFAULT_VERSION = "4.3.1"  # of Kafka
# Kafka 2.0 to 4.3 use slf4j 1.7. This library writes the log to standard error without a configuration file.
_LOGGING = "org.slf4j:slf4j-simple:1.7.36"
# For a JVM that runs only minutes: the optimising compiler and G1's threads would use half of its CPU time.
SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.showShortLogName=true",
)
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_TOOL_OPTIONS = ("-Xmx256m", *SHORT_LIVED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_EXIT_SECONDS = 5.0


def kafka_command(
    artifact: str, version: str, main_class: str, arguments: Sequence[str], options: Sequence[str]
) -> list[str]:
    """Return the command that runs a main class of `org.apache.kafka:<artifact>:<version>`.

    Resolves the artifacts, which are downloaded once. Raises EnvironmentNotReadyError if that fails.
    """
    jars = kafka_jars(artifact, version)
    archived = archive_options(f"kafka-{version}", jars)
    return [str(java_executable()), *archived, *options, *_LOG_OPTIONS, "-cp", classpath(jars), main_class, *arguments]


def kafka_jars(artifact: str, version: str) -> list[Path]:
    """Return the jars of `org.apache.kafka:<artifact>:<version>`, like `resolve`."""
    return resolve([f"org.apache.kafka:{artifact}:{version}", _LOGGING])


def run_tool(
    main_class: str, args: Sequence[str], version: str = DEFAULT_VERSION, *, timeout_seconds: float = 120.0
) -> str:
    """Run a tool of `org.apache.kafka:kafka-tools:<version>` (about 2 seconds). Return its output.

    `main_class` is a full name, such as CONSUMER_GROUPS. Raises ClusterError with the tool's message if it fails,
    UnreachableError if it does not end in time.
    """
    command = kafka_command("kafka-tools", version, main_class, args, _TOOL_OPTIONS)
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


@contextmanager
def java_gateway(jars: Sequence[Path] = (), *, auto_convert: bool = False) -> Iterator[JavaGateway]:
    """Yield a JVM with py4j's server and `jars`. It ends with the context, or with this process."""
    port, token, process = launch_gateway(
        jarpath=str(pyspark_jar("py4j")),
        classpath=classpath(jars),
        java_path=str(java_executable()),
        javaopts=["-Xmx512m"],
        die_on_exit=True,
        create_new_process_group=True,  # Ctrl-C reaches only this process, which then ends the JVM
        enable_auth=True,
        return_proc=True,
    )
    gateway = _Gateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=auto_convert))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        process.stdin.close()
        _end(process)


def _end(process: Popen[bytes]) -> None:
    """Wait until the JVM has ended. Kill it after 5 seconds, since a client in it may still wait for its servers."""
    try:
        process.wait(timeout=_EXIT_SECONDS)
    except TimeoutExpired:
        process.kill()
        process.wait()


class _Client(GatewayClient):  # type: ignore[misc]  # py4j is not typed
    """Raises a Java exception as Py4JJavaError as soon as its answer arrives.

    py4j itself does this later, in a function that PySpark replaces for the complete process when it creates a session.
    PySpark's function sends the exceptions of every JVM to Spark's JVM.
    """

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        answer = super().send_command(command, retry, binary)
        if not binary and protocol.is_error(answer)[0]:
            protocol.get_return_value(answer, self, *command.split("\n")[1:3])
        return answer


class _Gateway(JavaGateway):  # type: ignore[misc]  # py4j is not typed
    def _create_gateway_client(self) -> _Client:
        return _Client(gateway_parameters=self.gateway_parameters)
