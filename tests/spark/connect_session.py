"""Query the tables of a folder over Spark Connect, in a process of its own, since a process has only one kind of Spark.

Print the row count of each query, then what the job reports of such a session.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyspark.sql.functions as F
from pyspark.sql import SparkSession

import offsetstream
from offsetstream.embedded.artifacts import resolve
from offsetstream.embedded.java import java_home_for_spark
from offsetstream.errors import EnvironmentNotReadyError
from offsetstream.spark.session import connectors, prepare
from offsetstream.spark.settings import PREFERRED, STATIC
from tests.spark.databricks_queries import answers, register


def main(root: Path, scratch: Path, group: str) -> None:
    """Run every query and print the answers as JSON."""
    os.environ["SPARK_TESTING"] = "1"  # a free port
    if home := java_home_for_spark(scratch):
        os.environ["JAVA_HOME"] = str(home)
    jars = ",".join(str(jar) for jar in resolve(connectors()))
    quick = {"spark.sql.shuffle.partitions": "1", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    places = {"spark.jars": jars, "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    spark = SparkSession.builder.remote("local[1]").config(map={**STATIC, **PREFERRED, **quick, **places}).getOrCreate()
    register(spark, "over_connect", root)
    rows = {query: len(frame.collect()) for query, frame in answers(spark, "over_connect", root, group)}
    raw = spark.createDataFrame([(bytearray(b"\x00\x01nonsense"), None)], "key BINARY, value BINARY")
    decode = offsetstream.decode_udf  # only once a session exists: PySpark then checks its kind
    (decoded,) = raw.select(decode("key", "value").alias("record")).select(F.col("record.error")).collect()
    try:
        prepare(spark)
    except EnvironmentNotReadyError as error:
        print(json.dumps({"rows": rows, "decoded": decoded.error, "job": str(error)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
