import pytest

from offsetstream.stream.partitions.book import PartitionBook
from offsetstream.tables.path_store import PathStore


@pytest.fixture
def book(tables: PathStore) -> PartitionBook:
    return PartitionBook(tables, range(3))
