"""The series of a scrape of the job, as their declarations give them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, ProcessCollector

from offsetstream.metrics.families import COORDINATORS, GROUPS, Family, job_families, queried_families

LABELS_OF_SCRAPES = {"cluster", "job", "instance"}


def declared_labels() -> dict[str, set[str]]:
    """Return the labels of each series by name: our families, the process metrics, and what Prometheus adds."""
    found: dict[str, set[str]] = {"up": set()}
    for metric in ProcessCollector(registry=CollectorRegistry()).collect():
        found |= {sample.name: set() for sample in metric.samples}
    queried = [
        each
        for file in (COORDINATORS, GROUPS, "kafka-exporter")
        for rows in queried_families(file)
        for each in rows.families
    ]
    for family in [*job_families().values(), *queried]:
        found |= {name: set(family.labels) for name in _series(family)}
    return found


def _series(family: Family) -> list[str]:
    if family.type != "histogram":
        return [family.name]
    return [f"{family.name}_{part}" for part in ("bucket", "sum", "count")]
