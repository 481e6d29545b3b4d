"""Servers that tests run and Maven does not have: of the Go module proxy and npm, of fixed versions, installed once.

They lie in the folder of downloads, beside the jars. What is missing on the machine is an error, never a skipped test.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from offsetstream.embedded.artifacts import cache_folder
from offsetstream.errors import EnvironmentNotReadyError


def go_program(module: str, version: str) -> Path:
    """Return the program of a Go module, built the first time, which takes minutes.

    Raises EnvironmentNotReadyError where Go is missing, or the module cannot be had.
    """
    name = module.rpartition("/")[2]

    def install(folder: Path) -> None:
        command = ["go", "install", "-trimpath", "-ldflags=-s -w", f"{module}@{version}"]
        _run(command, "Go 1.26 or later (Debian's package golang)", {"GOBIN": str(folder)})

    return _installed(f"{name}-{version}", install) / name


def npm_program(package: str, version: str, script: str) -> list[str]:
    """Return the command that runs a script of an npm package, installed the first time; errors as of `go_program`."""

    def install(folder: Path) -> None:
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev")
        _run(["npm", "install", *options, "--prefix", str(folder), f"{package}@{version}"], "Node.js 20 with npm")

    return ["node", str(_installed(f"{package}-{version}", install) / "node_modules" / package / script)]


def _installed(name: str, install: Callable[[Path], None]) -> Path:
    """Return the folder of a program; of several processes one installs it, in a folder that then takes its name."""
    folder = cache_folder() / "programs" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
            try:
                install(unfinished)
                unfinished.rename(folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _run(command: Sequence[str], needs: str, environment: Mapping[str, str] | None = None) -> None:
    if shutil.which(command[0]) is None:
        raise EnvironmentNotReadyError(
            f"`{command[0]}`, which builds a server for the tests, is missing: install {needs}"
        )
    environment = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise EnvironmentNotReadyError(f"`{' '.join(command)}` failed ({last}): are the package registries reached?")
