from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from offsetstream.metrics.families import job_families
from offsetstream.metrics.job_metrics import JobMetrics, ReplayPosition

OF_GROUPS = "offsetstream_group_"  # present after the first read of the tables


def values(metrics: JobMetrics) -> dict[tuple[str, ...], float]:
    """Return the samples of a scrape by metric name and label values."""
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def test_every_declared_metric_is_served_as_declared() -> None:
    metrics = JobMetrics()
    metrics.belongs_to("cluster-1")
    metrics.table("groups", 3, 1000)
    families = {each.name: each for each in text_string_to_metric_families(generate_latest(metrics.registry).decode())}
    for declared in job_families().values():
        if not declared.name.startswith(OF_GROUPS):
            found = families[declared.name.removesuffix("_total")]
            assert (found.type, found.documentation) == (declared.type, declared.help)
            labels = {tuple(sorted(each.labels)) for each in found.samples if "le" not in each.labels}
            assert labels == {tuple(sorted(declared.labels))}, declared.name


def test_batches_are_counted() -> None:
    metrics = JobMetrics()
    assert values(metrics)["offsetstream_records_total", "offset_commits"] == 0
    metrics.batch({"offset_commits": 5, "undecodable_records": 0}, 0.2)
    metrics.batch({"offset_commits": 2, "undecodable_records": 1}, 3.0, filtered=4)
    metrics.filtered(3)
    found = values(metrics)
    assert found["offsetstream_records_total", "offset_commits"] == 7
    assert found["offsetstream_undecodable_records_total",] == 1
    assert found["offsetstream_filtered_records_total",] == 7
    assert found["offsetstream_batch_seconds_count",] == 2
    assert found["offsetstream_batch_seconds_bucket", "0.25"] == 1
    assert found["offsetstream_last_batch_timestamp_seconds",] > 1e9


def test_every_partition_state_has_a_series() -> None:
    metrics = JobMetrics()
    metrics.watch(lambda: ReplayPosition(by_state={"owned": 49, "failed": 1}, hanging=2, blocked=3, leaderless=4))
    found = values(metrics)
    states = {
        name: found["offsetstream_offsets_partitions", name] for name in ("owned", "loading", "failed", "unloaded")
    }
    assert states == {"owned": 49, "loading": 0, "failed": 1, "unloaded": 0}
    assert found["offsetstream_hanging_transactions",] == 2
    assert found["offsetstream_blocked_partitions",] == 3
    assert found["offsetstream_leaderless_partitions",] == 4
