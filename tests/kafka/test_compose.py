"""The services of docker-compose.yml run as local processes, with the file's commands, ports and health checks.

Kafka is the embedded broker with the file's settings. Prometheus, Grafana and the S3 server are not tested, because
they are other projects' images. tests/release/test_image.py runs the job in the image itself.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType
from pyhive import hive

import offsetstream
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.jvm import run_tool
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.ports import LOOPBACK, free_ports
from testkit.processes import RunningProcess
from testkit.waiting import SECONDS
from tests.release.image import DOCKERFILE, Places, health_of, services

pytestmark = pytest.mark.long

# The programs that the image's script runs.
TOOLS = {"/opt/kafka/bin/kafka-broker-api-versions.sh": "org.apache.kafka.tools.BrokerApiVersionsCommand"}
ANY = "0.0.0.0"  # noqa: S104 - as a container listens; here it is the loopback address instead


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    host, containers, metrics, thrift = free_ports(4)
    return Places(
        {
            ANY: LOOPBACK,
            "kafka:19092": f"{LOOPBACK}:{containers}",
            "19092": str(containers),
            "9092": str(host),
            "9464": str(metrics),
            "10000": str(thrift),
            "/data": str(tmp_path_factory.mktemp("data")),
        }
    )


@pytest.fixture(scope="module")
def kafka_of_the_file(places: Places) -> Iterator[EmbeddedKafka]:
    """Derive properties from the variables as Kafka's image does; host names become the loopback address."""
    (controller,) = free_ports(1)
    replacements = Places({"://:": f"://{LOOPBACK}:", "localhost": LOOPBACK, "9093": str(controller)})
    variables = services()["kafka"].environment
    properties = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): replacements.of(places.of(value))
        for name, value in variables.items()
        if name not in {"KAFKA_HEAP_OPTS", "KAFKA_LOG_DIRS"}  # only for Kafka's scripts, and the container's disk
    }
    with EmbeddedKafka(port=int(places.of("9092")), properties=properties) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def workload(
    places: Places, kafka_of_the_file: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningProcess]:
    assert not is_healthy("workload", places)  # it does not run yet
    yield from running("workload", places, tmp_path_factory.mktemp("workload") / "said")


@pytest.fixture(scope="module")
def job(places: Places, workload: RunningProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProcess]:
    assert not is_healthy("job", places)
    yield from running("job", places, tmp_path_factory.mktemp("job") / "said")


@pytest.fixture(scope="module")
def thrift(places: Places, job: RunningProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProcess]:
    assert not is_healthy("thrift", places)
    yield from running("thrift", places, tmp_path_factory.mktemp("thrift") / "said")


def running(name: str, places: Places, said: Path) -> Iterator[RunningProcess]:
    """Run a service for the tests' duration, once it is healthy; then stop it as the engine does, with exit code 0."""
    service = services()[name]
    with RunningProcess(places.command(service.command), said, places.environment(service)) as process:
        process.await_(lambda: is_healthy(name, places))
        yield process
        process.process.send_signal(signal.SIGTERM)
        assert process.ended() == 0, process.said()


def is_healthy(name: str, places: Places) -> bool:
    return places.is_well(services()[name].health)


def test_kafka_is_healthy_on_both_listeners(kafka_of_the_file: EmbeddedKafka, places: Places) -> None:
    program, *arguments = services()["kafka"].health
    assert f":{places.of('9092')} (id: 1" in run_tool(TOOLS[program], places.words(arguments))
    for door in ("9092", "19092"):
        address = f"{LOOPBACK}:{places.of(door)}"
        admin = admin_client(address)
        (broker,) = admin.list_topics(timeout=SECONDS).brokers.values()
        assert f"{broker.host}:{broker.port}" == address


def test_kafka_knows_every_setting_of_the_file(kafka_of_the_file: EmbeddedKafka, places: Places) -> None:
    broker = ConfigResource(ResourceType.BROKER, "1")
    admin = admin_client(kafka_of_the_file.bootstrap_server)
    known = admin.describe_configs([broker])[broker].result(SECONDS)
    named = {name.removeprefix("KAFKA_").lower().replace("_", ".") for name in services()["kafka"].environment}
    assert named - known.keys() == {"heap.opts"}
    assert int(known["log.retention.bytes"].value) == int(services()["kafka"].environment["KAFKA_LOG_RETENTION_BYTES"])


def test_the_workload_commits(workload: RunningProcess) -> None:
    workload.await_(lambda: "groups committed again" in workload.said())


def test_the_job_is_healthy_and_scraped(job: RunningProcess, places: Places) -> None:
    assert places.is_well(health_of(DOCKERFILE))
    by_name = Request(f"http://{LOOPBACK}:{places.of('9464')}/metrics", headers={"Host": "job:9464"})
    with urlopen(by_name, timeout=10) as answer:  # noqa: S310 - as Prometheus asks, see monitoring/prometheus
        text = answer.read().decode()
    assert 'offsetstream_offsets_partitions{state="owned"} 50.0' in text
    tables = offsetstream.open_tables(places.of("/data/tables"))
    job.await_(lambda: "billing" in tables.groups()["group_id"].to_pylist())


@pytest.mark.nightly
def test_tables_and_views_are_served(thrift: RunningProcess, places: Places) -> None:
    port = int(places.of("10000"))
    with closing(hive.connect(LOOPBACK, port, database="kafka")) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT DISTINCT group_id FROM lag WHERE group_id = 'billing'")
        assert cursor.fetchall() == [("billing",)]


def test_secrets_are_created_once(tmp_path: Path) -> None:
    for folder in ("grafana", "s3"):
        (tmp_path / folder).mkdir()
    command = services()["secrets"].command
    made = []
    for _ in range(2):
        subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, "PATH": path_with_python(tmp_path)})
        made.append([(tmp_path / name).read_text("utf-8") for name in ("grafana/grafana", "s3/s3")])
    assert made[0] == made[1]
    grafana, s3 = made[0]
    assert grafana != s3
    assert min(len(grafana), len(s3)) >= 32
    # Containers of other users read them, and their volumes have nothing else.
    assert all(stat.S_IMODE((tmp_path / name).stat().st_mode) & stat.S_IROTH for name in ("grafana/grafana", "s3/s3"))


def path_with_python(folder: Path) -> str:
    """Return a PATH that has this Python under the image's name for it."""
    programs = folder / "bin"
    if not programs.exists():
        programs.mkdir()
        (programs / "python").symlink_to(Places({}).command(["python"])[0])
    return f"{programs}:{os.environ['PATH']}"
