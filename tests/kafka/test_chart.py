"""The chart's pod, run as a process: its arguments, environment, mounts, probes, user and root file system.

This is the closest to a Kubernetes cluster on one machine; `tests/kafka/pod.py` lists what is missing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import offsetstream
from offsetstream.demo.topics import create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.ports import LOOPBACK, free_ports
from testkit.processes import RunningProcess, descendants
from testkit.s3_server import s3_server
from testkit.waiting import PATIENCE
from tests.doors.kubernetes import rendered
from tests.kafka.pod import Pod

pytestmark = pytest.mark.nightly

ANY = "0.0.0.0"  # noqa: S104 - as a container listens; here it is the loopback address instead
WRITES = 'for each in "$@"; do touch $each/x 2>/dev/null && echo $each && rm $each/x; done; id -u'
SETTINGS = '[run]\ntrigger = "1 second"\nlog-format = "json"\n'


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedKafka]:
    """A broker with logins."""
    with EmbeddedKafka(security="sasl_plaintext") as kafka:
        create_topics(admin_client(kafka.bootstrap_server, kafka.librdkafka_properties()))
        commit(kafka, "billing", 1)
        yield kafka


@pytest.fixture(scope="module")
def pod(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Pod:
    login = "".join(f"{name}={value}\n" for name, value in kafka.client_properties().items())
    cluster = {"bootstrapServer": kafka.bootstrap_server, "clientProperties": login, "settings": SETTINGS}
    return pod_of({"clusters": {"eu": cluster}}, tmp_path_factory.mktemp("pod"))


def pod_of(values: dict[str, object], folder: Path) -> Pod:
    (port,) = free_ports(1)
    return Pod(rendered(values), {ANY: LOOPBACK, "9464": str(port)}, folder)


def commit(kafka: EmbeddedKafka, group: str, offset: int) -> None:
    offsetstream.commit_offsets(
        kafka.bootstrap_server, group, {("orders", 0): offset}, properties=kafka.client_properties()
    )


def committed(pod: Pod) -> dict[str, int]:
    """Return the groups and their offsets, from the volume."""
    rows = offsetstream.open_tables(str(pod.volume("data") / "tables")).committed_offsets().to_pylist()
    return {row["group_id"]: row["committed_offset"] for row in rows}


def output(pod: Pod, *words: str) -> str:
    done = subprocess.run(pod.command(list(words)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_only_the_mounts_are_writable(pod: Pod) -> None:
    mounts = ("/etc/offsetstream/settings", "/etc/offsetstream/client", "/data", "/tmp")  # noqa: S108 - the container's
    folders = ("/", "/etc", "/opt", "/home", *mounts)
    assert output(pod, "sh", "-c", WRITES, "sh", *folders).split() == [*mounts[2:], "10001"]


def test_the_job_becomes_ready_writes_tables_and_stops_in_time(pod: Pod, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    assert not pod.is_well("startupProbe")
    with RunningProcess(pod.job(), tmp_path / "said") as job:
        started, startup = time.monotonic(), pod.container["startupProbe"]
        job.await_(lambda: pod.is_well("startupProbe"))
        assert time.monotonic() - started < startup["periodSeconds"] * startup["failureThreshold"] * PATIENCE
        job.await_(lambda: pod.is_well("readinessProbe"))
        assert pod.is_well("livenessProbe")
        assert (pod.volume("data") / "checkpoints").is_dir()
        commit(kafka, "shipping", 2)
        job.await_(lambda: committed(pod) == {"billing": 1, "shipping": 2})
        # Commands in the pod need no options: its environment has the tables, the brokers and the login.
        assert '"billing"' in output(pod, "offsetstream", "offsets", "list", "--group", "billing", "--output", "json")
        assert "billing" in output(pod, "offsetstream", "offsets", "list", "--group", "billing", "--live")
        stop(job, pod)


def test_the_next_pod_resumes(pod: Pod, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    commit(kafka, "shipping", 3)
    with RunningProcess(pod.job(), tmp_path / "said") as job:
        job.await_(lambda: committed(pod) == {"billing": 1, "shipping": 3})
        stop(job, pod)
    assert "Loading" not in job.said()


def test_with_an_object_store_only_tmp_is_writable(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with s3_server() as s3:
        conf = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in s3.spark_conf.items())
        login = "".join(f"{name}={value}\n" for name, value in kafka.client_properties().items())
        cluster = {
            "bootstrapServer": kafka.bootstrap_server,
            "clientProperties": login,
            "tables": s3.uri("tables"),
            "checkpoint": s3.uri("checkpoints"),
            "settings": f"{SETTINGS}conf = {{ {conf} }}\n",
        }
        env = [{"name": name, "value": value} for name, value in s3.environment.items()]
        pod = pod_of({"clusters": {"eu": cluster}, "env": env}, tmp_path / "pod")
        assert output(pod, "sh", "-c", WRITES, "sh", "/data", "/tmp").split() == ["/tmp", "10001"]  # noqa: S108 - likewise
        with RunningProcess(pod.job(), tmp_path / "said") as job:
            job.await_(lambda: pod.is_well("readinessProbe"))
            assert "billing" in output(pod, "offsetstream", "offsets", "list", "--group", "billing")
            stop(job, pod)


def stop(job: RunningProcess, pod: Pod) -> None:
    """Stop the job as the kubelet does: only the container's process gets the signal, with its grace period."""
    (process, *_) = descendants(job.pid)
    requested_at = time.monotonic()
    os.kill(process, signal.SIGTERM)
    assert job.ended() == 0, job.said()
    assert time.monotonic() - requested_at < pod.grace_seconds * PATIENCE
    assert "Stopped between two batches" in job.said()
