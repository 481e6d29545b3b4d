"""Our coordinator gauges equal the broker's own gauges of the same names (JMX)."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from offsetstream.embedded.clients import admin_client
from offsetstream.metrics.families import COORDINATORS, queried_families
from offsetstream.metrics.group_metrics import GroupMetrics, Shown
from testkit.waiting import await_
from tests.kafka.admin_answers import list_groups
from tests.kafka.every_group.all_groups import CLASSIC, NEWEST, AllGroups
from tests.kafka.jmx import mbeans
from tests.kafka.jobs import JobRunner

pytestmark = pytest.mark.nightly

_PREFIX = "kafka_coordinator_group_groupmetadatamanager_"
_OF_EMPTY, _COUNT = (
    (f"{_PREFIX}numgroups", f"{_PREFIX}numgroupsempty"),
    "kafka_server_group_coordinator_metrics_group_count",
)
_GROUPS = "kafka.coordinator.group:type=GroupMetadataManager,name="
_SERVER = "kafka.server:type=group-coordinator-metrics,"


def broker_gauges(found: dict[str, float]) -> dict[tuple[str, ...], float]:
    """Return the attributes by the names that the JMX exporter gives them."""
    server = "kafka_server_group_coordinator_metrics_"
    named: dict[tuple[str, ...], float] = {}
    for name in ("NumGroups", "NumOffsets", "NumGroupsStable", "NumGroupsEmpty"):
        named[_PREFIX + name.lower(),] = found[f"{_GROUPS}{name}:Value"]
    for attribute, value in found.items():
        label, _, metric = attribute.removeprefix(_SERVER).partition(":")
        if attribute.startswith(_SERVER) and metric in ("group-count", "consumer-group-count"):
            named[server + metric.replace("-", "_"), label.partition("=")[2]] = value
    return named


@pytest.mark.parametrize("every_group", [CLASSIC, "4.3.1", NEWEST], indirect=True)
def test_every_gauge_equals_the_brokers(every_group: AllGroups, spark: SparkSession, tmp_path: Path) -> None:
    server = every_group.kafka.bootstrap_server
    runner = JobRunner(spark, server, tmp_path)
    runner.run_once()
    metrics = GroupMetrics(Shown(None), 15.0, print)
    metrics.read(runner.tables)
    declared = {family.name for each in queried_families(COORDINATORS) for family in each.families}
    samples = [each for family in metrics.collect() if family.name in declared for each in family.samples]
    assert {each.labels["coordinator"] for each in samples} == {"1"}
    ours = {
        (each.name, *(value for label, value in each.labels.items() if label != "coordinator")): each.value
        for each in samples
        if each.value
    }
    # A broker also counts and lists groups without records, such as after an aborted transaction.
    written = {row[0] for row in runner.rows("groups", "group_id")}
    unwritten = [each for each in list_groups(admin_client(server)) if each.group_id not in written]
    assert {(each.group_type, each.state) for each in unwritten} <= {("Classic", "Empty")}
    for series in ours:
        if series[0] in _OF_EMPTY or series == (_COUNT, "classic"):
            ours[series] += len(unwritten)
    brokers: dict[tuple[str, ...], float] = {}

    def are_equal() -> bool:  # the broker updates its counts once a minute
        brokers.clear()
        brokers.update(broker_gauges(mbeans(every_group.jmx_port, f"{_GROUPS}*", f"{_SERVER}*")))
        known = {series[0] for series in brokers}  # a broker of 3.9 has no counts by protocol
        return {series: value for series, value in brokers.items() if value} == {
            series: value for series, value in ours.items() if series[0] in known
        }

    await_(
        are_equal,
        lambda: f"of ours {sorted(ours.items() - brokers.items())}, theirs {sorted(brokers.items() - ours.items())}",
        pause=5,
    )
