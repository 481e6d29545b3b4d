"""Installs programs for tests, once, from the Go module proxy, npm, PyPI and Debian: Maven does not have them.

All but Debian's have fixed versions, and are next to the jars in the folder of downloads. If the machine lacks a
program, the test fails: it is never skipped.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from offsetstream.embedded.artifacts import cache_folder
from offsetstream.errors import EnvironmentNotReadyError

_GO = "Go 1.26 or later (Debian's package golang)"


def go_program(module: str, version: str) -> Path:
    """Return the program of a Go module. The first call builds it, which takes minutes.

    Raises EnvironmentNotReadyError if Go is missing, or if the module is not available.
    """
    name = module.rpartition("/")[2]

    def install(folder: Path) -> None:
        command = ["go", "install", "-trimpath", "-ldflags=-s -w", f"{module}@{version}"]
        _run(command, _GO, {"GOBIN": str(folder)})

    return _installed(f"{name}-{version}", install) / name


def go_module(module: str, version: str) -> Path:
    """Return the folder of a Go module's source, in Go's own cache; errors as in `go_program`."""
    output = _run(["go", "mod", "download", "-json", f"{module}@{version}"], _GO)
    return Path(json.loads(output)["Dir"])


def npm_program(package: str, version: str, script: str) -> list[str]:
    """Return the command that runs a script of an npm package. The first call installs it; errors as above."""

    def install(folder: Path) -> None:
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev")
        _run(["npm", "install", *options, "--prefix", str(folder), f"{package}@{version}"], "Node.js 20 with npm")

    return ["node", str(_installed(f"{package}-{version}", install) / "node_modules" / package / script)]


def npm_file(package: str, version: str, sha256: str, file: str) -> Path:
    """Return a file of an npm package whose archive must have this hash; errors as in `go_program`."""

    def install(folder: Path) -> None:
        _run(["npm", "pack", f"{package}@{version}", "--pack-destination", str(folder)], "Node.js 20 with npm")
        archive = next(folder.glob("*.tgz"))
        if hashlib.sha256(archive.read_bytes()).hexdigest() != sha256:
            raise EnvironmentNotReadyError(f"the hash of {archive.name} has changed: check npm's registry")
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")

    return _installed(f"{package}-{version}-{sha256[:12]}", install) / "package" / file


def python_packages(*packages: str) -> Path:
    """Return the folder of Python packages that offsetstream does not need; errors as in `go_program`."""

    def install(folder: Path) -> None:
        command = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--target", str(folder)]
        _run([*command, "--python", sys.executable, *packages], "the development extra of this project")

    name = re.sub(r"\W+", "-", packages[0])
    return _installed(f"{name}-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:12]}", install)


def debian_program(name: str, package: str | None = None) -> Path:
    """Return a program. If the machine lacks it, root installs Debian's package (default: of the same name)."""
    package = package or name
    with _locked(cache_folder() / "programs"):
        if shutil.which(name) is None:
            if os.geteuid() != 0 or shutil.which("apt-get") is None:
                raise EnvironmentNotReadyError(f"the tests need `{name}`: install Debian's {package}")
            apt = ["apt-get", "--yes", "-o", "DPkg::Lock::Timeout=300"]
            quiet = {"DEBIAN_FRONTEND": "noninteractive"}
            _run([*apt, "update"], "apt-get", quiet)
            _run([*apt, "install", "--no-install-recommends", package], "apt-get", quiet)
    return Path(shutil.which(name) or name)


def _installed(name: str, install: Callable[[Path], None]) -> Path:
    """Return the folder of a program. One process installs it, in a temporary folder that gets its name at the end."""
    folder = cache_folder() / "programs" / name
    with _locked(folder.parent):
        if not folder.is_dir():
            unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
            try:
                install(unfinished)
                unfinished.rename(folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str], needs: str, environment: Mapping[str, str] | None = None) -> str:
    if shutil.which(command[0]) is None:
        raise EnvironmentNotReadyError(f"the tests need `{command[0]}` to install programs: install {needs}")
    environment = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise EnvironmentNotReadyError(f"`{' '.join(command)}` failed ({last}): can it reach its package registry?")
    return done.stdout
