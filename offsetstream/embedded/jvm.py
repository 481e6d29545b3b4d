"""Build the command line of a Kafka program from Maven artifacts."""

from collections.abc import Sequence
from pathlib import Path

from offsetstream.embedded.artifacts import classpath, resolve
from offsetstream.embedded.class_archive import archive_options
from offsetstream.embedded.java import java_executable

# Kafka 2.0 to 4.3 use slf4j 1.7. This library writes the log to standard error without a configuration file.
_LOGGING = "org.slf4j:slf4j-simple:1.7.36"
# For a JVM that runs only minutes: the optimising compiler and G1's threads would use half of its CPU time.
SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.showShortLogName=true",
)


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
