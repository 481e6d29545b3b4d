"""Metrics of groups and coordinators, read from tables on disk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from offsetstream.errors import UsageError
from offsetstream.metrics.families import COORDINATORS, queried_families
from offsetstream.metrics.group_metrics import GroupMetrics, Shown
from offsetstream.tables.path_store import PathStore
from testkit.tables import append_rows, new_tables

NOW = datetime.now(UTC).replace(microsecond=0)
HOSTILE = 'a\n"b"\\{c="d"}'
NAMES = ("kafka-exporter", "kminion")
LEFT_OUT = "offsetstream_group_series_dropped"
OF_THE_READ = {"offsetstream_group_metrics_timestamp_seconds", "offsetstream_group_metrics_seconds", LEFT_OUT}
Series = dict[tuple[str, ...], float]


def committed(group: str, topic: str, offset: int) -> dict[str, Any]:
    place = {"offsets_partition": 1, "log_id": 0, "group_id": group, "topic": topic, "partition": 0}
    at = {"commit_timestamp": NOW, "commit_timestamp_ms": int(NOW.timestamp() * 1000), "record_timestamp": NOW}
    return {**place, **at, "record_offset": offset, "committed_offset": offset, "in_coordinator_partition": True}


def group(name: str, kind: str, state: str, members: int) -> dict[str, Any]:
    told = {"offsets_partition": 1, "log_id": 0, "group_id": name, "group_type": kind, "state": state}
    return told | {"member_count": members, "in_coordinator_partition": True, "record_offset": 1}


@pytest.fixture
def tables(tmp_path: Path) -> PathStore:
    new_tables(tmp_path)
    append_rows(tmp_path, "offsets_partitions", [{"offsets_partition": 1, "log_id": 0, "coordinator_id": 3}])
    groups = [group("billing", "Consumer", "Stable", 2), group("search", "Classic", "Empty", 0)]
    append_rows(tmp_path, "groups", [*groups, group(HOSTILE, "Classic", "Stable", 1)])
    append_rows(
        tmp_path,
        "committed_offsets",
        [
            committed("billing", "orders", 41),
            committed("billing", "invoices", 5),
            committed("search", "orders", 50),
            committed(HOSTILE, "orders", 49),
            committed("search", "no-samples", 3),
        ],
    )
    ends = {"partition": 0, "log_start_offset": 2, "sampled_at": NOW, "changed_at": NOW}
    append_rows(
        tmp_path,
        "topic_partitions",
        [
            ends | {"topic": topic, "high_watermark": end, "last_stable_offset": end}
            for topic, end in (("orders", 50), ("invoices", 6))
        ],
    )
    return PathStore(str(tmp_path))


def scraped(tables: PathStore, shown: Shown) -> Series:
    """Return the samples of a scrape by metric name and label values, the labels in the order of their names."""
    registry, metrics = CollectorRegistry(), GroupMetrics(shown, 15.0, print)
    registry.register(metrics)
    metrics.read(tables)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def of(name: str, found: Series) -> Series:
    return {labels[1:]: value for labels, value in found.items() if labels[0] == name}


def test_kafka_exporter_names_are_served(tables: PathStore) -> None:
    found = scraped(tables, Shown("kafka-exporter"))
    lag = {("billing", "0", "orders"): 9, ("billing", "0", "invoices"): 1, ("search", "0", "orders"): 0}
    assert of("kafka_consumergroup_lag", found) == lag | {(HOSTILE, "0", "orders"): 1}
    assert of("kafka_consumergroup_current_offset", found)["search", "0", "no-samples"] == 3
    assert of("kafka_consumergroup_lag_sum", found)["billing", "orders"] == 9
    assert ("search", "no-samples") not in of("kafka_consumergroup_lag_sum", found)
    assert of("kafka_consumergroup_members", found) == {("billing",): 2, ("search",): 0, (HOSTILE,): 1}
    assert of("kafka_topic_partition_current_offset", found) == {("0", "orders"): 50, ("0", "invoices"): 6}
    assert of("kafka_topic_partition_oldest_offset", found) == {("0", "orders"): 2, ("0", "invoices"): 2}


def test_an_unreachable_partition_shows_no_end_offset(tables: PathStore, tmp_path: Path) -> None:
    place = {"topic": "no-samples", "partition": 0, "sampled_at": NOW, "changed_at": NOW, "error": "no leader"}
    append_rows(tmp_path, "topic_partitions", [place | {"log_start_offset": 0, "high_watermark": 9}])
    found = scraped(tables, Shown("kafka-exporter"))
    assert of("kafka_topic_partition_current_offset", found) == {("0", "orders"): 50, ("0", "invoices"): 6}


def test_kminion_names_are_served(tables: PathStore) -> None:
    found = scraped(tables, Shown("kminion"))
    assert of("kminion_kafka_consumer_group_topic_partition_lag", found)["billing", "0", "orders"] == 9
    assert of("kminion_kafka_consumer_group_topic_lag", found)["billing", "invoices"] == 1
    info = of("kminion_kafka_consumer_group_info", found)
    assert info == {
        ("3", "billing", "", "", "Stable"): 1,
        ("3", "search", "", "", "Empty"): 0,
        ("3", HOSTILE, "", "", "Stable"): 1,
    }


def test_coordinator_gauges_are_served_whatever_the_group_metrics_are(tables: PathStore) -> None:
    found = scraped(tables, Shown(None))
    kafka = "kafka_coordinator_group_groupmetadatamanager_"
    assert of(f"{kafka}numgroups", found) == {("3",): 2}
    assert of(f"{kafka}numgroupsstable", found) == {("3",): 1}
    assert of(f"{kafka}numgroupsempty", found) == {("3",): 1}
    assert of(f"{kafka}numoffsets", found) == {("3",): 5}
    by_protocol = of("kafka_server_group_coordinator_metrics_group_count", found)
    assert by_protocol == {("3", "consumer"): 1, ("3", "classic"): 2}
    assert of("kafka_server_group_coordinator_metrics_consumer_group_count", found) == {("3", "Stable"): 1}
    assert not any(name.startswith("kafka_consumergroup") for name, *_ in found)


@pytest.mark.parametrize("names", NAMES)
def test_group_level_follows_its_verdict(tables: PathStore, tmp_path: Path, names: str) -> None:
    """Without a history nothing shows whether a group with unread messages has stopped."""
    found = scraped(tables, Shown(names, groups="billing|search"))
    assert of("offsetstream_group_level", found) == {("billing", "unknown"): 1, ("search", "unknown"): 1}
    long_ago = {"commit_timestamp_ms": round((NOW - timedelta(hours=1)).timestamp() * 1000)}
    rows = [committed("billing", "orders", 41) | long_ago, committed("billing", "invoices", 5) | long_ago]
    append_rows(tmp_path, "offset_commits", rows)
    found = scraped(tables, Shown(names, groups="billing"))
    assert of("offsetstream_group_level", found) == {("billing", "stopped"): 3}


def test_patterns_match_complete_names(tables: PathStore) -> None:
    found = scraped(tables, Shown("kafka-exporter", groups="bill.*|a.*", topics="order."))
    assert set(of("kafka_consumergroup_lag", found)) == {("billing", "0", "orders"), (HOSTILE, "0", "orders")}
    assert set(of("kafka_consumergroup_members", found)) == {("billing",), (HOSTILE,)}
    assert set(of("kafka_topic_partitions", found)) == {("orders",)}
    assert of("kafka_consumergroup_lag", scraped(tables, Shown("kafka-exporter", groups="bill"))) == {}


@pytest.mark.parametrize(
    ("groups", "topics", "named"), [("(", ".*", "metrics-groups"), (".*", "(?=x)", "metrics-topics")]
)
def test_an_invalid_pattern_is_a_one_line_error(groups: str, topics: str, named: str) -> None:
    with pytest.raises(UsageError, match=rf"^the setting {named}: .+ is not a regular expression: .+$"):
        Shown("kminion", groups, topics).require_patterns()


@pytest.mark.parametrize("names", NAMES)
def test_over_the_limit_all_partition_series_are_dropped_first(tables: PathStore, names: str) -> None:
    whole = scraped(tables, Shown(names))
    own = {series for series in whole if series[0] not in OF_THE_READ and series not in _coordinators(whole)}
    seen: set[tuple[str, ...]] = set()
    for most in (0, len(own) // 2, len(own) - 1, len(own)):
        found = scraped(tables, Shown(names, max_series=most))
        shown = set(found) & own
        assert len(shown) <= most
        assert found[LEFT_OUT,] == len(own) - len(shown)
        for name in {series[0] for series in shown}:
            assert of(name, found) == of(name, whole)
        seen |= shown
    assert seen == own
    finest = queried_families(names)[-1].families[0].name
    assert of(finest, scraped(tables, Shown(names, max_series=len(own) - 1))) == {}


def _coordinators(whole: Series) -> Sequence[tuple[str, ...]]:
    names = {family.name for each in queried_families(COORDINATORS) for family in each.families}
    return [series for series in whole if series[0] in names]


def test_unreadable_tables_are_logged_once_and_the_last_metrics_stay(tables: PathStore, tmp_path: Path) -> None:
    said: list[str] = []
    metrics = GroupMetrics(Shown("kminion"), 0.01, said.append)
    metrics.read(tables)
    before = {family.name for family in metrics.collect()}
    metrics.try_to_read(PathStore(str(tmp_path / "none")))
    metrics.try_to_read(PathStore(str(tmp_path / "none")))
    assert [line.partition(":")[0] for line in said] == ["The metrics of groups stay as they were for now"]
    assert {family.name for family in metrics.collect()} == before
    metrics.try_to_read(tables)
    assert said[1:] == ["The metrics of groups are of now again"]


@pytest.mark.parametrize("names", NAMES)
def test_groups_of_a_stale_offsets_partition_have_no_series(tables: PathStore, tmp_path: Path, names: str) -> None:
    """A series that never changes would suggest that the group has stopped."""
    shown = scraped(tables, Shown(names))
    assert any("billing" in labels for labels in shown)
    ((age,),) = [list(of("offsetstream_tables_age_seconds", shown).values())]
    assert 0 <= age < 3600
    long_ago = {"caught_up_at": NOW - timedelta(hours=2)}
    DeltaTable(tmp_path / "offsets_partitions").delete()
    append_rows(tmp_path, "offsets_partitions", [{"offsets_partition": 1, "log_id": 0, "coordinator_id": 3} | long_ago])
    shown = scraped(tables, Shown(names))
    assert not any({"billing", "search"} & set(labels) for labels in shown)
    ((age,),) = [list(of("offsetstream_tables_age_seconds", shown).values())]
    assert 7200 <= age < 10_800


def test_a_scrape_after_a_pause_shows_no_old_values(tables: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without scrapes nobody reads the tables. The next scrape only has the time of the last read, for alerts."""
    metrics = GroupMetrics(Shown("kminion"), 15.0, print)
    metrics.read(tables)
    assert list(metrics.collect())
    hour_later = time.monotonic() + 3600
    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: hour_later)
        assert {family.name for family in metrics.collect()} == OF_THE_READ
        metrics.read(tables)
        assert list(metrics.collect())
