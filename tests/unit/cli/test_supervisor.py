"""The supervisor of many jobs, with small programs in place of these: restarts, signals, what they say, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from offsetstream.cli.process import stop_on_signal
from offsetstream.cli.run import ClusterJob, Supervisor
from offsetstream.progress import LINE_START
from testkit.processes import OFFSETSTREAM, RunningProcess, descendants, is_alive, offsetstream
from testkit.waiting import SECONDS, await_

WAITS = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("at work", flush=True)
signal.sigwait([signal.SIGTERM])
sys.exit({})
"""
COUNTS = """
import pathlib, sys
runs = pathlib.Path({file!r})
runs.write_text((runs.read_text() if runs.exists() else "") + "x")
print("run", len(runs.read_text()), file=sys.stderr)
sys.exit({code} if len(runs.read_text()) < {runs} else 0)
"""


def job(name: str, program: str, *, runs_until_stopped: bool = True) -> ClusterJob:
    return ClusterJob(name, [sys.executable, "-c", program], runs_until_stopped)


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines, with their level but without their time."""
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if not LINE_START.match(line)] == []
    return [line.partition(" ")[2] for line in lines]


def test_failed_job_restarts_after_growing_pauses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failing = job("a", COUNTS.format(file=str(tmp_path / "runs"), code=7, runs=4))
    assert Supervisor([failing], first_pause=0.01).run() == []
    assert said(capsys) == [
        "INFO  a: run 1",
        "ERROR a: the job ended with exit code 7; restarting it in 0.01 s",
        "INFO  a: run 2",
        "ERROR a: the job ended with exit code 7; restarting it in 0.02 s",
        "INFO  a: run 3",
        "ERROR a: the job ended with exit code 7; restarting it in 0.04 s",
        "INFO  a: run 4",
    ]


@pytest.mark.parametrize(("code", "runs_until_stopped"), [(2, True), (1, False)])
def test_job_with_wrong_usage_or_once_is_not_restarted(
    capsys: pytest.CaptureFixture[str], code: int, runs_until_stopped: bool
) -> None:
    jobs = [
        job("a", f"raise SystemExit({code})", runs_until_stopped=runs_until_stopped),
        job("b", "print('done')", runs_until_stopped=runs_until_stopped),
    ]
    assert Supervisor(jobs).run() == [f"a (exit code {code})"]
    assert sorted(said(capsys)) == [f"ERROR a: the job ended with exit code {code}", "INFO  b: done"]


def test_log_lines_keep_their_time_and_level(capsys: pytest.CaptureFixture[str]) -> None:
    says = "print('2026-11-28T20:15:03.123Z WARN  by the job'); print('by Java')"
    Supervisor([job("a", says, runs_until_stopped=False)]).run()
    first, second = capsys.readouterr().err.splitlines()
    assert first == "2026-11-28T20:15:03.123Z WARN  a: by the job"
    assert re.fullmatch(LINE_START.pattern + "a: by Java", second)


def test_json_lines_stay_json(capsys: pytest.CaptureFixture[str]) -> None:
    says = """print('{"level": "info", "message": "by the job"}'); print("by Java"); raise SystemExit(2)"""
    failing = ClusterJob("a", [sys.executable, "-c", says], runs_until_stopped=True, as_json=True)
    assert Supervisor([failing]).run() == ["a (exit code 2)"]
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["cluster"], line["level"], line["message"]) for line in lines] == [
        ("a", "info", "by the job"),
        ("a", "info", "by Java"),
        ("a", "error", "the job ended with exit code 2"),
    ]


def test_killed_job_restarts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    killed = f"import os, pathlib; file = pathlib.Path({str(tmp_path / 'killed')!r})\n"
    killed += "if not file.exists(): file.touch(); os.kill(os.getpid(), 9)"
    assert Supervisor([job("a", killed)], first_pause=0.01).run() == []
    assert said(capsys) == ["ERROR a: the job ended with SIGKILL; restarting it in 0.01 s"]


def test_child_that_keeps_a_killed_jobs_output_open_is_killed_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a Java would that does not see that its driver is gone."""
    monkeypatch.setattr("offsetstream.cli.run._DRAIN_SECONDS", 0.2)
    pid = tmp_path / "pid"
    leaves = "import os, pathlib, subprocess, sys\n"
    leaves += "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
    leaves += f"pathlib.Path({str(pid)!r}).write_text(str(left.pid)); os.kill(os.getpid(), 9)"
    assert Supervisor([job("a", leaves, runs_until_stopped=False)]).run() == ["a (SIGKILL)"]
    await_(lambda: not is_running(int(pid.read_text())))
    assert said(capsys) == ["ERROR a: the job ended with SIGKILL"]


def is_running(pid: int) -> bool:
    """Whether a process is more than one that nobody has taken leave of."""
    return is_alive(pid) and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("code", [0, 5])
def test_stop_waits_for_all_jobs(capfd: pytest.CaptureFixture[str], code: int) -> None:
    supervisor, heard = Supervisor([job("a", WAITS.format(0)), job("b", WAITS.format(code))]), ""
    failed: list[list[str]] = []
    thread = threading.Thread(target=lambda: failed.append(supervisor.run()))
    thread.start()

    def both_work() -> bool:
        nonlocal heard
        heard += capfd.readouterr().err
        return heard.count("at work") == 2

    await_(both_work)
    supervisor.stop()
    thread.join()
    assert failed == [[f"b (exit code {code})"] if code else []]


def test_signal_that_does_not_wake_the_waiting_thread_is_handled(capfd: pytest.CaptureFixture[str]) -> None:
    """As one that comes just before the main thread waits, or to another thread: then nothing interrupts the wait."""
    supervisor, ended, in_time = Supervisor([job("a", WAITS.format(0))]), threading.Event(), list[bool]()

    def signal_once_at_work() -> None:
        await_(lambda: "at work" in capfd.readouterr().err)
        os.kill(os.getpid(), signal.SIGTERM)
        in_time.append(ended.wait(SECONDS))
        supervisor.stop()

    other = threading.Thread(target=signal_once_at_work)
    other.start()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # so that the other thread gets it
    try:
        with stop_on_signal(supervisor.stop):
            assert supervisor.run() == []
    finally:
        ended.set()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        other.join()
    assert in_time == [True]


def test_no_job_starts_after_stop(capsys: pytest.CaptureFixture[str]) -> None:
    supervisor = Supervisor([job("a", "print('never')")])
    supervisor.stop()
    assert (supervisor.run(), said(capsys)) == ([], [])


SETTINGS = """
tables = "{folder}/tables"
[run]
checkpoint = "{folder}/checkpoints"
[clusters.a]
bootstrap-server = "127.0.0.1:1"
[clusters.b]
{b}
"""


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[RunningProcess]:
    """The command, over two clusters whose jobs begin to wait for a broker that never answers."""
    file = tmp_path / "settings.toml"
    file.write_text(SETTINGS.format(folder=tmp_path, b='bootstrap-server = "127.0.0.1:2"'))
    with RunningProcess([*OFFSETSTREAM, "run", "--all-clusters", "--config", str(file)], tmp_path / "said") as running:
        running.await_(lambda: len(descendants(running.pid)) == 2)
        yield running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_all_jobs_with_exit_code_0(supervised: RunningProcess, number: signal.Signals) -> None:
    supervised.process.send_signal(number)
    assert supervised.ended() == 0, supervised.said()


@pytest.mark.long
def test_killed_supervisor_leaves_no_job_behind(supervised: RunningProcess) -> None:
    jobs = descendants(supervised.pid)
    assert len(jobs) == 2
    os.kill(supervised.pid, signal.SIGKILL)
    supervised.process.wait()
    await_(lambda: not any(map(is_alive, jobs)))


WRONG = [
    ((), "", "cluster b: Missing option '--bootstrap-server'"),
    (("--trigger", "often"), "", "cluster a: Invalid value for '--trigger'"),
    ((), "run.trigger = 'often'", "run.trigger: 'often' is not a valid interval"),
    (("--checkpoint", "x"), "", "--all-clusters takes --checkpoint of each cluster from the file: remove --ch"),
    (("--metrics-port", "9400"), "", "--all-clusters takes --metrics-port of each cluster from the file"),
    (("--cluster", "a"), "", "give --all-clusters or --cluster, not both"),
    (("--nonsense",), "", "No such option"),
]


@pytest.mark.parametrize(("more", "b", "words"), WRONG)
def test_wrong_options_are_reported_before_any_job_starts(
    tmp_path: Path, more: tuple[str, ...], b: str, words: str
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(SETTINGS.format(folder=tmp_path, b=b))
    refused = offsetstream("run", "--all-clusters", "--config", str(file), *more)
    assert (refused.returncode, refused.stdout, words in refused.stderr) == (2, "", True), refused.stderr


def test_the_supervisor_imports_no_spark() -> None:
    code = "import sys, offsetstream.cli.run; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pyspark", "duckdb", "confluent_kafka"} & set(shown.stdout.split())
