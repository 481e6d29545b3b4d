"""The test kit: what a session of tests inherits, shows of a failure, waits for, and leaves behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testkit import waiting
from testkit.processes import RunningProcess, is_alive, session
from testkit.waiting import await_

ROOT = Path(__file__).parents[2]
IGNORING = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
FAILING = '''
"""Tests that fail on purpose."""
import signal, subprocess, sys
from pathlib import Path
import pytest
from testkit.processes import RunningProcess

SLEEPER = [sys.executable, "-c", "import time; print('line\\\\n' * 9_999, 'the end', flush=True); time.sleep(1000)"]

def test_a_process_that_is_awaited(tmp_path):
    with RunningProcess(SLEEPER, tmp_path / "said.txt") as running:
        running.await_(lambda: running.said().endswith("the end\\n"))
        Path("awaited").write_text(str(running.pid))
        assert "something else" in running.said()

def test_a_process_that_is_left():
    process = subprocess.Popen(["sleep", "1000"])
    Path("left").write_text(str(process.pid))
    process.returncode = 0  # or Python warns of it

def test_a_child_hears_ctrl_c():
    shown = subprocess.run(["grep", "SigIgn", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    assert not int(shown.split()[1], 16) & 1 << signal.SIGINT - 1

def test_what_is_printed():
    print("\\n".join(f"line {number} {'x' * 900}" for number in range(1000)))
    pytest.fail("it fails")
'''


def test_a_failing_session_shows_pages_and_ends_its_processes(tmp_path: Path) -> None:
    """Its parent ignores Ctrl-C, like the one of `nohup make test`."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["testkit.plugin"]\n', "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    (tmp_path / "test_failing.py").write_text(FAILING, "utf-8")
    pytest_ = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "base"), "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OFFSETSTREAM_TEST_PATIENCE": "0.05"}
    command = [sys.executable, "-c", IGNORING, *pytest_]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert re.search(r"^=+ 2 failed, 2 passed in ", done.stdout, re.MULTILINE), done.stdout
    awaited, left = (int((tmp_path / name).read_text()) for name in ("awaited", "left"))
    assert not session(awaited)
    assert not is_alive(left)
    assert f"A test left process {left}, which is killed now: sleep 1000" in done.stdout
    assert len(done.stdout.splitlines()) < 200
    assert max(map(len, done.stdout.splitlines())) < 400
    wholes = [Path(found) for found in re.findall(r"all of it: (\S+)", done.stdout)]
    assert any(whole.read_text().count("x" * 900) == 1000 for whole in wholes)
    for whole in wholes:
        whole.unlink()


WAITING = """
import subprocess, sys
from pathlib import Path
from testkit.waiting import await_

def test_it():
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    Path("started").write_text(str(process.pid))
    await_(lambda: process.poll() is not None)
"""


def test_an_interrupted_session_ends_its_processes(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["testkit.plugin"]\n', "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    (tmp_path / "test_waiting.py").write_text(WAITING, "utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--basetemp",
        str(tmp_path / "base"),
        "-n",
        "1",
    ]
    environment = {"PYTHONPATH": str(ROOT), "OFFSETSTREAM_TEST_PATIENCE": "0.05"}
    with RunningProcess([*command, "."], tmp_path / "said.txt", environment, tmp_path) as running:
        started = tmp_path / "started"
        running.await_(lambda: started.exists() and started.read_text() != "")
        running.process.terminate()
        # An impatient user interrupts again: what the session then leaves, nobody ends.
        await_(lambda: running.process.poll() is not None, meanwhile=running.process.terminate)
        assert running.ended() != 0
        assert "which is killed now: sleep 1000" in running.said()
    assert not is_alive(int(started.read_text()))


def test_a_failed_wait_names_its_condition_and_the_last_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SECONDS", 0.01)
    found = {"orders": 7}
    with pytest.raises(AssertionError) as failed:
        await_(lambda: "orders" in found and len(found) == 2, lambda: "so says the job", pause=0.001)
    assert str(failed.value).splitlines() == [
        "Waited 0 s in vain for: 'orders' in found and len(found) == 2",
        "  last seen: found = {'orders': 7}",
        "  last seen: len(found) = 1",
        "so says the job",
    ]


def test_a_hopeless_wait_ends_early() -> None:
    def ended() -> None:
        raise AssertionError("it has ended")

    begun = time.monotonic()
    with pytest.raises(AssertionError, match="it has ended"):
        await_(lambda: False, meanwhile=ended)
    assert time.monotonic() - begun < waiting.SECONDS / 2
