"""Does `make test` notice small faults? `make mutants` writes each one of mutants.toml into a copy, and tests that.

First comes the file of the test that caught it last, then the unit tests of the changed file's folder, then all unit
tests, then the rest of `make test`; the first failure ends the run. Tests judge no mutant before they were green
without a fault. results.csv says by commit which test caught a mutant; what stands there is not run again. The exit
code is 1 if a mutant is not caught.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import click

ROOT = Path(__file__).parents[2]
MUTANTS = Path(__file__).with_name("mutants.toml")
RESULTS = Path(__file__).with_name("results.csv")
NOT_CAUGHT = "no test"
_SHORT = ("-m", "not long and not nightly")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class Change(NamedTuple):
    """A replacement in a file."""

    file: str
    old: str
    new: str


class Mutant(NamedTuple):
    """A fault, and how it is written into the product."""

    name: str
    fault: str
    changes: tuple[Change, ...]

    def apply(self, tree: Path) -> None:
        """Write the fault into a copy of the project; ValueError where the code is another one by now."""
        for file, old, new in self.changes:
            text = (tree / file).read_text("utf-8")
            if text.count(old) != 1:
                raise ValueError(f"{self.name}: {old!r} stands {text.count(old)} times in {file}: write it anew")
            (tree / file).write_text(text.replace(old, new), "utf-8")


class Result(NamedTuple):
    """The test that caught a mutant at a commit, and after how many seconds."""

    mutant: str
    commit: str
    caught_by: str
    seconds: int


def read_mutants() -> list[Mutant]:
    """Return the mutants in the order in which they are written down."""
    declared: list[dict[str, Any]] = tomllib.loads(MUTANTS.read_text("utf-8"))["mutant"]
    return [
        Mutant(each["name"], each["fault"], tuple(Change(**change) for change in each["change"])) for each in declared
    ]


@click.command()
@click.option("--commit", default="HEAD", show_default=True, help="The commit whose product and tests are taken.")
@click.option("--only", multiple=True, metavar="NAME", help="Only these mutants; may be given several times.")
def main(commit: str, only: Sequence[str]) -> None:
    """Test mutants that have no result at the commit yet, and show what caught each."""
    commit = _git("rev-parse", "--short", commit).decode().strip()
    mutants = [each for each in read_mutants() if not only or each.name in only]
    known = {each.mutant: each for each in _results() if each.commit == commit}
    for mutant in mutants:
        if mutant.name not in known:
            known[mutant.name] = _tested(mutant, commit)
            with RESULTS.open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow(known[mutant.name])
        result = known[mutant.name]
        click.echo(f"{mutant.name:26} {result.seconds:5} s  {result.caught_by}")
    caught = sum(known[each.name].caught_by != NOT_CAUGHT for each in mutants)
    click.echo(f"{caught} of {len(mutants)} mutants are caught at {commit}")
    sys.exit(caught < len(mutants))


def _results() -> Iterator[Result]:
    with RESULTS.open(newline="") as file:
        for row in csv.DictReader(file):
            yield Result(row["mutant"], row["commit"], row["caught_by"], int(row["seconds"]))


def _tested(mutant: Mutant, commit: str) -> Result:
    with _copy(commit) as tree:
        mutant.apply(tree)
        seconds = 0.0
        for tests in _stages(tree, mutant):
            _require_green(commit, tests)
            begun = time.monotonic()
            failed = _first_failure(tree, tests)
            seconds += time.monotonic() - begun
            if failed:
                return Result(mutant.name, commit, failed, int(seconds))
    return Result(mutant.name, commit, NOT_CAUGHT, int(seconds))


@contextmanager
def _copy(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        tree = Path(folder)
        with tarfile.open(fileobj=BytesIO(_git("archive", commit))) as archive:
            archive.extractall(tree, filter="data")
        shutil.rmtree(tree / "tests" / "mutants", ignore_errors=True)  # its own test would catch every one
        (tree / ".venv").symlink_to(ROOT / ".venv")
        yield tree


def _stages(tree: Path, mutant: Mutant) -> Iterator[tuple[str, ...]]:
    before = [each.caught_by.partition("::")[0] for each in _results() if each.mutant == mutant.name]
    if found := [file for file in before if (tree / file).is_file() and file.startswith("tests/")]:
        yield (found[-1],)
    unit = tree / "tests" / "unit"
    near = unit / Path(mutant.changes[0].file).relative_to("offsetstream").parent
    while not near.is_dir():
        near = near.parent
    for folder in dict.fromkeys((near, unit)):
        yield (str(folder.relative_to(tree)),)
    yield ("--ignore", "tests/unit")


@cache
def _require_green(commit: str, tests: tuple[str, ...]) -> None:
    """Raise ClickException where tests fail without a fault: they would catch any mutant."""
    with _copy(commit) as tree:
        if failed := _first_failure(tree, tests):
            raise click.ClickException(f"{failed} fails at {commit} without a fault: mend it, and run this again")


def _first_failure(tree: Path, tests: Sequence[str]) -> str | None:
    """Run tests of the copy until one fails, and return its id; RuntimeError where pytest itself fails."""
    parallel = ("--numprocesses", "2", "--no-loadscope-reorder")
    done = _run(tree, "-m", "pytest", *_SHORT, *parallel, "--maxfail=1", *tests)
    found = _FAILED.search(done.stdout)
    if found is None and done.returncode not in {0, 5}:  # 5: no test there is for this tier
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return None if found is None else found[1]


def _run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout


if __name__ == "__main__":
    main()
