"""The unit tier and one whole job with the oldest packages that pyproject.toml allows, and with those of a platform.

By command: `python -m tests.reliability.floors`, or with the names of some legs. Each leg has an environment of its own
in `build/floors` (a gigabyte and a half), which is made anew each time.
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
ENVIRONMENTS = ROOT / "build" / "floors"
EXTRAS = ("all", "msk", "polars")
# What the tests themselves import, as it is locked. mkdocs is not among them: it asks for a newer Jinja than we do.
TOOLS = (
    *("databricks-bundles", "grafana-foundation-sdk", "hypothesis", "inotify-simple", "jsonschema", "mypy", "pypdf"),
    *("pytest", "pytest-instafail", "pytest-xdist", "pyyaml", "setuptools", "sqlglot", "testcontainers", "uv"),
)
UNIT = ("tests/unit", "--ignore", "tests/unit/test_site.py")  # the site is mkdocs' work
RUNS = (UNIT, ("tests/kafka/test_whole_path.py",))


@dataclass(frozen=True)
class Leg:
    """A Python, and how the packages for it are chosen."""

    python: str
    choice: tuple[str, ...]


LEGS = {
    "lowest": Leg("3.11", ("--resolution", "lowest-direct")),
    "databricks-17.3": Leg("3.12", ("--constraint", str(Path(__file__).with_name("databricks_17_3.txt")))),
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(LEGS)))
@click.option("--only-make", is_flag=True, help="Make the environments, and run no test.")
def main(names: tuple[str, ...], only_make: bool) -> None:
    """Run the unit tier and one whole job in the environment of each leg."""
    failed = []
    for name in names or LEGS:
        python = make(name)
        if not only_make:
            failed += [f"{' '.join(run)} with {name}" for run in RUNS if not _passes(python, run)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def make(name: str) -> str:
    """Make the environment of a leg anew, and return its Python."""
    leg, folder = LEGS[name], ENVIRONMENTS / name
    uv = str(Path(sys.executable).parent / "uv")
    interpreter = python_of(leg.python)
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", interpreter, str(folder)], cwd=ROOT, check=True)
    tools = folder / "tools.txt"
    tools.write_text("\n".join(_locked(tool) for tool in TOOLS))
    install = [uv, "pip", "install", "--quiet", "--python", str(folder), *leg.choice, "--requirement", str(tools)]
    extras = [part for extra in EXTRAS for part in ("--extra", extra)]
    subprocess.run([*install, "--requirement", "pyproject.toml", *extras], cwd=ROOT, check=True)
    if name == "lowest":
        freeze = [uv, "pip", "freeze", "--python", str(folder)]
        found = subprocess.run(freeze, check=True, capture_output=True, text=True).stdout
        if above := above_floors(dict(line.split("==") for line in found.splitlines() if "==" in line)):
            sys.exit(f"not at their floors, since others ask for more: {', '.join(above)}")
    return str(folder / "bin" / "python")


def python_of(version: str) -> str:
    """Return the command of a Python of this version; pyenv's own python3.12 fails where it was told to use another."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python")
    for command in filter(None, (shutil.which(f"python{version}"), *map(str, sorted(pyenv)))):
        if subprocess.run([command, "-c", ""], capture_output=True, check=False).returncode == 0:
            return command
    sys.exit(f"there is no Python {version}: install it so that python{version} is on the PATH, or by pyenv")


def above_floors(installed: dict[str, str]) -> list[str]:
    """Return what is newer than pyproject.toml asks for at the least."""
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


def _passes(python: str, tests: tuple[str, ...]) -> bool:
    command = [python, "-m", "pytest", "-m", "not long and not nightly", *tests]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode == 0


if __name__ == "__main__":
    main()
