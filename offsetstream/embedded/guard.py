"""A guard process that ends the brokers when its parent dies. It imports only the standard library.

It creates the brokers' folder and starts the brokers as its children. When its standard input ends, which also happens
if the parent is killed, it kills them and removes the folder. Requests and answers are JSON lines:

    {"start": "broker-1", "command": ["java", ...], "log": "/…/broker-1.log"}  ->  {"pid": 123}
    {"poll": ["broker-1"]}                         ->  {"exits": {"broker-1": null}}  (null: it runs)
    {"end": ["broker-1"], "grace_seconds": 20}     ->  {"exits": {"broker-1": 143}}
"""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

Children = dict[str, subprocess.Popen[bytes]]


def main() -> None:
    """Serve requests until standard input ends or SIGTERM arrives. The first answer is the folder's path."""
    signal.signal(signal.SIGTERM, _exit)
    folder = tempfile.mkdtemp(prefix="offsetstream-kafka-")
    children: Children = {}
    try:
        _answer({"folder": folder})
        for line in sys.stdin:
            _answer(_serve(json.loads(line), children))
    except BrokenPipeError:
        pass  # the parent died before it got the answer
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end(children, list(children), grace_seconds=0)
        shutil.rmtree(folder, ignore_errors=True)


def _serve(request: dict[str, Any], children: Children) -> dict[str, Any]:
    try:
        if "start" in request:
            return {"pid": _start(children, request["start"], request["command"], request["log"])}
        if "end" in request:
            return {"exits": _end(children, request["end"], request["grace_seconds"])}
        return {"exits": {name: children[name].poll() for name in request["poll"]}}
    except (OSError, KeyError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _start(children: Children, name: str, command: Sequence[str], log: str) -> int:
    with Path(log).open("ab") as output:
        children[name] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=Path(log).parent
        )
    return children[name].pid


def _end(children: Children, names: Sequence[str], grace_seconds: float) -> dict[str, int | None]:
    """Terminate all if there is a grace period, kill those that still run after it, and return the exit codes."""
    if grace_seconds > 0:
        for name in names:
            children[name].terminate()
    deadline = time.monotonic() + grace_seconds
    for name in names:
        with contextlib.suppress(subprocess.TimeoutExpired):
            children[name].wait(max(0.0, deadline - time.monotonic()))
    for name in names:
        children[name].kill()
        children[name].wait()
    return {name: children[name].returncode for name in names}


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _exit(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(1)


if __name__ == "__main__":
    main()
