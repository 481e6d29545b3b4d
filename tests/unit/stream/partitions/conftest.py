from pathlib import Path

import pytest

from offsetstream.stream.partitions.partition_book import PartitionBook
from offsetstream.tables.create import create_tables
from offsetstream.tables.path_store import PathStore


@pytest.fixture
def tables(tmp_path: Path) -> PathStore:
    location = PathStore(str(tmp_path))
    create_tables(location, "cluster-1", "new")
    return location


@pytest.fixture
def book(tables: PathStore) -> PartitionBook:
    return PartitionBook(tables, range(3))
