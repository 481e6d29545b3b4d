"""DuckDB from PyPI with its own Delta extension, separate from our DuckDB, for which PyPI has no extension."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from testkit.programs import python_packages

VERSION = "1.5.5"
EXTENSIONS = ("delta", "httpfs", "azure")
_ITS = tuple(f"duckdb-extension-{name}=={VERSION}" for name in EXTENSIONS)
_PACKAGES = (f"duckdb=={VERSION}", *_ITS, "duckdb-engine==0.17.0", "sqlalchemy==2.0.44", "pytz==2026.6")


def run_python(code: str, folder: Path, given: object, environment: Mapping[str, str] | None = None) -> str:
    """Run code in that environment with `given` as JSON, and return its output; AssertionError with its error text.

    DuckDB keeps the extensions that it installs in the folder.
    """
    packages = python_packages(*_PACKAGES)
    files = [
        str(packages / f"duckdb_extension_{name}/extensions/v{VERSION}/{name}.duckdb_extension") for name in EXTENSIONS
    ]
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(folder / "extensions"), *files],  # without our own packages
        input=json.dumps(given),
        env={**os.environ, "PYTHONPATH": str(packages), **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


_RUN = """
import json, sys, duckdb
connection = duckdb.connect(config={"extension_directory": sys.argv[1], "autoinstall_known_extensions": False})
for file in sys.argv[2:]:
    connection.execute(f"INSTALL '{file}'")
for statement in json.load(sys.stdin):
    connection.execute(statement)
"""


def duckdb_runs(folder: Path, *statements: str, environment: Mapping[str, str] | None = None) -> None:
    """Run the statements in one session."""
    run_python(_RUN, folder, statements, environment)


def as_files(root: str, tables: Sequence[str], folder: Path) -> list[str]:
    """Return the statements that write each table, as DuckDB reads it, to files in the folder."""
    copy = "COPY (SELECT * FROM delta_scan('{}/{}')) TO '{}/{}.parquet'"
    return ["LOAD delta", "SET TimeZone = 'UTC'", *(copy.format(root, name, folder, name) for name in tables)]
