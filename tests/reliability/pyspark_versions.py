"""The job with other versions of PySpark than the locked one, each in an environment of its own (half a gigabyte).

By command: `python -m tests.reliability.pyspark_versions 4.1.1 4.2.0`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import click

ROOT = Path(__file__).parents[2]
# A load, batches, a restart and another workload equal the cluster; every record of every case is replayed.
TESTS = ("tests/kafka/test_job_equals_cluster.py", "tests/spark/test_conformance.py", "tests/spark/test_merge.py")


@click.command()
@click.argument("versions", nargs=-1, required=True)
def main(versions: tuple[str, ...]) -> None:
    """Run the tests that compare the job with a cluster, with each of these versions of PySpark."""
    failed = [version for version in versions if _fails(version)]
    sys.exit(f"fails with PySpark {', '.join(failed)}" if failed else 0)


def _fails(version: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="offsetstream-pyspark-") as folder:
        python = str(Path(folder) / "bin" / "python")
        uv = [str(Path(sys.executable).parent / "uv")]
        subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
        # All as it is locked, but what is PySpark's own.
        locked = re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "requirements.lock").read_text("utf-8"), re.MULTILINE)
        wanted = [line.strip() for line in locked if not line.startswith(("pyspark==", "py4j=="))]
        file = Path(folder) / "wanted.txt"
        file.write_text("\n".join([*wanted, f"pyspark=={version}"]))
        subprocess.run([*uv, "pip", "install", "--quiet", "--python", python, "--requirement", str(file)], check=True)
        ours = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run([python, "-m", "pytest", *TESTS], cwd=ROOT, env=ours, check=False).returncode != 0


if __name__ == "__main__":
    main()
