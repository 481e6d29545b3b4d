"""The jobs of many clusters: a process for each, with a Spark of its own, so that an outage stays where it is.

A job that ends with an error is started again after a pause; one that was called in a way that cannot work is not.
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

from offsetstream.cli.tell import tell
from offsetstream.errors import UsageError

# With this in its environment a job ends between two batches when its standard input does: its supervisor is gone.
SUPERVISED = "OFFSETSTREAM_SUPERVISED"
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds
_LONG = 600.0  # seconds: who ran for so long is started again after the first pause
_HEARS_SECONDS = 1.0  # after which a signal is seen at the latest
_LEFT_SECONDS = 10.0  # that a Java may take to see that its driver was killed


@dataclass(frozen=True)
class ClusterJob:
    """The job of a cluster: its name, what starts its process, whether it goes on until it is stopped.

    `as_json`: what it says are objects of JSON, and stay such.
    """

    name: str
    command: Sequence[str]
    goes_on: bool
    as_json: bool = False


class Supervisor:
    """Runs the jobs until all have ended; `stop`, also in a handler of signals, ends them between two batches."""

    def __init__(self, jobs: Sequence[ClusterJob], first_pause: float = _FIRST_PAUSE) -> None:
        self._jobs = jobs
        self._first_pause = first_pause
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._lock = threading.RLock()  # a handler may come while a handler waits for it
        self._stopping = threading.Event()
        self._failed: dict[str, str] = {}

    def run(self) -> list[str]:
        """Return, in the order of the jobs, which ended with an error, and how."""
        threads = [threading.Thread(target=self._supervise, args=[job], daemon=True) for job in self._jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            # Who waits for ever here may not hear of a signal that comes just before, or to another thread (CPython).
            while thread.is_alive():
                thread.join(_HEARS_SECONDS)
        return [f"{job.name} ({self._failed[job.name]})" for job in self._jobs if job.name in self._failed]

    def stop(self) -> None:
        """Ask all jobs to end, and start none any more."""
        self._stopping.set()
        with self._lock:
            for process in self._running.values():
                process.terminate()

    def _supervise(self, job: ClusterJob) -> None:
        pause = self._first_pause
        while True:
            began = time.monotonic()
            code = self._run_once(job)
            if code == 0:
                self._failed.pop(job.name, None)
                return
            how = self._failed[job.name] = _how(code)
            if code == UsageError.exit_code or not job.goes_on or self._stopping.is_set():
                _say(job, f"ended with {how}")
                return
            pause = self._first_pause if time.monotonic() - began > _LONG else pause
            _say(job, f"ended with {how}; it is started again in {pause:g} s")
            if self._stopping.wait(pause):
                return
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _run_once(self, job: ClusterJob) -> int:
        """Run it to its end; 0 where it was asked to end before it began to work."""
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
                process_group=0,  # Ctrl-C at the terminal reaches the supervisor, and the jobs by it
            )
            self._running[job.name] = process
        reading = threading.Thread(target=_pass_on, args=[job, process], daemon=True)
        reading.start()
        code = process.wait()
        with self._lock:
            del self._running[job.name]
        reading.join(_LEFT_SECONDS)
        if reading.is_alive():  # a process of the job's holds its output open
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            reading.join(_LEFT_SECONDS)
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
        tell(f"{start.group()}{named}" if start else text_line(level, named))
        return
    with suppress(ValueError):
        told = json.loads(line)
        if isinstance(told, dict):
            tell(json.dumps({**told, "cluster": job.name}, ensure_ascii=False))
            return
    tell(json_line(level, line, {"cluster": job.name}))


def _close(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _how(code: int) -> str:
    return f"exit code {code}" if code > 0 else signal.Signals(-code).name
