"""The names of topics, assignments written before a topic's name was known, and the settings of the offsets topic."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from offsetstream.cluster.answers import TopicDescription
from offsetstream.cluster.client import Cluster
from offsetstream.errors import ClusterError, UnauthorisedError, UnreachableError
from offsetstream.stream.monitor import topics
from offsetstream.stream.monitor.topics import TopicBook, TopicSettings
from offsetstream.tables.names import ASSIGNMENTS, TOPICS
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId
from testkit.tables import append_rows

ID = "AAAAAAAAAAAAAAAAAAAAAQ"
BATCH = BatchId(1, 0)


@pytest.fixture
def tables(tables: PathStore) -> PathStore:
    append_rows(
        Path(tables.root), ASSIGNMENTS, [{"offsets_partition": 0, "group_id": "g", "topic_id": ID, "topic": ID}]
    )
    return tables


def names(tables: PathStore, table: str) -> list[str]:
    return [row["topic"] for row in read_rows(tables.open(table))]


def test_assignments_get_a_topic_name_that_is_learned_later(tables: PathStore) -> None:
    TopicBook(tables).observe([TopicDescription(ID, "orders", 3, False)], BATCH)
    assert names(tables, ASSIGNMENTS) == names(tables, TOPICS) == ["orders"]


def test_assignments_get_their_topic_name_after_a_crash_between_the_writes(
    tables: PathStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [TopicDescription(ID, "orders", 3, False)]
    for write in ("merge_rows", "overwrite_rows"):
        with monkeypatch.context() as patch:
            patch.setattr(topics, write, _die)
            with pytest.raises(KeyboardInterrupt):
                TopicBook(tables).observe(found, BATCH)
    TopicBook(tables).observe(found, BATCH)
    assert names(tables, ASSIGNMENTS) == names(tables, TOPICS) == ["orders"]


def _die(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


class Told(Cluster):
    """A cluster that returns these settings, refuses them, or does not answer."""

    def __init__(self, told: ClusterError | Mapping[str, str | None]) -> None:
        super().__init__("127.0.0.1:1")  # nobody is asked
        self.told = told

    def topic_settings(self, *_: str) -> dict[str, str | None]:
        if isinstance(self.told, ClusterError):
            raise self.told
        return dict(self.told)


def look(told: Mapping[str, str | None]) -> TopicSettings:
    settings = TopicSettings(Told(told), print)
    settings.look()
    return settings


def test_times_from_the_settings_have_a_margin() -> None:
    found = look({"delete.retention.ms": "1000", "max.message.bytes": "5", "min.compaction.lag.ms": "60000"})
    assert found.safe_retention == timedelta(milliseconds=900)
    assert found.largest_batch == 5
    assert found.uncompacted_for == timedelta(seconds=54)


def test_an_unknown_setting_has_kafkas_default() -> None:
    said: list[str] = []
    settings = TopicSettings(Told(UnauthorisedError("it lacks DESCRIBE_CONFIGS")), said.append)
    for _ in range(2):
        settings.look()
    assert said == [
        "Cannot read the settings of __consumer_offsets, assuming delete.retention.ms=24 h: it lacks DESCRIBE_CONFIGS"
    ]
    assert settings.safe_retention == 0.9 * timedelta(hours=24)
    assert settings.largest_batch == 1_048_588
    assert settings.uncompacted_for == timedelta(0)


def test_a_silent_cluster_does_not_change_the_settings() -> None:
    with pytest.raises(UnreachableError):
        TopicSettings(Told(UnreachableError("no broker answers")), print).look()


def test_times_may_be_as_long_as_kafka_allows() -> None:
    found = look({"delete.retention.ms": str(2**63 - 1), "min.compaction.lag.ms": str(2**63 - 1)})
    assert found.safe_retention > timedelta(days=10**6)
    assert found.uncompacted_for > timedelta(days=10**6)


def test_a_topic_that_is_not_compacted_loses_nothing() -> None:
    assert look({"cleanup.policy": "delete"}).uncompacted_for == timedelta.max
    assert look({"cleanup.policy": "compact,delete"}).uncompacted_for == timedelta(0)


def test_a_raised_setting_protects_records_from_that_time_on() -> None:
    """Before that, compaction could remove younger records."""
    cluster = Told({"min.compaction.lag.ms": "60000"})
    settings = TopicSettings(cluster, print)
    before = datetime.now(UTC)
    settings.look()
    first = settings.uncompacted_since
    assert before <= first <= datetime.now(UTC)
    for lag, changes in (("60000", False), ("1000", False), ("60000", True)):
        cluster.told = {"min.compaction.lag.ms": lag}
        settings.look()
        assert (settings.uncompacted_since > first) is changes


def test_one_warning_about_a_topic_whose_retention_deletes_records() -> None:
    said: list[str] = []
    cluster = Told({"cleanup.policy": "compact,delete", "retention.ms": "604800000", "retention.bytes": "-1"})
    settings = TopicSettings(cluster, said.append)
    for _ in range(2):
        settings.look()
    assert len(said) == 1
    assert said[0].startswith(
        "cleanup.policy of __consumer_offsets is compact,delete: retention (retention.ms=604800000, retention.bytes=-1)"
    )
    assert settings.forgets
    assert not look({"cleanup.policy": "compact"}).forgets
