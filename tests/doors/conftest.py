"""What these tests share: the tables of the recorded night."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.night import night_tables


@pytest.fixture(scope="session")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("night") / "tables"
    night_tables(root)
    return root
