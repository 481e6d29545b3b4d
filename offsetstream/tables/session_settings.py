"""Change settings of a Spark session for a while, and restore them afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set these settings in the session while the context runs."""
    before = current_settings(spark, settings)
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        restore_settings(spark, before)


def current_settings(spark: SparkSession, names: Iterable[str]) -> dict[str, str | None]:
    """Return the session's values of these settings; None for one that is not set."""
    return {name: spark.conf.get(name, None) for name in names}


def restore_settings(spark: SparkSession, settings: Mapping[str, str | None]) -> None:
    """Restore the values that `current_settings` returned."""
    for name, value in settings.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)
