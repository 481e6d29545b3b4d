"""Tables in Azure's store (azurite): what delta-rs does there, and the commands that need no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from offsetstream.tables.create import create_tables
from offsetstream.tables.lease import Lease
from offsetstream.tables.names import OFFSETS_PARTITIONS
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import overwrite_rows
from offsetstream.tables.transaction import BatchId
from testkit.azure_store import azure_store
from testkit.command import offsetstream, printed
from testkit.s3_server import in_environment

WRITERS, COMMITS = 4, 5


@pytest.fixture(scope="module")
def tables() -> Iterator[PathStore]:
    with azure_store() as store, in_environment(store.environment):
        made = PathStore(f"{store.uri}/tables")
        create_tables(made, "cluster-1", "new")
        yield made


def test_commands(tables: PathStore) -> None:
    overwrite_rows(tables, OFFSETS_PARTITIONS, [{"offsets_partition": 3, "next_offset": 7}], BatchId(1, 0))
    lease = Lease.acquire(tables)
    lease.heartbeat()
    lease.release()
    (row,) = json.loads(printed("partitions", "--tables", tables.root, "--output", "json"))
    assert (row["offsets_partition"], row["next_offset"]) == (3, 7)
    maintained = json.loads(printed("maintain", "--tables", tables.root, "--output", "json"))
    assert {each["note"] for each in maintained} == {None}
    stopped = offsetstream("stop", "--tables", tables.root)
    assert (stopped.returncode, stopped.stderr) == (1, f"Error: no job writes to {tables.root}\n")


def test_of_commits_at_once_each_has_a_version_of_its_own(tables: PathStore) -> None:
    uri, row = f"{tables.root}/at-once", pa.table({"number": [1]})
    write_deltalake(uri, row)

    def commit(_writer: int) -> None:
        for _ in range(COMMITS):
            write_deltalake(uri, row, mode="append")

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(commit, range(WRITERS)))
    assert DeltaTable(uri).version() == WRITERS * COMMITS
