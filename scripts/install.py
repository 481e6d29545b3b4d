"""Create the environment in .venv: the packages of requirements.lock, checked by hash, then offsetstream itself.

It needs only Python, without any package. If something is missing, it prints one line that says what to do.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from offsetstream.embedded.artifacts import check_disk_space  # noqa: E402 - the package is not installed yet
from offsetstream.embedded.java import java_executable  # noqa: E402
from offsetstream.errors import EnvironmentNotReadyError  # noqa: E402

VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts" if os.name == "nt" else "bin") / "python"
STAMP = VENV / ".offsetstream-installed"
NEEDED_BYTES = 3 << 30  # PySpark alone unpacks to a gigabyte


def main() -> None:
    """Create the environment unless it exists and matches the lock."""
    if sys.version_info < (3, 11):
        raise EnvironmentNotReadyError(
            f"this is Python {sys.version.split()[0]}, but offsetstream needs 3.11 or later: "
            "install it, or name its program: make PYTHON=python3.11"
        )
    wanted = hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in ("requirements.lock", "pyproject.toml")))
    if STAMP.is_file() and STAMP.read_text() == wanted.hexdigest():
        return
    if os.environ.get("JAVA_HOME"):  # otherwise the environment brings a Java
        java_executable()
    check_disk_space(VENV, NEEDED_BYTES, "the Python environment")
    print(f"Creating the environment in {VENV.name} (a few minutes the first time)", file=sys.stderr, flush=True)
    if not PYTHON.exists():
        _run("cannot create .venv: install Python's venv module", [sys.executable, "-m", "venv", str(VENV)])
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    failure = "cannot install the packages: see pip's error above, and check that it can reach a package registry"
    _run(failure, [*pip, "--require-hashes", "--requirement", str(ROOT / "requirements.lock")])
    _run("cannot install offsetstream itself", [*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)])
    archives = subprocess.run([str(PYTHON), "-m", "offsetstream.demo.class_archives"], check=False)
    if archives.returncode != 0:  # it has printed why
        print("offsetstream: without class archives, Java takes some seconds longer to start", file=sys.stderr)
    STAMP.write_text(wanted.hexdigest())


def _run(failure: str, command: list[str]) -> None:
    if shutil.which(command[0]) is None or subprocess.run(command, check=False).returncode != 0:
        raise EnvironmentNotReadyError(failure)


if __name__ == "__main__":
    try:
        main()
    except EnvironmentNotReadyError as error:
        sys.exit(f"offsetstream: {error}")
