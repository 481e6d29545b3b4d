"""The new coordinator's loader (reference 9.5); its logs are in tests/conformance."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from offsetstream.codec.batches import RecordBatch
from offsetstream.coordinator.cache import GroupMetadataCache
from offsetstream.errors import SegmentError
from tests.conformance.builder import Log, commits

KAFKA_CLASS = "CoordinatorLoaderImplTest"


def test_load_summary() -> None:
    log = Log().write(*commits(foo_0=1, foo_1=2)).empty().write(*commits(bar_0=3), producer=7).end(7)
    result = GroupMetadataCache("new").load_partition(0, log.batches)
    assert (result.records, result.groups, result.offsets) == (4, 1, 3)
    assert result.size == sum(batch.size for batch in log.batches)


def test_partition_goes_offline_during_load() -> None:
    def batches() -> Iterator[RecordBatch]:
        yield from Log().write(*commits(foo_0=1)).batches
        raise SegmentError("the segment ends in the middle of a batch")

    cache = GroupMetadataCache("new")
    with pytest.raises(SegmentError):
        cache.load_partition(0, batches())
    assert cache.snapshot() == {"groups": [], "offsets": []}
    assert cache.ownership.failed == {0}
    assert cache.ownership.loading == set()
