"""With Kafka's classes renamed as in Databricks' runtime, the job logs in with the usual properties file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from offsetstream.embedded.artifacts import resolve
from offsetstream.spark.session import connectors
from tests.kafka.security.broker import Secured
from tests.kafka.security.shading import shaded

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[3]
RUNTIME = {"DATABRICKS_RUNTIME_VERSION": "17.3"}


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> str:
    return ",".join(map(str, shaded(resolve(connectors()), tmp_path_factory.mktemp("jars"))))


def submitted(secured: Secured, login: str, jars: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ours = {"PATH": path, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    program = [str(Path(__file__).with_name("runtime.py")), secured.servers[login], str(secured.files[login])]
    command = ["spark-submit", "--master", "local[2]", "--jars", jars, *program]
    return subprocess.run(
        command, env={**os.environ, **ours, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("login", ["scram-512", "oauth"])
def test_the_job_logs_in_with_renamed_kafka_classes(secured: Secured, jars: str, login: str) -> None:
    done = submitted(secured, login, jars, **RUNTIME)
    assert done.returncode == 0, done.stderr
    read, answers = (int(words.split()[1]) for words in done.stdout.splitlines()[-1].split(", "))
    assert (read > 0, answers) == (True, 50)


def test_login_with_renamed_classes_fails_without_the_runtimes_setting(secured: Secured, jars: str) -> None:
    done = submitted(secured, "scram-512", jars)
    assert done.returncode != 0
    assert "LoginModule" in done.stdout + done.stderr
