"""The released wheel works by itself, in an environment that has nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pyarrow
import pytest
from deltalake import DeltaTable

import offsetstream

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
OUTSIDE = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(folder, "uv", "build", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(folder), str(ROOT))
    return folder


def run(folder: Path, *command: str, code: int = 0) -> str:
    """Run a program of this environment. Returns its output."""
    own = Path(sys.executable).parent / command[0]
    program = str(own) if own.exists() else command[0]
    done = subprocess.run([program, *command[1:]], cwd=folder, env=OUTSIDE, capture_output=True, text=True, check=False)
    assert done.returncode == code, (command, done.stdout, done.stderr)
    return done.stdout + done.stderr


def environment(folder: Path, built: Path, extra: str) -> str:
    """Make an empty environment, install the wheel with locked versions, and return its Python."""
    python = str(folder / "bin" / "python")
    run(folder, "uv", "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder))
    versions = re.findall(r"^[\w.-]+==\S+(?: ; [^\\\n]+)?", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    (folder / "versions.txt").write_text("\n".join(versions))
    (wheel,) = built.glob("*.whl")
    install = ("uv", "pip", "install", "--quiet", "--python", python)
    run(folder, *install, "--constraint", str(folder / "versions.txt"), f"{wheel}{extra}")
    return python


def test_the_wheel_has_the_right_files(built: Path) -> None:
    (wheel,), (source,) = built.glob("*.whl"), built.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    package = {str(file.relative_to(ROOT)) for file in (ROOT / "offsetstream").rglob("*") if file.is_file()}
    expected = {name for name in package if "__pycache__" not in name}
    assert expected <= set(names)
    assert {name.partition("/")[0] for name in names} == {"offsetstream", f"{wheel.name.split('-py3')[0]}.dist-info"}
    with tarfile.open(source) as archive:
        assert any(name.endswith("/pyproject.toml") for name in archive.getnames())


def test_an_index_accepts_both_files_and_the_readme_links_work(built: Path) -> None:
    run(
        built,
        "uv",
        "tool",
        "run",
        "--quiet",
        "twine==7.0.0",
        "check",
        "--strict",
        *map(str, built.glob("offsetstream*")),
    )
    (wheel,) = built.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    (name,) = (each for each in archive.namelist() if each.endswith("METADATA"))
    links = re.findall(r"\]\(([^)]+)\)", archive.read(name).decode())
    assert [link for link in links if not link.startswith("https://")] == []
    files = [each for link in links for each in re.findall(rf"^{PROJECT['urls']['Source']}/\w+/[\w.]+/([^#]+)", link)]
    assert len(files) > 3
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_the_wheel_has_the_version_of_the_code(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name == f"offsetstream-{offsetstream.__version__}-py3-none-any.whl"


def test_launchers_find_the_jobs(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    archive = zipfile.ZipFile(wheel)
    (name,) = (each for each in archive.namelist() if each.endswith("entry_points.txt"))
    points = ConfigParser()
    points.read_string(archive.read(name).decode())
    # Databricks takes the first entry point of this name, of any kind.
    assert not set(points["packages"]) & set(points["console_scripts"])
    assert set(points["packages"]) == {"materialize_offsets", "maintain_tables", "command"}


def test_it_works_as_the_zip_that_spark_distributes(built: Path, tmp_path: Path) -> None:
    """By --py-files: in a Python that has the dependencies, but not the package."""
    (wheel,) = built.glob("*.whl")
    zipped = shutil.copy(wheel, tmp_path / "offsetstream.zip")
    packages = Path(pyarrow.__file__).parents[1]
    code = """
from offsetstream.codec.records import encode_record
from offsetstream.cli.submitted import materialize_offsets
from offsetstream.tables.schema import all_schemas
import offsetstream.stream.job
print(offsetstream.__file__, len(all_schemas()), encode_record({"type": 2, "data": {"group": "g"}}, None)[0])
"""
    for path, code_of_exit in ((f"{zipped}{os.pathsep}{packages}", 0), (str(packages), 1)):
        command = [sys.executable, "-S", "-c", code]  # -S: the package is installed here by a .pth file
        done = subprocess.run(
            command, cwd=tmp_path, env=OUTSIDE | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == code_of_exit, done.stderr
        assert code_of_exit or done.stdout.startswith(str(zipped))


def test_without_extras_the_codec_and_look_ups_work(built: Path, tmp_path: Path) -> None:
    python = environment(tmp_path, built, "")
    code = "import offsetstream as o; print(o.partition_for('billing', 50), o.GroupMetadataCache, o.decode)"
    assert re.match(r"\d+ .*GroupMetadataCache", run(tmp_path, python, "-c", code))
    command = (python, "-m", "offsetstream")
    assert "there is no table" in run(tmp_path, *command, "groups", "list", "--tables", str(tmp_path), code=1)
    assert "there are no tables" in run(tmp_path, *command, "stop", "--tables", str(tmp_path), code=1)


# Code that starts each path to a package from an extra.
WAYS = {
    "run": "run --bootstrap-server localhost:1",
    "demo": "demo",
    "dump": "dump --bootstrap-server localhost:1",
    "peek": "peek --bootstrap-server localhost:1 --group g --topic t",
    "topics": "topics describe --bootstrap-server localhost:1 --topic t",
    "live offsets": "offsets list --live --bootstrap-server localhost:1 --group g",
    "blocked": "partitions --blocked --bootstrap-server localhost:1",
    "reset": "offsets reset --bootstrap-server localhost:1 --group g --topic t --to-earliest",
    "delete": "groups delete --bootstrap-server localhost:1 --group g",
    "verify": "verify --bootstrap-server localhost:1 --tables .",
    "maintain": "maintain --tables .",
}


def test_a_missing_extra_is_a_one_line_error_that_names_the_right_extra(built: Path, tmp_path: Path) -> None:
    """With `[cluster]` installed, no error names an extra that was not named before."""
    folders = {extra: tmp_path / (extra or "nothing") for extra in ("", "[cluster]")}
    for folder in folders.values():
        folder.mkdir()
    without, with_cluster = (environment(folder, built, extra) for extra, folder in folders.items())

    def named(python: str, way: str) -> str | None:
        command = [python, "-m", "offsetstream", *way.split()]
        done = subprocess.run(command, cwd=tmp_path, env=OUTSIDE, capture_output=True, text=True, check=False)
        found = re.fullmatch(r"Error: this needs the package \w+: pip install 'offsetstream\[(\w+)\]'\n", done.stderr)
        return found and found[1]

    first = {name: named(without, way) for name, way in WAYS.items()}
    assert first == dict.fromkeys(WAYS, "spark") | {"topics": "cluster", "demo": "all"}
    then = {name: named(with_cluster, way) for name, way in WAYS.items()}
    assert {name: extra for name, extra in then.items() if extra not in (None, first[name])} == {}


def test_the_demo_runs_from_the_wheel_alone(built: Path, tmp_path: Path) -> None:
    python = environment(tmp_path, built, "[all]")
    said = run(tmp_path, python, "-m", "offsetstream", "demo", "--groups", "20")
    assert "billing" in said
    assert DeltaTable(tmp_path / "demo-tables" / "tables" / "committed_offsets").to_pyarrow_dataset().count_rows() > 10
