"""What the ends of logs do not tell: whether anything can be read below one, and whose transaction blocks one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from offsetstream.cluster.databricks import plain_packages
from offsetstream.cluster.java_client import FEW_TRIES
from offsetstream.cluster.log_ends import HIDDEN, TopicPlace
from offsetstream.cluster.open_transactions import OpenTransactions
from offsetstream.cluster.properties import spark_properties
from offsetstream.cluster.records_at import read_at
from offsetstream.cluster.rights import MARKERS_SEEN, TRANSACTION_IDS
from offsetstream.errors import first_line
from offsetstream.spark.source import tell_java
from offsetstream.stream.sampling.sample_book import Holder

_SECONDS = 5.0  # for each question: the next round waits for it


class LogTails:
    """Asked by the sampler's thread; `say` is told once of what is refused, and what is not told is left out."""

    def __init__(
        self, spark: SparkSession, bootstrap_server: str, properties: Mapping[str, str], warn: Callable[[str], None]
    ) -> None:
        self._spark = spark
        self._bootstrap_server = bootstrap_server
        self._properties = properties
        self._warn = warn
        self._told: set[str] = set()

    def first_readable(self, starts: Mapping[TopicPlace, int]) -> dict[TopicPlace, int | None]:
        """Return the offset of the first record that a reader of committed ones gets from each offset on; None: none.

        Needs READ on the topics; a partition without it, or whose leader does not answer, is left out.
        """
        if not starts:
            return {}
        asked = {(place.topic, place.partition): offset for place, offset in starts.items()}
        found = read_at(self._bootstrap_server, self._properties, asked, 1, timeout=_SECONDS)
        self._tell_of_rights(each.error for each in found.values())
        return {
            TopicPlace(*place): each.records[0].offset if each.records else None
            for place, each in found.items()
            if each.records or each.is_at_end
        }

    def holders(self, places: Collection[TopicPlace]) -> dict[TopicPlace, Holder]:
        """Return whose transaction is the earliest that is open on each partition (DescribeProducers, KIP-664).

        Needs READ on the topics, and DESCRIBE on the transactional ids; what may not be seen is None.
        """
        if not places:
            return {}
        try:
            with self._admin() as (jvm, client):
                found = OpenTransactions(jvm, client, _SECONDS).find(list(places), all_coordinate=False)
        except Py4JError as error:
            self._tell(f"Whose open transactions hold logs back is not known for now: {first_line(error)}")
            return {}
        earliest = {place: opened[0] for place, opened in found.items() if not isinstance(opened, str) and opened}
        self._tell_of_rights(opened for opened in found.values() if isinstance(opened, str))
        if any(each.transactional_id is None for each in earliest.values()):
            self._tell(f"Without {TRANSACTION_IDS}, {TRANSACTION_IDS.without}")
        return {
            TopicPlace(*place): Holder(each.transactional_id, _time(each.started_ms))
            for place, each in earliest.items()
        }

    def _tell_of_rights(self, errors: Iterable[str | None]) -> None:
        if HIDDEN in errors:
            self._tell(f"Without {MARKERS_SEEN}, {MARKERS_SEEN.without}")

    def _tell(self, line: str) -> None:
        if line not in self._told:
            self._warn(line)
        self._told.add(line)

    @contextmanager
    def _admin(self) -> Iterator[tuple[Any, Any]]:
        """Give Spark's JVM and a client of Kafka's in it: a JVM more for one question would be dear."""
        tell_java(self._spark, self._properties)
        jvm = plain_packages(self._spark.sparkContext._jvm)
        settings = jvm.java.util.HashMap()
        own = {"bootstrap.servers": self._bootstrap_server, **FEW_TRIES}
        for name, value in {**spark_properties(self._properties), **own}.items():
            settings[name] = value
        client = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        try:
            yield jvm, client
        finally:
            client.close(jvm.java.time.Duration.ofSeconds(1))


def _time(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
