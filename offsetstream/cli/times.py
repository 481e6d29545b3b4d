"""Times as commands print them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(milliseconds: int | None) -> str | None:
    """Return the time in UTC as ISO 8601; a number that is no such time (clients may send any) as it is."""
    if milliseconds is None:
        return None
    try:
        time = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
