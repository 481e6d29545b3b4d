"""The machine and the versions behind the figures."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

from offsetstream.embedded.java import java_executable
from offsetstream.embedded.jvm import DEFAULT_VERSION
from offsetstream.spark.session import connectors


def describe_machine() -> dict[str, str]:
    """Return the processor, cores, memory and versions, in the order in which they are printed."""
    delta = next(jar.rpartition(":")[2] for jar in connectors() if "delta" in jar)
    return {
        "processor": _first("model name", Path("/proc/cpuinfo")) or platform.processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "Java": _java_version(),
        "PySpark": version("pyspark"),
        "Delta": delta,
        "deltalake": version("deltalake"),
        "PyArrow": version("pyarrow"),
        "Kafka": DEFAULT_VERSION,
    }


def _first(name: str, file: Path) -> str:
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def _java_version() -> str:
    output = subprocess.run([str(java_executable()), "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'"([^"]+)"', output)
    return found.group(1) if found else output.splitlines()[0]
