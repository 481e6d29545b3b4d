"""Every log of tests/conformance, once as a load, and once as the load of nothing and its batches after it."""

from __future__ import annotations

import pytest

from offsetstream.coordinator import GroupMetadataCache
from offsetstream.coordinator.partitioning import Coordinator
from tests.conformance.case import Case
from tests.conformance.cases import CASES

PAIRS = [
    pytest.param(case, coordinator, id=f"{case.kafka_class}-{case.name}-{coordinator}")
    for case in CASES
    for coordinator in case.coordinators
]


@pytest.mark.parametrize(("case", "coordinator"), PAIRS)
def test_loaded(case: Case, coordinator: Coordinator) -> None:
    cache = GroupMetadataCache(coordinator)
    result = cache.load_partition(0, case.batches)
    assert result.status == ("failed" if case.fails else "loaded"), result.error
    assert case.differences(cache.snapshot()) == {}


@pytest.mark.parametrize(("case", "coordinator"), PAIRS)
def test_batch_by_batch(case: Case, coordinator: Coordinator) -> None:
    cache = GroupMetadataCache(coordinator)
    cache.load_partition(0, ())
    statuses = {cache.apply(0, [batch]).status for batch in case.batches}
    assert ("failed" in statuses) == case.fails
    assert case.differences(cache.snapshot()) == {}


def test_names_are_unique() -> None:
    names = [(case.kafka_class, case.name) for case in CASES]
    assert len(names) == len(set(names))
