"""What end offsets do not show: whether a record can be read below them, and which transaction blocks a partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from offsetstream.cluster.java_client import LIMITED_RETRIES, plain_packages
from offsetstream.cluster.log_ends import HIDDEN, TopicPartitionKey
from offsetstream.cluster.open_transactions import OpenTransactions
from offsetstream.cluster.properties import spark_properties
from offsetstream.cluster.records import read_at
from offsetstream.cluster.rights import READ_ALL_TOPICS, TRANSACTION_IDS
from offsetstream.errors import first_line
from offsetstream.spark.source import set_java_properties
from offsetstream.stream.sampling.sample_book import Holder

_SECONDS = 5.0  # timeout of a query: the next round waits for it


class LogTails:
    """Queries from the sampler's thread. `warn` gets a line, once, for what the brokers refuse; results omit that."""

    def __init__(
        self, spark: SparkSession, bootstrap_server: str, properties: Mapping[str, str], warn: Callable[[str], None]
    ) -> None:
        self._spark = spark
        self._bootstrap_server = bootstrap_server
        self._properties = properties
        self._warn = warn
        self._warned: set[str] = set()

    def first_readable(self, starts: Mapping[TopicPartitionKey, int]) -> dict[TopicPartitionKey, int | None]:
        """Return the offset of the first record that a read_committed consumer gets from each start; None if none.

        Needs READ on the topics. A partition without that right, or whose leader does not answer, is omitted.
        """
        if not starts:
            return {}
        wanted = {(place.topic, place.partition): offset for place, offset in starts.items()}
        found = read_at(self._bootstrap_server, self._properties, wanted, 1, timeout=_SECONDS)
        self._warn_of_rights(each.error for each in found.values())
        return {
            TopicPartitionKey(*place): each.records[0].offset if each.records else None
            for place, each in found.items()
            if each.records or each.is_at_end
        }

    def holders(self, places: Collection[TopicPartitionKey]) -> dict[TopicPartitionKey, Holder]:
        """Return the earliest open transaction of each partition (DescribeProducers, KIP-664).

        Needs READ on the topics, and DESCRIBE on the transactional ids. What the user may not see is None.
        """
        if not places:
            return {}
        try:
            with self._admin() as (jvm, client):
                found = OpenTransactions(jvm, client, _SECONDS).find(list(places), all_coordinate=False)
        except Py4JError as error:
            self._warn_once(f"Cannot find out which open transactions block partitions: {first_line(error)}")
            return {}
        earliest = {place: opened[0] for place, opened in found.items() if not isinstance(opened, str) and opened}
        self._warn_of_rights(opened for opened in found.values() if isinstance(opened, str))
        if any(each.transactional_id is None for each in earliest.values()):
            self._warn_once(f"Without {TRANSACTION_IDS}, {TRANSACTION_IDS.without}")
        return {
            TopicPartitionKey(*place): Holder(each.transactional_id, _time(each.started_ms))
            for place, each in earliest.items()
        }

    def _warn_of_rights(self, errors: Iterable[str | None]) -> None:
        if HIDDEN in errors:
            self._warn_once(f"Without {READ_ALL_TOPICS}, {READ_ALL_TOPICS.without}")

    def _warn_once(self, line: str) -> None:
        if line not in self._warned:
            self._warn(line)
        self._warned.add(line)

    @contextmanager
    def _admin(self) -> Iterator[tuple[Any, Any]]:
        """Yield Spark's JVM and a Kafka admin client in it: another JVM for one query would be expensive."""
        set_java_properties(self._spark, self._properties)
        jvm = plain_packages(self._spark.sparkContext._jvm)
        settings = jvm.java.util.HashMap()
        own = {"bootstrap.servers": self._bootstrap_server, **LIMITED_RETRIES}
        for name, value in {**spark_properties(self._properties), **own}.items():
            settings[name] = value
        client = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        try:
            yield jvm, client
        finally:
            client.close(jvm.java.time.Duration.ofSeconds(1))


def _time(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
