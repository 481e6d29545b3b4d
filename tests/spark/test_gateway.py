"""A second JVM beside Spark's in one process, as that of `verify` in a notebook, and of tests."""

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from offsetstream.embedded.gateway import java_gateway


def test_its_exceptions_are_its_own_and_sparks_are_sparks(spark: SparkSession) -> None:
    with java_gateway() as gateway:
        with pytest.raises(Py4JJavaError) as error:
            gateway.jvm.java.lang.Integer.parseInt("seven")
        assert error.value.java_exception.getClass().getSimpleName() == "NumberFormatException"
        with pytest.raises(AnalysisException):
            spark.sql("SELECT nothing FROM nowhere")
    with pytest.raises(AnalysisException):
        spark.sql("SELECT nothing FROM nowhere")


def test_kafkas_clients_have_no_known_hole(spark: SparkSession) -> None:
    """Spark 4.0's own connector brings 3.9.0; CVE-2025-27817 was mended in 3.9.1."""
    java: Any = spark.sparkContext._jvm
    version = java.org.apache.kafka.common.utils.AppInfoParser.getVersion()
    assert tuple(map(int, version.split("."))) >= (3, 9, 1)
