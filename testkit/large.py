"""Have the job process few records as it processes those that are too many for the driver."""

import pytest

from offsetstream.stream.apply import log_pass
from offsetstream.tables import size


def exceed_the_driver(monkeypatch: pytest.MonkeyPatch, rows: int = 1) -> None:
    """Have no more than `rows` rows fit the driver, and tasks bring none with their reports."""
    monkeypatch.setattr(size, "SMALL_ROWS", rows)
    monkeypatch.setattr(log_pass, "_COLLECTED_BYTES", 0)
