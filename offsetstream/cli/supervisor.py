"""Supervise the jobs of many clusters: one process with its own Spark for each, so that outages stay separate.

A job that fails is restarted after a pause, except when its usage was wrong.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from offsetstream.cli.messages import print_line
from offsetstream.errors import UsageError

# A job with this in its environment stops between two batches when its standard input closes: its supervisor is gone.
SUPERVISED = "OFFSETSTREAM_SUPERVISED"
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds
_STABLE_SECONDS = 600.0  # a job that ran this long restarts after the first pause again
_SIGNAL_SECONDS = 1.0  # a signal is handled within this time
_DRAIN_SECONDS = 10.0  # a Java may need this long to notice that its driver was killed


@dataclass(frozen=True)
class ClusterJob:
    """The job of a cluster: its name, the command that starts its process, and whether it runs until stopped.

    `as_json` means that its lines are JSON objects and stay JSON objects.
    """

    name: str
    command: Sequence[str]
    runs_until_stopped: bool
    as_json: bool = False


class Supervisor:
    """Runs the jobs until all have ended. `stop`, which a signal handler may call, stops them between two batches."""

    def __init__(self, jobs: Sequence[ClusterJob], first_pause: float = _FIRST_PAUSE) -> None:
        self._jobs = jobs
        self._first_pause = first_pause
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._lock = threading.RLock()  # reentrant: a signal handler may interrupt another one that holds it
        self._stopping = threading.Event()
        self._failed: dict[str, str] = {}

    def run(self) -> list[str]:
        """Run all jobs to their end. Return the failed ones, each with its exit code or signal."""
        threads = [threading.Thread(target=self._supervise, args=[job], daemon=True) for job in self._jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            # Without a timeout, CPython may never handle a signal that arrives just before, or in another thread.
            while thread.is_alive():
                thread.join(_SIGNAL_SECONDS)
        return [f"{job.name} ({self._failed[job.name]})" for job in self._jobs if job.name in self._failed]

    def stop(self) -> None:
        """Ask all jobs to stop, and start no more."""
        self._stopping.set()
        with self._lock:
            for process in self._running.values():
                process.terminate()

    def _supervise(self, job: ClusterJob) -> None:
        pause = self._first_pause
        while True:
            started = time.monotonic()
            code = self._run_once(job)
            if code == 0:
                self._failed.pop(job.name, None)
                return
            how = self._failed[job.name] = _how(code)
            if code == UsageError.exit_code or not job.runs_until_stopped or self._stopping.is_set():
                _say(job, f"the job ended with {how}")
                return
            pause = self._first_pause if time.monotonic() - started > _STABLE_SECONDS else pause
            _say(job, f"the job ended with {how}; restarting it in {pause:g} s")
            if self._stopping.wait(pause):
                return
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _run_once(self, job: ClusterJob) -> int:
        """Run the process to its end and return its exit code; 0 if `stop` ended it before it started to work."""
        with self._lock:
            if self._stopping.is_set():
                return 0
            process = subprocess.Popen(
                job.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env={**os.environ, SUPERVISED: "1"},
                process_group=0,  # Ctrl-C in the terminal reaches only the supervisor, which stops the jobs
            )
            self._running[job.name] = process
        reading = threading.Thread(target=_pass_on, args=[job, process], daemon=True)
        reading.start()
        code = process.wait()
        with self._lock:
            del self._running[job.name]
        reading.join(_DRAIN_SECONDS)
        if reading.is_alive():  # a child of the job keeps its output open
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            reading.join(_DRAIN_SECONDS)
        with suppress(OSError):
            _close(process)
        return 0 if code == -signal.SIGTERM and self._stopping.is_set() else code


def _pass_on(job: ClusterJob, process: subprocess.Popen[str]) -> None:
    """Write each line of a job with its name. If nobody reads them any more, continue: the job must not wait."""
    for line in process.stdout or ():
        with suppress(OSError):
            _say(job, line.rstrip("\n"), "info")


def _say(job: ClusterJob, line: str, level: str = "error") -> None:
    """Write a line with the name of the job's cluster: after time and level, or as a key of the JSON object.

    Lines that are no log lines, such as Java's, become log lines of `level`.
    """
    from offsetstream.progress import LINE_START, json_line, text_line  # noqa: PLC0415 - --help needs none of it

    if not job.as_json:
        start = LINE_START.match(line)
        named = f"{job.name}: {line[start.end() :] if start else line}"
        print_line(f"{start.group()}{named}" if start else text_line(level, named))
        return
    with suppress(ValueError):
        fields = json.loads(line)
        if isinstance(fields, dict):
            print_line(json.dumps({**fields, "cluster": job.name}, ensure_ascii=False))
            return
    print_line(json_line(level, line, {"cluster": job.name}))


def _close(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _how(code: int) -> str:
    return f"exit code {code}" if code > 0 else signal.Signals(-code).name
