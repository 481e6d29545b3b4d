"""Change settings of a Spark session for a while, and restore them afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def set_meanwhile(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set these settings in the session while the context runs."""
    before = as_set(spark, settings)
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        put_back(spark, before)


def as_set(spark: SparkSession, names: Iterable[str]) -> dict[str, str | None]:
    """Return the session's values of these settings; None for one that is not set."""
    return {name: spark.conf.get(name, None) for name in names}


def put_back(spark: SparkSession, settings: Mapping[str, str | None]) -> None:
    """Restore the values that `as_set` returned."""
    for name, value in settings.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)
