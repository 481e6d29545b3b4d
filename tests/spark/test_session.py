"""A user's settings override the job's, wherever they are set. Each session needs a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from offsetstream.cluster.login import java_plugins
from offsetstream.embedded.artifacts import resolve
from offsetstream.spark.session import connectors
from offsetstream.spark.settings import PREFERRED
from testkit.processes import JAVAS_LINE

pytestmark = pytest.mark.long

SHOWN = (
    "spark.sql.shuffle.partitions",
    "spark.databricks.delta.snapshotPartitions",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.session.timeZone",
    "spark.driver.memory",
    "spark.app.of.user",
)
SHOW = """
import json
from offsetstream.spark import local, session
spark = %s
print(json.dumps({name: spark.conf.get(name, None) for name in %r}))
"""
DEFAULTS = """
spark.sql.shuffle.partitions             7
spark.databricks.delta.snapshotPartitions=3
spark.sql.session.timeZone               Asia/Tokyo
spark.driver.memory                      1g
spark.app.of.user                        of spark-defaults
"""


def shown(command: list[str], folder: Path) -> dict[str, Any]:
    (folder / "spark-defaults.conf").write_text(DEFAULTS)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        check=False,
        env=os.environ | {"PATH": path, "SPARK_CONF_DIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def won(found: dict[str, Any]) -> None:
    assert found == {
        "spark.sql.shuffle.partitions": "7",  # from spark-defaults.conf, not ours
        "spark.databricks.delta.snapshotPartitions": "5",  # from the command line, not from spark-defaults.conf
        "spark.sql.execution.arrow.maxRecordsPerBatch": PREFERRED["spark.sql.execution.arrow.maxRecordsPerBatch"],
        "spark.sql.session.timeZone": "UTC",  # without this the job would be wrong
        "spark.driver.memory": "1g",
        "spark.app.of.user": "of spark-defaults",
    }


def test_user_settings_win_in_our_own_session(tmp_path: Path) -> None:
    start = "local.local_session('local[1]', {'spark.databricks.delta.snapshotPartitions': '5'})"
    won(shown([sys.executable, "-c", SHOW % (start, SHOWN)], tmp_path))


def test_spark_finds_a_kafka_client_plugin(tmp_path: Path) -> None:
    name = "software.amazon.msk.auth.iam.IAMLoginModule"
    start = f"local.local_session('local[1]', plugins={java_plugins({'sasl.mechanism': 'AWS_MSK_IAM'})})"
    script = f"from offsetstream.spark import local\nspark = {start}\njvm = spark.sparkContext._jvm\n"
    script += f"loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()\nloader.loadClass('{name}')"
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_user_settings_win_in_a_spark_submit_session(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SHOW % ("session.submitted_session()", SHOWN))
    jars = ["--jars", ",".join(str(jar) for jar in resolve(connectors()))]
    conf = ["--conf", "spark.databricks.delta.snapshotPartitions=5"]
    won(shown(["spark-submit", "--master", "local[1]", *jars, *conf, str(script)], tmp_path))


def test_too_little_memory_of_spark_submit_is_refused_before_spark_starts(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("from offsetstream.spark import session\nsession.submitted_session()")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["spark-submit", "--master", "local[1]", "--driver-memory", "300m", str(script)],
        check=False,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,  # spark-submit prints both outputs of the script there
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 1
    assert "Start it with --driver-memory 507m or more" in done.stdout
    assert "INVALID_DRIVER_MEMORY" not in done.stdout


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_spark_errors_are_logged_in_the_chosen_format(tmp_path: Path, log_format: str) -> None:
    script = (
        "from offsetstream.spark import local\n"
        f"jvm = local.local_session('local[1]', log_format={log_format!r}).sparkContext._jvm\n"
        "log = jvm.org.slf4j.LoggerFactory.getLogger('org.apache.spark.Some')\n"
        "log.error('it says \"no\"\\n\\tand why', jvm.java.io.IOException('a \"disk\"'))\n"
        "log.error('alone')"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, cwd=tmp_path)
    said = [line for line in done.stderr.splitlines() if line != JAVAS_LINE]
    if log_format == "text":
        assert [line.partition(" ")[2] for line in said[:1]] == ['ERROR Some: it says "no"']
        assert said[1:3] == ["\tand why", 'java.io.IOException: a "disk"']
    else:
        first, second = (json.loads(line) for line in said)
        assert first["time"] <= second["time"]
        told = {"level": "error", "logger": "Some"}
        for each in (first, second):
            del each["time"]
        assert first == told | {"message": 'it says "no"\n\tand why: java.io.IOException: a "disk"'}
        assert second == told | {"message": "alone"}
