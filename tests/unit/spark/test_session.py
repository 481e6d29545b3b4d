"""How the session's JVM is started, without one."""

import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from offsetstream.spark import local


@pytest.mark.parametrize(("starts_java", "ends"), [(False, True), (True, False)])
def test_only_the_jvm_ignores_sigterm(starts_java: bool, ends: bool) -> None:
    """A job that is asked to stop while Spark starts hears it."""
    heard = list[int]()

    def hear(number: int, _frame: FrameType | None) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGTERM, hear)
    try:
        if starts_java:
            local._starts_java.set()
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"],
            stdin=subprocess.PIPE,
            preexec_fn=_as_pyspark_does,  # noqa: PLW1509 - it is how PySpark starts its JVM
        )
        signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
        child.terminate()
        child.communicate(b"\n")
        assert (child.returncode == -signal.SIGTERM) is ends
    finally:
        local._starts_java.clear()
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("starts_java", [False, True])
def test_what_the_jvm_prints_is_not_among_our_answers(capfd: pytest.CaptureFixture[str], starts_java: bool) -> None:
    """Delta's VACUUM of a catalog told its files before the JSON of `maintain`."""
    try:
        if starts_java:
            local._starts_java.set()
        command = [sys.executable, "-c", "print('Deleted 0 files')"]
        subprocess.Popen(command, preexec_fn=_as_pyspark_does).wait()  # noqa: PLW1509 - it is how PySpark does it
    finally:
        local._starts_java.clear()
    out, err = capfd.readouterr()
    assert (out, err) == (("", "Deleted 0 files\n") if starts_java else ("Deleted 0 files\n", ""))


def _as_pyspark_does() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


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


def test_ctrl_c_is_ours_all_through_the_start_of_spark() -> None:
    """PySpark's handler asks the JVM while another question is under way: both failed, with a traceback."""
    done = subprocess.run([sys.executable, "-c", _SIGINT_DURING_A_START], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_of_what_spark_has_itself_nothing_comes_before_it_on_the_class_path() -> None:
    jars = [
        Path(name) for name in ("kafka-clients-3.9.0.jar", "jackson-databind-2.13.5.jar", "delta-storage-4.4.0.jar")
    ]
    assert local.on_class_path(jars) == {
        "spark.driver.extraClassPath": "kafka-clients-3.9.0.jar:delta-storage-4.4.0.jar"
    }
