"""The process from which Python workers fork: the installed PySpark is loaded, with everything they need."""

import gc
import os
import re
import subprocess
import sys
import zipimport
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from offsetstream.spark.worker_daemon import installed_instead


def test_a_worker_reads_no_archives_and_has_its_packages(spark: SparkSession) -> None:
    def look(_: Iterable[int]) -> Iterator[tuple[list[str], int]]:
        finders = sys.path_importer_cache.items()
        yield [path for path, finder in finders if isinstance(finder, zipimport.zipimporter)], gc.get_freeze_count()

    ((archives, frozen),) = spark.sparkContext.parallelize([0], 1).mapPartitions(look).collect()
    assert archives == []
    assert frozen > 10_000  # loaded before the fork: pandas, pyarrow and the codec


@pytest.mark.long
def test_workers_of_another_python_use_sparks_daemon_and_report_missing_packages(tmp_path: Path) -> None:
    script = "from offsetstream.spark import local, session\nsession.require_packages(local.local_session('local[1]'))"
    base = str(Path(sys.executable).resolve())  # lacks the packages of this environment
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        env=os.environ | {"PYSPARK_PYTHON": base},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert re.search(r"EnvironmentNotReadyError: The executors' Python lacks .*offsetstream", done.stderr)


def test_only_archives_of_an_importable_package_are_skipped(tmp_path: Path) -> None:
    packages, spark_home = tmp_path / "site-packages", tmp_path / "spark"
    of_package = [str(packages / "pyspark" / each) for each in ("python/lib/pyspark.zip", "jars/spark-core.jar")]
    of_spark = [str(spark_home / each) for each in ("python/lib/pyspark.zip", "jars/spark-core.jar")]
    others = ["", str(packages), str(tmp_path / "more.zip")]
    assert installed_instead([*of_package, *others]) == others
    assert installed_instead([*of_spark, *others]) == [*of_spark, *others]
    assert installed_instead([*of_package, str(tmp_path)]) == [*of_package, str(tmp_path)]
