"""A log replayed up to any offset, and then from there, gives the same state as one replay."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offsetstream.coordinator import GroupMetadataCache
from offsetstream.coordinator.partitioning import Coordinator
from testkit.examples import examples
from tests.conformance.case import BOTH
from tests.conformance.histories import History, histories

OnBad = Literal["fail", "skip"]
END = 1 << 40
WAYS: list[tuple[Coordinator, OnBad]] = [(coordinator, on_bad) for coordinator in BOTH for on_bad in ("skip", "fail")]


def complete_state(cache: GroupMetadataCache) -> dict[str, Any]:
    """Return a coordinator's complete state: the snapshot, and the commits of open transactions."""
    pending = {
        (group_id, producer): {place: commit.offset for place, commit in cells.items()}
        for replay in cache.partitions()
        for group_id, offsets in replay.offsets.items()
        for producer, cells in offsets.pending.items()
    }
    return cache.snapshot() | {"pending": pending, "owned": cache.is_partition_owned(0)}


def replayed(history: History, cuts: list[int], coordinator: Coordinator, on_bad_record: OnBad) -> dict[str, Any]:
    cache = GroupMetadataCache(coordinator, on_bad_record=on_bad_record)
    load, *parts = pairwise([0, *cuts, END])
    cache.load_partition(0, history.between(*load))
    for part in parts:
        cache.apply(0, history.between(*part))
    return complete_state(cache)


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
@given(history=histories(), data=st.data())
def test_a_replay_in_parts_equals_one_replay(history: History, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.sampled_from(history.offsets), max_size=4, unique=True)))
    for coordinator, on_bad_record in WAYS:
        whole = replayed(history, [], coordinator, on_bad_record)
        assert replayed(history, cuts, coordinator, on_bad_record) == whole
