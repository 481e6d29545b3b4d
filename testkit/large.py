"""Have the job process few records as it processes those that are too many for the driver."""

import pytest

from offsetstream.stream.apply import log_pass


def exceed_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no more than one row fit the driver, and tasks bring none with their reports."""
    monkeypatch.setattr("offsetstream.tables.rows.SMALL_ROWS", 1)
    monkeypatch.setattr(log_pass, "_COLLECTED_BYTES", 0)
