"""The day of tests whose code asks for the day itself."""

import time
from datetime import UTC, date, datetime, timedelta

MARGIN = timedelta(seconds=30)


def today() -> date:
    """Return the day in UTC; shortly before midnight the next one, once it has begun, so that a test has one day."""
    while (now := datetime.now(UTC)).date() != (now + MARGIN).date():
        time.sleep(1)
    return now.date()
