"""The command line of a Kafka program that is run from Maven artifacts."""

from collections.abc import Sequence
from pathlib import Path

from offsetstream.embedded.artifacts import classpath, resolve
from offsetstream.embedded.class_archive import archive_options
from offsetstream.embedded.java import java_executable

# Every Kafka of 2.0 to 4.3 speaks slf4j 1.7; this writes its log to standard error, without a file of settings.
_LOGGING = "org.slf4j:slf4j-simple:1.7.36"
# Of a JVM that ends within minutes: the optimising compiler and G1's threads would take half of its processor time.
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

    Resolves (and at first use downloads) the artifacts; raises EnvironmentNotReadyError where that cannot be.
    """
    jars = kafka_jars(artifact, version)
    archived = archive_options(f"kafka-{version}", jars)
    return [str(java_executable()), *archived, *options, *_LOG_OPTIONS, "-cp", classpath(jars), main_class, *arguments]


def kafka_jars(artifact: str, version: str) -> list[Path]:
    """Find the jars of `org.apache.kafka:<artifact>:<version>`, as `resolve` does."""
    return resolve([f"org.apache.kafka:{artifact}:{version}", _LOGGING])
