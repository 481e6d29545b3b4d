"""The path store fulfils the contract of all stores, and only it uses paths of tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import offsetstream
from offsetstream.errors import ConflictError
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import ColumnSchema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.store import Store
from testkit.store_contract import *  # noqa: F403 - the tests
from testkit.store_contract import OFFSETS, commit, committed, merge


@pytest.fixture
def empty(tmp_path: Path) -> PathStore:
    return PathStore(str(tmp_path / "tables"))


def test_compaction_keeps_all_rows(store: Store) -> None:
    for number in range(3):
        merge(store, commit(number, f"g{number}", partition=number))
    store.open(OFFSETS).add_columns([ColumnSchema("note", "STRING", "mine")])  # existing files lack it
    before = read_rows(store.open(OFFSETS))
    files = store.open(OFFSETS).files
    (crowd,) = files.small_files()
    merge(store, commit(7, "beside", partition=9))
    files.compact(crowd)
    assert store.open(OFFSETS).files.stored(without=files.removable()).files <= 5
    now = read_rows(store.open(OFFSETS))
    assert sorted(now, key=str) == sorted([*before, *read_rows(store.open(OFFSETS), in_partitions([9]))], key=str)
    assert len(now) == 4
    (left,) = store.open(OFFSETS).files.small_files()
    assert left.files == 2
    with pytest.raises(ConflictError):
        files.compact(crowd)
    store.open(OFFSETS).files.compact(left)
    assert (store.open(OFFSETS).files.small_files(), len(committed(store))) == ([], 4)


def test_only_the_path_store_uses_paths() -> None:
    """Imports do not show Spark's readers and writers of paths, so search for their calls."""
    root = Path(offsetstream.__file__).parent
    of_paths = re.compile(r"""format\(["']delta["']\)|\.forPath\(""")
    found = {path for path in root.rglob("*.py") if of_paths.search(path.read_text("utf-8"))}
    assert {path.relative_to(root).parent.as_posix() for path in found} == {"tables/path_store"}
