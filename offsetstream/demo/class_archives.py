"""Build the Java class archives (CDS) that make Kafka and Spark start faster.

Run it with `python -m offsetstream.demo.class_archives`. It runs a broker and a job, and Java archives the classes that
they loaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from offsetstream.demo.topics import commit_plainly
from offsetstream.embedded.artifacts import resolve
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.java import QUIET, archive_folder, archive_of, has_base_archive, java_executable
from offsetstream.embedded.jvm import DEFAULT_VERSION, kafka_jars
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import OffsetstreamError
from offsetstream.spark.local import SPARK, on_class_path
from offsetstream.spark.session import connectors

_TOPIC = "any-topic"


def main() -> None:
    """Build both archives and delete older ones, unless both exist. On failure, print one line and exit with code 1."""
    kafka_archive = archive_of(f"kafka-{DEFAULT_VERSION}", kafka_jars("kafka_2.13", DEFAULT_VERSION))
    spark_archive = archive_of(SPARK, resolve(connectors()))
    if kafka_archive.is_file() and spark_archive.is_file():
        return
    java = java_executable().resolve()
    if not has_base_archive(java):
        sys.exit(f"offsetstream: {java} has no base class archive, so it cannot build others. Use another Java")
    folder = archive_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.jsa"):
        old.unlink()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        log = _build(kafka_archive.name, spark_archive.name, Path(scratch))
        for archive in (kafka_archive, spark_archive):
            built = Path(scratch) / archive.name
            if not built.is_file():
                sys.exit(f"{log}\noffsetstream: {java} did not build {archive.name}. See its output above")
            built.replace(archive)


def _build(kafka_archive: str, spark_archive: str, scratch: Path) -> str:
    """Run a broker and two jobs, where the second continues the first. Java writes each archive when it exits.

    Returns the log of the jobs.
    """
    with EmbeddedKafka(jvm_options=(_archive_option(scratch / kafka_archive), *QUIET)) as kafka:
        admin = admin_client(kafka.bootstrap_server)
        admin.create_topics([NewTopic(_TOPIC, 1, 1)])[_TOPIC].result(60)
        log = ""
        for options in ((), (_archive_option(scratch / spark_archive), *QUIET)):
            commit_plainly(kafka.bootstrap_server, {"a group": [TopicPartition(_TOPIC, 0, 1)]})
            log += _run_job(kafka.bootstrap_server, scratch, os.environ | {"SPARK_SUBMIT_OPTS": " ".join(options)})
        kafka.stop_broker(1)
    return log


def _archive_option(archive: Path) -> str:
    return f"-XX:ArchiveClassesAtExit={archive}"


def _run_job(bootstrap_server: str, scratch: Path, environment: dict[str, str]) -> str:
    """Run the job until it has read everything; return its log once its Java has exited, too."""
    job = [sys.executable, "-m", "offsetstream", "run", "--once", "--bootstrap-server", bootstrap_server]
    folders = ["--tables", str(scratch / "tables"), "--checkpoint", str(scratch / "checkpoints")]
    conf = (f"--conf={name}={value}" for name, value in on_class_path(resolve(connectors())).items())
    result = subprocess.run([*job, *folders, *conf], capture_output=True, text=True, check=False, env=environment)
    return result.stderr


if __name__ == "__main__":
    try:
        main()
    except (OffsetstreamError, OSError) as error:
        sys.exit(f"offsetstream: Cannot build the class archives: {error}")
