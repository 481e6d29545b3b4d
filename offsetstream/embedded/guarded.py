"""The parent's side of the guard: processes in a folder that both vanish with this process, however it ends."""

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

    Methods raise EnvironmentNotReadyError where the guard or a process does not start.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # one request at a time
        # By its file, isolated: it starts in 20 ms and wherever offsetstream was imported from.
        # A session of its own: Ctrl-C at the terminal reaches this process first, and the brokers by it.
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.folder = Path(self._read()["folder"])

    def start(self, name: str, command: Sequence[str], log: Path) -> int:
        """Start a process with its output appended to `log`; its pid."""
        return int(self._ask({"start": name, "command": list(command), "log": str(log)})["pid"])

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of a process; None while it runs."""
        code = self._ask({"poll": [name]})["exits"][name]
        return None if code is None else int(code)

    def end(self, names: Sequence[str], grace_seconds: float) -> None:
        """Terminate processes, all at once, and kill those that are still there after the grace."""
        self._ask({"end": list(names), "grace_seconds": grace_seconds})

    def close(self) -> None:
        """Kill all processes and remove the folder: what the guard does when its input ends."""
        with self._lock:
            self._guard.communicate()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if self._guard.stdin is None or self._guard.stdin.closed:
                raise EnvironmentNotReadyError("The embedded Kafka is closed: start another")
            try:
                self._guard.stdin.write(json.dumps(request) + "\n")
                self._guard.stdin.flush()
            except BrokenPipeError as error:
                raise EnvironmentNotReadyError(
                    "The guard process of the embedded Kafka was ended by someone, and the brokers with it: start anew"
                ) from error
            return self._read()

    def _read(self) -> dict[str, Any]:
        line = self._guard.stdout.readline() if self._guard.stdout is not None else ""
        answer: dict[str, Any] = json.loads(line) if line else {"error": "it ended; its words are above"}
        if "error" in answer:
            raise EnvironmentNotReadyError(f"The guard process of the embedded Kafka failed: {answer['error']}")
        return answer
