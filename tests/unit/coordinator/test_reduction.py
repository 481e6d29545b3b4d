"""Reduced and merged batches give the same state as the model, wherever the log is cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offsetstream.codec.decoding import COMMIT_KEY_TYPES
from offsetstream.codec.record_layouts import record_types
from offsetstream.coordinator import GroupMetadataCache
from offsetstream.coordinator.partitioning import Coordinator
from offsetstream.coordinator.reduction import GROUP_KEY_TYPES, group_facts, last_record_per_cell, new_coordinator_keeps
from testkit.examples import examples
from tests.conformance.case import BOTH
from tests.conformance.histories import History
from tests.conformance.pure_tables import PureTables, consumed, decoded_records
from tests.conformance.state_rows import without_empty_assignments
from tests.conformance.valid_histories import valid_histories


def model(history: History, coordinator: Coordinator) -> dict[str, Any]:
    cache = GroupMetadataCache(coordinator)
    result = cache.load_partition(0, history.batches)
    assert result.status == "loaded", result.error
    return without_empty_assignments(cache.snapshot())


@pytest.mark.parametrize("coordinator", BOTH)
def test_reduced_batches_equal_a_replay(coordinator: Coordinator) -> None:
    @settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
    @given(history=valid_histories(coordinator), data=st.data())
    def check(history: History, data: st.DataObject) -> None:
        records = consumed(history.batches)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=5)))
        tables = PureTables(coordinator)
        for start, end in pairwise([0, *cuts, len(records)]):
            tables.apply(records[start:end])
        tables.apply(records[cuts[-1] if cuts else 0 :])  # the last batch again
        assert tables.snapshot() == model(history, coordinator)

    check()


@pytest.mark.parametrize(
    ("commit", "tombstone", "existed", "keeps"),
    [
        pytest.param(None, None, False, False, id="never was"),
        pytest.param(None, None, True, True, id="stays"),
        pytest.param(0, None, False, True, id="made by a commit"),
        pytest.param(5, 7, True, False, id="removed after a commit"),
        pytest.param(7, 5, True, True, id="made again"),
        pytest.param(None, 0, True, False, id="removed"),
    ],
)
def test_a_commit_makes_a_group_until_its_tombstone(
    commit: int | None, tombstone: int | None, existed: bool, keeps: bool
) -> None:
    facts = pa.table(
        {"commit_offset": pa.array([commit], pa.int64()), "tombstone_offset": pa.array([tombstone], pa.int64())}
    )
    assert new_coordinator_keeps(facts, pa.array([existed])).to_pylist() == [keeps]


@pytest.mark.parametrize("coordinator", BOTH)
def test_facts_equal_those_of_a_plain_loop(coordinator: Coordinator) -> None:
    @settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])
    @given(history=valid_histories(coordinator))
    def check(history: History) -> None:
        decoded = decoded_records(consumed(history.batches))
        commits, _ = last_record_per_cell(decoded)
        found = {
            (row.pop("offsets_partition"), row.pop("group_id")): row
            for row in group_facts(decoded, commits).to_pylist()
        }
        assert found == plain_facts(decoded, commits)

    check()


def plain_facts(decoded: pa.Table, commits: pa.Table) -> dict[tuple[int, str], dict[str, Any]]:
    found: dict[tuple[int, str], dict[str, Any]] = {}
    nothing = {"commit_offset": None, "tombstone_offset": None, "is_touched": False}
    for row in decoded.to_pylist():
        if row["error"] is not None:
            continue
        home = {"in_coordinator_partition": row["in_coordinator_partition"]}
        facts = found.setdefault((row["offsets_partition"], row["group_id"]), home | nothing)
        if row["key_type"] in COMMIT_KEY_TYPES:
            facts["commit_offset"] = _later(facts["commit_offset"], row["value_offset"])
        else:
            facts["is_touched"] = True
            if row["key_type"] in GROUP_KEY_TYPES:
                facts["tombstone_offset"] = _later(facts["tombstone_offset"], row["tombstone_offset"])
    for row in commits.to_pylist():
        found[row["offsets_partition"], row["group_id"]]["is_touched"] |= row["is_tombstone"]
    return found


def _later(before: int | None, now: int | None) -> int | None:
    return before if now is None else now


@pytest.mark.parametrize("key_type", [key_type for key_type in sorted(record_types()) if key_type > 1])
def test_the_tombstone_of_a_groups_own_record_alone_removes_it(key_type: int) -> None:
    """The GroupMetadata records of classic, consumer, share and streams groups."""
    row = {"offsets_partition": 0, "group_id": "g", "in_coordinator_partition": True, "key_type": key_type}
    tombstone = {"error": None, "is_tombstone": True, "record_offset": 9, "value_offset": 3, "tombstone_offset": 9}
    decoded = pa.Table.from_pylist([row | tombstone])
    (facts,) = group_facts(decoded, decoded.slice(1)).to_pylist()
    is_of_a_group = record_types()[key_type].name.endswith("GroupMetadata")
    assert (facts["tombstone_offset"], facts["is_touched"]) == (9 if is_of_a_group else None, True)
