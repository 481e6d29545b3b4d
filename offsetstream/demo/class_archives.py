"""`python -m offsetstream.demo.class_archives`: make the archives of classes, by a broker and a job that use them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from offsetstream.demo.commits import commit_plainly
from offsetstream.embedded.artifacts import resolve
from offsetstream.embedded.class_archive import QUIET, archive_folder, archive_of, has_base_archive
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.java import java_executable
from offsetstream.embedded.jvm import kafka_jars
from offsetstream.embedded.kafka import DEFAULT_VERSION, EmbeddedKafka
from offsetstream.errors import OffsetstreamError
from offsetstream.spark.local import SPARK, on_class_path
from offsetstream.spark.session import connectors

_TOPIC = "of-any-name"


def main() -> None:
    """Make both archives, unless they are there, in place of older ones; a line and exit code 1 if they cannot be."""
    of_kafka = archive_of(f"kafka-{DEFAULT_VERSION}", kafka_jars("kafka_2.13", DEFAULT_VERSION))
    of_spark = archive_of(SPARK, resolve(connectors()))
    if of_kafka.is_file() and of_spark.is_file():
        return
    java = java_executable().resolve()
    if not has_base_archive(java):
        sys.exit(f"offsetstream: {java} came without an archive of its own classes, which others would be on top of")
    folder = archive_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.jsa"):
        old.unlink()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        said = _make(of_kafka.name, of_spark.name, Path(scratch))
        for archive in (of_kafka, of_spark):
            made = Path(scratch) / archive.name
            if not made.is_file():
                sys.exit(f"{said}\noffsetstream: {java} did not make {archive.name}: its own words are above")
            made.replace(archive)


def _make(of_kafka: str, of_spark: str, scratch: Path) -> str:
    """Have a job load a topic, and then go on with it; each program writes its archive into the folder when it ends."""
    with EmbeddedKafka(jvm_options=(_archiving(scratch / of_kafka), *QUIET)) as kafka:
        admin = admin_client(kafka.bootstrap_server)
        admin.create_topics([NewTopic(_TOPIC, 1, 1)])[_TOPIC].result(60)
        said = ""
        for options in ((), (_archiving(scratch / of_spark), *QUIET)):
            commit_plainly(kafka.bootstrap_server, {"a group": [TopicPartition(_TOPIC, 0, 1)]})
            said += _job(kafka.bootstrap_server, scratch, os.environ | {"SPARK_SUBMIT_OPTS": " ".join(options)})
        kafka.stop_broker(1)
    return said


def _archiving(archive: Path) -> str:
    return f"-XX:ArchiveClassesAtExit={archive}"


def _job(bootstrap_server: str, scratch: Path, environment: dict[str, str]) -> str:
    """Run the job until it has everything; return what it said, which is whole when its Java has ended, too."""
    job = [sys.executable, "-m", "offsetstream", "run", "--once", "--bootstrap-server", bootstrap_server]
    places = ["--tables", str(scratch / "tables"), "--checkpoint", str(scratch / "checkpoints")]
    conf = (f"--conf={name}={value}" for name, value in on_class_path(resolve(connectors())).items())
    done = subprocess.run([*job, *places, *conf], capture_output=True, text=True, check=False, env=environment)
    return done.stderr


if __name__ == "__main__":
    try:
        main()
    except (OffsetstreamError, OSError) as error:
        sys.exit(f"offsetstream: no archives of classes: {error}")
