"""Where a reset goes: an offset outside the log becomes the nearest one in it."""

from __future__ import annotations

import pytest

from offsetstream.cluster.answers import CommittedOffset
from offsetstream.cluster.log_ends import LogEnd
from offsetstream.operations.reset import in_log


@pytest.mark.parametrize(
    ("asked", "start", "nearest"),
    [(4, 5, 5), (5, 5, 5), (7, 5, 7), (9, 5, 9), (10, 5, 9), (-1, 5, 5), (3, None, 3), (-1, None, 0), (None, 5, 5)],
)
def test_an_offset_outside_the_log_becomes_the_nearest_in_it(
    asked: int | None, start: int | None, nearest: int
) -> None:
    end = LogEnd(None, 1, 0, log_start_offset=start, high_watermark=9, last_stable_offset=9)
    assert in_log(CommittedOffset(asked), end).offset == nearest


def test_an_offset_inside_the_log_is_unchanged() -> None:
    end = LogEnd(None, 1, 0, log_start_offset=5, high_watermark=9, last_stable_offset=9)
    asked = CommittedOffset(6, leader_epoch=3, metadata="note")
    assert in_log(asked, end) is asked
