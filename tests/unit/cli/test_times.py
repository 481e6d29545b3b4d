"""Times as people write them, in UTC where no zone is said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from offsetstream.cli.text import duration_text, parse_duration, parse_time

NOW = datetime(2026, 11, 22, 8, 54, 26, 141_000, UTC)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("now", "2026-11-22T08:54:26.141"),
        ("10m", "2026-11-22T08:44:26.141"),
        ("90s ago", "2026-11-22T08:52:56.141"),
        ("1d12h", "2026-11-20T20:54:26.141"),
        ("2w", "2026-11-08T08:54:26.141"),
        ("500ms", "2026-11-22T08:54:25.641"),
        ("03:00", "2026-11-22T03:00"),
        ("3:00", "2026-11-22T03:00"),
        ("08:54:26.141", "2026-11-22T08:54:26.141"),
        ("09:00", "2026-11-21T09:00"),  # today's is still to come
        ("today 09:00", "2026-11-22T09:00"),
        ("yesterday", "2026-11-21T00:00"),
        ("yesterday 03:00", "2026-11-21T03:00"),
        ("03:00+01:00", "2026-11-22T02:00"),
        ("03:00 Europe/Berlin", "2026-11-22T02:00"),
        ("09:30 Europe/Berlin", "2026-11-22T08:30"),
        ("00:30 Asia/Tokyo", "2026-11-21T15:30"),  # where it is evening already
        ("2026-11-21", "2026-11-21T00:00"),
        ("2026-11-21T03:00", "2026-11-21T03:00"),
        ("2026-11-21 03:00:01.5", "2026-11-21T03:00:01.5"),
        ("2026-11-21T03:00Z", "2026-11-21T03:00"),
        ("2026-11-21T03:00:00.123456Z", "2026-11-21T03:00:00.123456"),
        ("2026-11-21T03:00-0500", "2026-11-21T08:00"),
        ("2026-07-21T03:00 Europe/Berlin", "2026-07-21T01:00"),
    ],
)
def test_time_is_parsed(text: str, instant: str) -> None:
    assert parse_time(text, NOW) == datetime.fromisoformat(instant).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "instant"),
    [
        ("2026-10-25T00:29", "2026-10-24T00:30"),
        ("2026-10-25T00:45", "2026-10-25T00:30"),
        ("2026-10-25T01:45", "2026-10-25T01:30"),
        ("2026-03-29T01:15", "2026-03-28T01:30"),  # on that day there is none
    ],
)
def test_time_of_day_is_its_last_occurrence_when_clocks_change(now: str, instant: str) -> None:
    asked = datetime.fromisoformat(now).replace(tzinfo=UTC)
    assert parse_time("02:30 Europe/Berlin", asked) == datetime.fromisoformat(instant).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "soon",
        "Z",
        "25:00",
        "2026-13-01",
        "10",
        "10x",
        "-5m",
        "03:00 Mars/Base",
        "03:00 America/Argentina",
        "999999999w",
        "٣m",
    ],
)
def test_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time.*without a zone it is UTC"):
        parse_time(text, NOW)


def test_duration_is_parsed() -> None:
    assert parse_duration("1d 2h") == timedelta(hours=26)
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration("03:00")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, None),
        (0, "0 s"),
        (0.2, "0 s"),
        (940, "940 ms"),
        (1_240, "1.2 s"),
        (91_000, "1 min 31 s"),
        (59_999, "59 s"),
        (3_600_000, "1 h"),
        (273_600_000, "3 d 4 h"),
        (-91_000, "-1 min 31 s"),
    ],
)
def test_duration_is_printed_in_its_two_largest_units(milliseconds: float | None, text: str | None) -> None:
    assert duration_text(milliseconds) == text
