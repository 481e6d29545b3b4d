"""The path store fulfils the contract of all stores, and only it uses paths of tables."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import offsetstream
from offsetstream.errors import ConflictError, OlderCopyError
from offsetstream.tables.matching import merge_rows
from offsetstream.tables.names import DECODED_LOGS, JOB_LEASE
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.sql import in_partitions
from offsetstream.tables.store import Store
from offsetstream.tables.transaction import BatchId
from tests.stores.contract import *  # noqa: F403 - the tests
from tests.stores.contract import OFFSETS, add_column, commit, merge


@pytest.fixture
def empty(tmp_path: Path) -> PathStore:
    return PathStore(str(tmp_path / "tables"))


def test_compaction_keeps_all_rows(store: Store) -> None:
    def merge_log(number: int) -> None:
        row = {"offsets_partition": number, "log_id": 0, "decoded_from_offset": number}
        merge_rows(store, DECODED_LOGS, pa.Table.from_pylist([row], load_schema(DECODED_LOGS).arrow), BatchId(1, -1))

    store.create(load_schema(DECODED_LOGS), {})
    for number in range(3):
        merge_log(number)
    add_column(store, DECODED_LOGS, "note")  # existing files lack it
    before = read_rows(store.open(DECODED_LOGS))
    files, late = (store.files(store.open(DECODED_LOGS)) for _ in range(2))
    (crowd,) = files.small_files()
    merge_log(9)
    files.compact(crowd)
    assert store.files(store.open(DECODED_LOGS)).stored(without=files.removable()).files <= 5
    now = read_rows(store.open(DECODED_LOGS))
    new = read_rows(store.open(DECODED_LOGS), in_partitions([9]))
    assert sorted(now, key=str) == sorted([*before, *new], key=str)
    assert len(now) == 4
    (left,) = store.files(store.open(DECODED_LOGS)).small_files()
    assert left.files == 2
    with pytest.raises(ConflictError):
        late.compact(crowd)
    store.files(store.open(DECODED_LOGS)).compact(left)
    assert (store.files(store.open(DECODED_LOGS)).small_files(), len(read_rows(store.open(DECODED_LOGS)))) == ([], 4)


def test_a_job_notices_an_older_copy_in_a_tables_place(store: Store, tmp_path: Path) -> None:
    place, old = Path(store.name) / OFFSETS, tmp_path / "old"
    job, other = store.for_job(), store.for_job()
    held = job.open(OFFSETS)
    shutil.copytree(place, old)
    merge(job, commit(1, "mine", partition=1))  # the copy lacks nothing but this
    place.rename(tmp_path / "new")
    shutil.copytree(old, place)
    for look in (partial(job.open, OFFSETS), partial(job.opened, OFFSETS), held.refresh):
        with pytest.raises(OlderCopyError, match="went back from version"):
            look()
    assert store.open(OFFSETS).version == other.open(OFFSETS).version
    shutil.rmtree(place)
    store.create(load_schema(OFFSETS), {})
    assert job.open(OFFSETS).version == 0  # made anew: this is another table


def test_a_job_makes_a_table_anew_that_it_set_aside(store: Store) -> None:
    job = store.for_job()
    store.create(load_schema(JOB_LEASE), {})
    before = job.open(JOB_LEASE).table_id
    folder = job.folder(JOB_LEASE)
    assert folder is not None
    folder.set_aside()
    assert job.opened(JOB_LEASE) is None  # not StoreFaultError: nobody else moved it
    job.create(load_schema(JOB_LEASE), {})
    assert job.open(JOB_LEASE).table_id != before


def test_only_the_path_store_uses_paths() -> None:
    """Imports do not show Spark's readers and writers of paths, so search for their calls."""
    root = Path(offsetstream.__file__).parent
    of_paths = re.compile(r"""format\(["']delta["']\)|\.forPath\(""")
    found = {path for path in root.rglob("*.py") if of_paths.search(path.read_text("utf-8"))}
    assert {path.relative_to(root).parent.as_posix() for path in found} == {"tables/path_store"}
