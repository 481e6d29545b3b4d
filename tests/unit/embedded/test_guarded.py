"""The guard, with processes of the system in place of brokers."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from offsetstream.embedded.guarded import GuardedProcesses
from offsetstream.errors import EnvironmentNotReadyError
from testkit.processes import await_gone, is_alive
from testkit.waiting import await_

PARENT = """
import time
from offsetstream.embedded.guarded import GuardedProcesses
guarded = GuardedProcesses()
print(guarded.start("sleeper", ["sleep", "600"], guarded.folder / "log"), guarded.folder, flush=True)
time.sleep(600)
"""


def test_runs_a_process_and_keeps_what_it_prints() -> None:
    guarded = GuardedProcesses()
    try:
        log = guarded.folder / "log"
        guarded.start("echo", ["echo", "hello"], log)
        await_(lambda: guarded.exit_code("echo") is not None, pause=0.01)
        assert guarded.exit_code("echo") == 0
        assert log.read_text() == "hello\n"
    finally:
        guarded.close()
    assert not guarded.folder.exists()


def test_terminates_within_the_grace_period_and_then_kills() -> None:
    guarded = GuardedProcesses()
    try:
        log = guarded.folder / "log"
        guarded.start("gentle", ["sleep", "600"], log)
        guarded.start("deaf", ["sh", "-c", "trap '' TERM; echo deaf; while true; do sleep 0.1; done"], log)
        await_(lambda: log.exists() and "deaf" in log.read_text(), pause=0.01)
        guarded.end(["gentle", "deaf"], grace_seconds=0.2)
        assert guarded.exit_code("gentle") == -signal.SIGTERM
        assert guarded.exit_code("deaf") == -signal.SIGKILL
    finally:
        guarded.close()


def test_a_command_that_does_not_start_is_an_error() -> None:
    guarded = GuardedProcesses()
    try:
        with pytest.raises(EnvironmentNotReadyError, match="No such file"):
            guarded.start("nothing", [str(guarded.folder / "nothing")], guarded.folder / "log")
    finally:
        guarded.close()
    with pytest.raises(EnvironmentNotReadyError, match="closed"):
        guarded.exit_code("nothing")


def test_process_and_folder_end_with_a_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent, parent.stdout:
        pid, folder = parent.stdout.readline().split()
        assert is_alive(int(pid))
        assert Path(folder).is_dir()
        os.kill(parent.pid, signal.SIGKILL)
    await_gone(int(pid), Path(folder))
