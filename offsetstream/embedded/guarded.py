"""The parent's side of the guard: processes and their folder end with this process, even if it is killed."""

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from offsetstream.embedded import guard
from offsetstream.errors import EnvironmentNotReadyError


class GuardedProcesses:
    """A guard process (see `guard`), its folder, and the named processes that it runs there.

    Methods raise EnvironmentNotReadyError if the guard or a process does not start.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # one request at a time
        # Run the file in isolated mode: it starts in 20 ms, from wherever offsetstream was imported.
        # A new session: Ctrl-C in the terminal reaches only this process, which then ends the brokers.
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.folder = Path(self._read()["folder"])

    def start(self, name: str, command: Sequence[str], log: Path) -> int:
        """Start a process, append its output to `log`, and return its pid."""
        return int(self._ask({"start": name, "command": list(command), "log": str(log)})["pid"])

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of a process, None while it runs."""
        code = self._ask({"poll": [name]})["exits"][name]
        return None if code is None else int(code)

    def end(self, names: Sequence[str], grace_seconds: float) -> None:
        """Terminate processes in parallel, and kill those that still run after the grace period."""
        self._ask({"end": list(names), "grace_seconds": grace_seconds})

    def close(self) -> None:
        """Kill all processes and remove the folder, by closing the guard's input."""
        with self._lock:
            self._guard.communicate()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if self._guard.stdin is None or self._guard.stdin.closed:
                raise EnvironmentNotReadyError("The embedded Kafka is closed. Start a new one")
            try:
                self._guard.stdin.write(json.dumps(request) + "\n")
                self._guard.stdin.flush()
            except BrokenPipeError as error:
                raise EnvironmentNotReadyError(
                    "Somebody ended the guard process of the embedded Kafka, and the brokers with it. Start again"
                ) from error
            return self._read()

    def _read(self) -> dict[str, Any]:
        line = self._guard.stdout.readline() if self._guard.stdout is not None else ""
        answer: dict[str, Any] = json.loads(line) if line else {"error": "it ended; see its output above"}
        if "error" in answer:
            raise EnvironmentNotReadyError(f"The guard process of the embedded Kafka failed: {answer['error']}")
        return answer
