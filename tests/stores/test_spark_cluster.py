"""The complete job by spark-submit on a standalone cluster with a master and two workers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetstream.demo.workload import Workload
from offsetstream.embedded.kafka import EmbeddedKafka
from testkit.processes import RunningProcess
from testkit.stored_job import StoredJob
from tests.stores.spark_cluster import SparkCluster, python_without_the_package, spark_cluster

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with spark_cluster(workers=2) as running:
        yield running


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The executors' Python."""
    return python_without_the_package(tmp_path_factory.mktemp("python"))


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel under the name that Spark's executors accept."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(folder)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return Path(shutil.copy(wheel, folder / "offsetstream.zip"))


@pytest.fixture(scope="module")
def job(own_kafka: EmbeddedKafka, workload: Workload, tmp_path_factory: pytest.TempPathFactory) -> StoredJob:
    place = tmp_path_factory.mktemp("cluster")
    return StoredJob(own_kafka.bootstrap_server, str(place), place)


def test_executors_without_the_package_are_reported(cluster: SparkCluster, bare_python: Path, job: StoredJob) -> None:
    with RunningProcess([*cluster.submitted(python=bare_python), *job.options("--once")], job.said("lacks")) as refused:
        assert refused.ended() == 1
        (error,) = (line for line in refused.said().splitlines() if " ERROR " in line)
        assert "The executors' Python lacks offsetstream. Give them" in error
        assert "ModuleNotFoundError" not in refused.said()
        assert "Traceback" not in refused.said()


def test_the_complete_job_with_the_wheel_and_killed_workers(
    cluster: SparkCluster, bare_python: Path, zipped: Path, job: StoredJob, workload: Workload
) -> None:
    command = cluster.submitted("--py-files", str(zipped), python=bare_python)
    with RunningProcess([*command, *job.options("--trigger", "2 seconds")], job.said("whole")) as running:
        running.await_(lambda: "Loading" in running.said() or "Starting checkpoint" in running.said())
        cluster.kill_worker("worker-1")
        running.await_(lambda: "Starting checkpoint" in running.said())
        workload.more()
        job.verify()
        cluster.add_worker("worker-3")
        cluster.kill_worker("worker-2")
        workload.more()
        job.verify()
        job.printed("stop")
        assert running.ended() == 0
        assert "Stopped between two batches" in running.said()
