"""Each engine that reads Delta without us, on each table of the recorded night."""

from __future__ import annotations

from pathlib import Path

import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import THRESHOLDS
from testkit.engines import require_that_all_read
from testkit.night import FIXTURE
from testkit.s3_server import in_environment, s3_server
from tests.stores.azure_store import CONTAINER, azure_store

# Thresholds belong to the user: look-ups, one of the engines, read them through the views only.
FILES = [file for file in sorted(FIXTURE.glob("*.parquet")) if file.stem != THRESHOLDS.name]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_engine_reads_the_table(night: Path, file: Path) -> None:
    rows = require_that_all_read(PathStore(str(night)), file.stem)
    assert rows == pq.read_metadata(file).num_rows


@pytest.mark.nightly
def test_every_engine_reads_s3(night: Path) -> None:
    with s3_server() as s3, in_environment(s3.environment):
        pafs.copy_files(str(night), f"{s3.bucket}/tables", destination_filesystem=s3.files())
        require_that_all_read_all(f"s3://{s3.bucket}/tables")


@pytest.mark.nightly
def test_every_engine_reads_azure(night: Path) -> None:
    with azure_store() as azure, in_environment(azure.environment):
        pafs.copy_files(str(night), f"{CONTAINER}/tables", destination_filesystem=azure.files)
        require_that_all_read_all(f"{azure.uri}/tables")


def require_that_all_read_all(root: str) -> None:
    found = {file.stem: require_that_all_read(PathStore(root), file.stem) for file in FILES}
    assert found == {file.stem: pq.read_metadata(file).num_rows for file in FILES}
