"""A second JVM next to Spark's in one process, like that of `verify` in a notebook, and of tests."""

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.captured import install_exception_handler
from pyspark.sql import SparkSession

from offsetstream.embedded.jvm import java_gateway


def test_each_jvm_raises_its_own_exceptions(spark: SparkSession) -> None:
    with java_gateway() as gateway:
        with pytest.raises(Py4JJavaError) as error:
            gateway.jvm.java.lang.Integer.parseInt("seven")
        assert error.value.java_exception.getClass().getSimpleName() == "NumberFormatException"
        with pytest.raises(AnalysisException):
            spark.sql("SELECT nothing FROM nowhere")
    with pytest.raises(AnalysisException):
        spark.sql("SELECT nothing FROM nowhere")


def test_each_jvm_raises_its_own_exceptions_after_a_new_session(spark: SparkSession) -> None:
    """PySpark then replaces py4j's function that raises Java exceptions, for the whole process.

    The new function asks Spark's JVM for the exception by its number, which names another object there.
    """
    datasets = [spark.range(1)._jdf for _ in range(100)]
    first = int(datasets[0]._target_id.removeprefix("o"))
    with java_gateway() as gateway:
        install_exception_handler()
        while int(gateway.jvm.java.lang.Object()._target_id.removeprefix("o")) < first + 10:
            pass
        with pytest.raises(Py4JJavaError) as error:
            gateway.jvm.java.lang.Integer.parseInt("seven")
        assert error.value.java_exception.getClass().getSimpleName() == "NumberFormatException"
        assert "parseInt" in str(error.value)


def test_kafka_clients_have_no_known_vulnerability(spark: SparkSession) -> None:
    """Spark 4.0's connector brings 3.9.0; CVE-2025-27817 was fixed in 3.9.1."""
    java: Any = spark.sparkContext._jvm
    version = java.org.apache.kafka.common.utils.AppInfoParser.getVersion()
    assert tuple(map(int, version.split("."))) >= (3, 9, 1)
