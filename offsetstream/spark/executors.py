"""Whether the executors can run our part of the job: asked before the first batch, by the smallest of tasks."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from offsetstream.errors import EnvironmentNotReadyError

PACKAGES = ("offsetstream", "deltalake", "numpy", "pandas", "pyarrow")
_HOW = (
    "give them offsetstream's environment (PYSPARK_PYTHON, or --archives with spark.pyspark.python), or, where only "
    "offsetstream is missing, its wheel by --py-files under a name that ends in .zip"
)


def require_packages(spark: SparkSession) -> None:
    """Raise EnvironmentNotReadyError, one line, if the executors' Python is another one, or lacks what tasks import.

    A Spark within this process whose tasks are to run this process's Python is not asked.
    """
    context = spark.sparkContext
    if context._jsc.sc().isLocal() and context.pythonExec == sys.executable:
        return
    tasks = context.defaultParallelism
    # Functions of Python itself: one of ours could not even be read there.
    asked = context.parallelize(PACKAGES * tasks, tasks)
    try:
        found = zip(PACKAGES * tasks, asked.map(find_spec).map(bool).collect(), strict=True)
    except Py4JJavaError as error:
        raise EnvironmentNotReadyError(
            f"executors cannot run the driver's Python ({_reason(error)}): {_HOW}"
        ) from error
    if missing := sorted({package for package, is_there in found if not is_there}):
        raise EnvironmentNotReadyError(f"the executors' Python lacks {', '.join(missing)}: {_HOW}")


def _reason(error: Py4JJavaError) -> str:
    """Return the last cause, which is what Python or the operating system says."""
    lines = [line.strip() for line in str(error).splitlines() if "Error" in line or "Exception" in line]
    return (lines or ["it says nothing"])[-1].removeprefix("Caused by: ")
