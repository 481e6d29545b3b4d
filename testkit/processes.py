"""Starts, observes and ends the processes of tests: commands as users run them, the job, servers.

Each process ends with its `with`, even if the test fails. `testkit.plugin` ends leftovers.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import click
from click.testing import CliRunner

from offsetstream.cli.main import main
from offsetstream.embedded.guarded import GuardedProcesses
from testkit.waiting import await_

OFFSETSTREAM = (sys.executable, "-m", "offsetstream")
Done = subprocess.CompletedProcess[str]
JAVAS_LINE = "WARNING: Using incubator modules: jdk.incubator.vector"  # Java prints this whenever PySpark starts it
FAILURES = Path(__file__).parents[1] / "build" / "failures"
_LINES, _FIRST, _COLUMNS = 60, 15, 300
_SESSION = 3  # index among the fields after the name in /proc/<pid>/stat (proc(5))


def offsetstream(
    *arguments: str | bytes, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Done:
    """Run a command, and return its output and exit code. `environment` is added to the tests' own.

    It removes what Java prints while PySpark starts it, since that comes before or after the command's own output.
    """
    command, env = [*OFFSETSTREAM, *arguments], {**os.environ, **(environment or {})}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=env, cwd=cwd, check=False)
    said = [line for line in done.stderr.decode().splitlines(keepends=True) if line.strip() != JAVAS_LINE]
    return Done(done.args, done.returncode, done.stdout.decode(), "".join(said))


def printed(*arguments: str | bytes, environment: Mapping[str, str] | None = None) -> str:
    """Return a command's output; AssertionError with the output if it fails."""
    done = offsetstream(*arguments, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def within(*arguments: str) -> Done:
    """Run a command inside this process, which saves startup time; it must not start Spark."""
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Done(arguments, result.exit_code, result.stdout, result.stderr)


class RunningProcess:
    """A command in a session of its own. The end of `with` kills it; its output goes to the file `said`."""

    def __init__(
        self, command: Sequence[str], said: Path, environment: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self._said = said
        with said.open("w") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                cwd=cwd,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        return self._said.read_text()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the driver and its JVM, which are one process group."""
        os.killpg(self.pid, number)

    def kill(self) -> None:
        """SIGKILL the driver and its JVM in one system call, and wait until they are gone."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()
        await_(lambda: not session(self.pid))

    def await_(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; AssertionError with the last output if it never does or the process ends."""

        def runs() -> None:
            assert self.process.poll() is None, f"it ended with {self.process.poll()}\n{end_of(self._said)}"

        await_(condition, lambda: end_of(self._said), meanwhile=runs)

    def ended(self) -> int:
        """Wait until the process ends, and return its exit code. AssertionError with the output if it never ends."""
        await_(lambda: self.process.poll() is not None, lambda: end_of(self._said))
        return int(self.process.returncode)


class JobProcess(RunningProcess):
    """`offsetstream run` on tables and checkpoints in a folder; its output goes to a file next to the folder.

    `tables` names the tables if they are elsewhere.
    """

    def __init__(
        self,
        bootstrap_server: str,
        folder: Path,
        *options: str,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        tables: str | None = None,
    ) -> None:
        places = ("--tables", tables or str(folder / "tables"), "--checkpoint", str(folder / "checkpoints"))
        command = [*OFFSETSTREAM, "run", "--bootstrap-server", bootstrap_server, *places, *options]
        super().__init__(command, folder.with_name(f"{folder.name}-said.txt"), environment, cwd)


class ServerProcess:
    """Servers in a temporary folder. All end with the `with`, or with the process that started them."""

    def __init__(self) -> None:
        self._processes = GuardedProcesses()
        self.folder = self._processes.folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.close()

    def start(self, name: str, command: Sequence[str], answers: Callable[[], bool]) -> int:
        """Start a server, wait until it answers, and return its pid; AssertionError with its output if it ends."""
        pid = self._processes.start(name, command, self._log(name))

        def runs() -> None:
            assert self._processes.exit_code(name) is None, f"{name} has ended\n{self._end_of(name)}"

        await_(answers, lambda: self._end_of(name), meanwhile=runs)
        return pid

    def end(self, name: str, grace_seconds: float = 0.0) -> None:
        self._processes.end([name], grace_seconds)

    def said(self, name: str) -> str:
        return self._log(name).read_text(errors="replace")

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _end_of(self, name: str) -> str:
        return end_of(self._log(name), goes=True)


def is_alive(pid: int) -> bool:
    """Return whether a process runs. A zombie does not: a container without an init never reaps it."""
    try:
        return _status(Path(f"/proc/{pid}"))[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process (Linux)."""
    children = [
        int(child) for tasks in Path(f"/proc/{pid}/task").glob("*/children") for child in tasks.read_text().split()
    ]
    return [found for child in children for found in (child, *descendants(child))]


def session(leader: int) -> dict[int, str]:
    """Return pid and command line of the processes in the session of a process, even if that has ended."""
    return {pid: command for pid, command, fields in _processes() if int(fields[_SESSION - 1]) == leader}


def started_with(variable: str) -> dict[int, str]:
    """Return pid and command line of the processes that were started with `NAME=value` in their environment."""
    return {pid: command for pid, command, _ in _processes() if variable.encode() in _environment(pid)}


def _processes() -> Iterator[tuple[int, str, list[str]]]:
    """Yield pid, command line and status (the fields from the state on) of all processes that this user may read."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):  # it ended, or is another user's
            state, *fields = _status(folder)
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if state != "Z":
                yield int(folder.name), command[:300], fields


def _status(folder: Path) -> list[str]:
    return (folder / "stat").read_text().rpartition(")")[2].split()


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def await_gone(pid: int, folder: Path) -> None:
    """Wait until process and folder are gone; AssertionError if they stay."""
    await_(lambda: not is_alive(pid) and not folder.exists())


def leaves(command: click.Command, path: Sequence[str]) -> Iterator[tuple[list[str], click.Command]]:
    """Yield each command that is not a group, with its words; they begin with `path`."""
    if not isinstance(command, click.Group):
        yield list(path), command
        return
    ctx = click.Context(command, parent=click.Context(main))
    for name in command.list_commands(ctx):
        child = command.get_command(ctx, name)
        assert child is not None
        yield from leaves(child, [*path, name])


def end_of(file: Path, *, goes: bool = False) -> str:
    """Return the last lines of a file, and its path. A file that `goes` (deleted after the test) is copied first."""
    if not file.exists():
        return f"{file.name}: there is no such file"
    text = file.read_text(errors="replace")
    if goes:
        FAILURES.mkdir(parents=True, exist_ok=True)
        file = Path(shutil.copy(file, tempfile.mkdtemp(prefix=f"{file.stem}-", dir=FAILURES)))
    lines = _narrow(text.splitlines())
    return "\n".join([f"the last of {len(lines)} lines of {file}:", *lines[-_LINES:]])


def page(text: str, name: str) -> str:
    """Return the text. Of a long text return start and end, and write all of it to a file of that name."""
    lines = text.splitlines()
    if len(lines) <= _LINES and _narrow(lines) == lines:
        return text
    FAILURES.mkdir(parents=True, exist_ok=True)
    file = FAILURES / f"{re.sub(r'[^A-Za-z0-9.]+', '-', name)[-150:]}.txt"
    file.write_text(text, errors="replace")
    narrow = _narrow(lines)
    if len(narrow) > _LINES:
        narrow[_FIRST : len(narrow) + _FIRST - _LINES] = [f"... {len(narrow) - _LINES} lines ..."]
    return "\n".join([*narrow, f"... all of it: {file}"])


def _narrow(lines: list[str]) -> list[str]:
    return [line if len(line) <= _COLUMNS else f"{line[:_COLUMNS]} ... {len(line)} characters" for line in lines]
