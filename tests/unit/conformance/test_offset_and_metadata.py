"""A commit from its record (reference 9.5)."""

from __future__ import annotations

import pytest

from offsetstream.codec.record_layouts import ZERO_UUID
from offsetstream.coordinator.replay.offsets import OffsetAndMetadata, offset_from_value
from offsetstream.errors import IllegalStateError
from tests.conformance.builder import T1

KAFKA_CLASS = "OffsetAndMetadataTest"
VALUE = {"offset": 100, "metadata": "m", "commitTimestamp": 5}


def test_from_record() -> None:
    none = VALUE | {"leaderEpoch": -1, "expireTimestamp": -1, "topicId": ZERO_UUID}
    assert offset_from_value(none, 7) == OffsetAndMetadata(100, "m", 5, record_offset=7)
    some = VALUE | {"leaderEpoch": 12, "expireTimestamp": 9, "topicId": T1}
    assert offset_from_value(some, 7) == OffsetAndMetadata(100, "m", 5, 12, 9, T1, 7)
    assert offset_from_value(VALUE, 7) == OffsetAndMetadata(100, "m", 5, record_offset=7)


def test_only_what_was_appended_has_a_place() -> None:
    assert OffsetAndMetadata(1).appended_at(3).older_than(OffsetAndMetadata(1).appended_at(4))
    assert not OffsetAndMetadata(1).appended_at(3).older_than(OffsetAndMetadata(1).appended_at(3))
    with pytest.raises(IllegalStateError):
        OffsetAndMetadata(1).older_than(OffsetAndMetadata(1).appended_at(4))
