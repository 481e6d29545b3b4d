"""The pure functions that reduce and merge batches make what the model holds, wherever the log is cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offsetstream.coordinator import GroupMetadataCache
from offsetstream.coordinator.kinds import Coordinator
from testkit.examples import examples
from tests.conformance.case import BOTH
from tests.conformance.histories import History
from tests.conformance.pure_tables import PureTables, consumed
from tests.conformance.state_rows import without_empty_assignments
from tests.conformance.valid_histories import valid_histories


def model(history: History, coordinator: Coordinator) -> dict[str, Any]:
    cache = GroupMetadataCache(coordinator)
    result = cache.load_partition(0, history.batches)
    assert result.status == "loaded", result.error
    return without_empty_assignments(cache.snapshot())


@pytest.mark.parametrize("coordinator", BOTH)
def test_batches_are_a_replay(coordinator: Coordinator) -> None:
    @settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
    @given(history=valid_histories(coordinator), data=st.data())
    def check(history: History, data: st.DataObject) -> None:
        records = consumed(history.batches)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=5)))
        tables = PureTables(coordinator)
        for begin, end in pairwise([0, *cuts, len(records)]):
            tables.apply(records[begin:end])
        tables.apply(records[cuts[-1] if cuts else 0 :])  # the last batch once more
        assert tables.snapshot() == model(history, coordinator)

    check()
