"""How Java starts: the packaged Java, with a class archive, and with an archive that it cannot use."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from offsetstream.embedded.java import (
    archive_of,
    archive_options,
    has_base_archive,
    java_executable,
    java_home_for_spark,
    java_version,
    packaged_java,
)
from offsetstream.embedded.jvm import DEFAULT_VERSION, kafka_command, kafka_jars
from testkit.waiting import SECONDS

KAFKA = f"kafka-{DEFAULT_VERSION}"


def test_programs_start_from_the_archive_that_make_install_built() -> None:
    if not has_base_archive(
        java_executable().resolve()
    ):  # without a base archive there is none of ours, and the options are omitted
        assert archive_options(KAFKA, kafka_jars("kafka_2.13", DEFAULT_VERSION)) == ()
        return
    loaded = _random_id("-Xlog:class+load").stdout
    archived = [line for line in loaded.splitlines() if "org.apache.kafka" in line and "shared objects file" in line]
    assert archived, "no class of Kafka's came from an archive: `make install` makes it"


@pytest.mark.parametrize("content", [b"", b"of another kind" * 1000])
def test_an_archive_that_java_cannot_use_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    jars = kafka_jars("kafka_2.13", DEFAULT_VERSION)
    assert archive_options(KAFKA, jars) == ()
    archive = archive_of(KAFKA, jars)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(content)
    assert archive_options(KAFKA, jars)[0].endswith(str(archive))
    done = _random_id()
    assert (done.returncode, len(done.stdout.strip())) == (0, len("vPeOCWypqUOSepEvx0cbog"))
    assert "archive" not in done.stderr, "Java's own word of it, which nobody needs"


def test_a_java_without_a_base_archive_is_reported_in_one_line(tmp_path: Path) -> None:
    """The packaged Java, which is used if the machine has none."""
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    command = [sys.executable, "-m", "offsetstream.demo.class_archives"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    packaged = packaged_java()
    assert packaged is not None
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"offsetstream: {packaged.resolve()} has no base class archive")
    assert len(done.stderr.splitlines()) == 1


def test_an_archive_belongs_to_its_jars_and_its_java() -> None:
    jars = kafka_jars("kafka_2.13", DEFAULT_VERSION)
    assert archive_of(KAFKA, jars) == archive_of(KAFKA, list(jars))
    assert archive_of(KAFKA, jars[1:]) != archive_of(KAFKA, jars)


def test_the_packaged_java_starts_with_the_arguments_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda _: None)
    home = java_home_for_spark(tmp_path)
    assert home is not None
    java = home / "bin" / "java"
    assert java_version(java) == 21
    sparks = ["--add-modules=jdk.incubator.vector", "-Da b=c d", "-XshowSettings:properties", "-version"]
    done = subprocess.run([str(java), *sparks], capture_output=True, text=True, check=False)
    assert (done.returncode, "a b = c d" in done.stderr) == (0, True), done.stderr
    assert (java.with_name("keytool")).is_file()
    without_us = subprocess.run([str(java_executable()), *sparks], capture_output=True, text=True, check=False)
    assert "jdk.incubator.vector not found" in without_us.stdout + without_us.stderr


def _random_id(*options: str) -> subprocess.CompletedProcess[str]:
    command = kafka_command("kafka_2.13", DEFAULT_VERSION, "kafka.tools.StorageTool", ["random-uuid"], options)
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
