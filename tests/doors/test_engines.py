"""Each engine that reads Delta by itself, on each table of the recorded night."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from offsetstream.tables.beside import THRESHOLDS
from offsetstream.tables.path_store import PathStore
from testkit.engines import require_that_all_read
from testkit.night import FIXTURE

# Thresholds are the user's: look-ups, which are among the engines, read them by the views alone.
FILES = [file for file in sorted(FIXTURE.glob("*.parquet")) if file.stem != THRESHOLDS.name]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_engine_reads_the_table(night: Path, file: Path) -> None:
    rows = require_that_all_read(PathStore(str(night)), file.stem)
    assert rows == pq.read_metadata(file).num_rows
