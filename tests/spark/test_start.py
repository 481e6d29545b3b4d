"""Java starts in parallel with the imports, and becomes Spark's only when a session is requested."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.processes import is_alive
from testkit.waiting import await_

ROOT = Path(__file__).parents[2]
_SIGINT_DURING_A_START = """
import signal, threading
from offsetstream.spark.local import local_session
from offsetstream.spark.session import ending

signal.signal(signal.SIGINT, lambda *_: None)
ours, seen, ended = signal.getsignal(signal.SIGINT), set(), threading.Event()

def look():
    while not ended.wait(0.001):
        seen.add(signal.getsignal(signal.SIGINT))

threading.Thread(target=look).start()
try:
    with ending(local_session("local[1]")) as spark:
        assert spark.sql("SELECT 1 AS one").collect()[0].one == 1
        assert spark.getActiveSession() is spark
finally:
    ended.set()
print(seen == {ours})
"""


@pytest.mark.long
def test_ctrl_c_is_handled_by_us_during_the_whole_start_of_spark() -> None:
    """PySpark's handler asks the JVM while another request runs: both failed, with a traceback."""
    done = subprocess.run([sys.executable, "-c", _SIGINT_DURING_A_START], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


_NOT_WANTED = """
import time
from pyspark import SparkContext
from offsetstream.spark.local import LocalSpark

LocalSpark("local[1]", {"spark.driver.memory": "512m"})
deadline = time.monotonic() + 60
while SparkContext._gateway is None and time.monotonic() < deadline:
    time.sleep(0.05)
print(SparkContext._gateway.proc.pid, SparkContext._active_spark_context)
"""


def test_java_starts_before_a_session_is_requested_and_ends_with_the_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _NOT_WANTED],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    pid, context = done.stdout.split()
    assert context == "None"
    await_(lambda: not is_alive(int(pid)))
    assert list(tmp_path.glob("offsetstream-spark-*")) == []


_WITH_SPARK = """
from offsetstream.spark.local import local_session

def test_it():
    assert local_session("local[1]").sql("SELECT 1 AS one").collect()[0].one == 1
"""


@pytest.mark.long
def test_a_session_of_tests_without_workers_ends_its_spark(tmp_path: Path) -> None:
    """The JVM was killed as a leftover, and the session failed for it, though all tests had passed."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["testkit.plugin"]\n', "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    (tmp_path / "test_spark.py").write_text(_WITH_SPARK, "utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "base"), "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "left process" in done.stdout) == (0, False), done.stdout


_WITH_THE_LEAST_MEMORY = """
from offsetstream.spark.local import LocalSpark
from offsetstream.spark.settings import LEAST_MEMORY

with LocalSpark("local[1]", {"spark.driver.memory": LEAST_MEMORY}).running() as spark:
    print(LEAST_MEMORY, spark.sql("SELECT 1 AS one").collect()[0].one)
"""


@pytest.mark.long
def test_spark_starts_with_the_least_memory_that_errors_name() -> None:
    command = [sys.executable, "-c", _WITH_THE_LEAST_MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "507m 1\n"), done.stderr
