"""Check before the first batch that the executors' Python has the packages that our tasks import."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from offsetstream.errors import EnvironmentNotReadyError

PACKAGES = ("offsetstream", "deltalake", "numpy", "pandas", "pyarrow")
_ADVICE = (
    "Give them offsetstream's environment (PYSPARK_PYTHON, or --archives with spark.pyspark.python). If only "
    "offsetstream is missing, pass its wheel with --py-files, renamed to end in .zip"
)


def require_packages(spark: SparkSession) -> None:
    """Raise EnvironmentNotReadyError if the executors' Python does not start or lacks packages that tasks import.

    Skips the check for local Spark whose tasks run this process's Python.
    """
    context = spark.sparkContext
    if context._jsc.sc().isLocal() and context.pythonExec == sys.executable:
        return
    tasks = context.defaultParallelism
    # Use only functions of Python itself, since the executors may lack our package.
    packages = context.parallelize(PACKAGES * tasks, tasks)
    try:
        found = zip(PACKAGES * tasks, packages.map(find_spec).map(bool).collect(), strict=True)
    except Py4JJavaError as error:
        raise EnvironmentNotReadyError(
            f"The executors cannot run the driver's Python ({_reason(error)}). {_ADVICE}"
        ) from error
    if missing := sorted({package for package, is_there in found if not is_there}):
        raise EnvironmentNotReadyError(f"The executors' Python lacks {', '.join(missing)}. {_ADVICE}")


def _reason(error: Py4JJavaError) -> str:
    """Return the innermost cause, which is the message of Python or of the operating system."""
    lines = [line.strip() for line in str(error).splitlines() if "Error" in line or "Exception" in line]
    return (lines or ["no message"])[-1].removeprefix("Caused by: ")
