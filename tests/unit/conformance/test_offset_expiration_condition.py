"""The instant at which a commit expires (reference 9.5)."""

from __future__ import annotations

import pytest

from offsetstream.coordinator.replay.offsets import OffsetAndMetadata

KAFKA_CLASS = "OffsetExpirationConditionImplTest"


@pytest.mark.parametrize(
    ("expiry", "now", "expired"),
    [
        (None, 1499, False),
        (None, 1500, True),
        (None, 1501, True),
        (700, 699, False),
        (700, 700, True),
        (9999, 1500, False),
    ],
)
def test_is_offset_expired(expiry: int | None, now: int, expired: bool) -> None:
    commit = OffsetAndMetadata(1, "", 5, expire_timestamp_ms=expiry)
    assert commit.is_expired(500, now, 1000) == expired
