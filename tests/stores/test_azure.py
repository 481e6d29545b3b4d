"""Tables in Azure's store (azurite): delta-rs's writes, and the commands that need no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from deltalake import DeltaTable

from offsetstream.tables.create import create_tables
from offsetstream.tables.lease import Lease
from offsetstream.tables.names import OFFSETS_PARTITIONS
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.small_tables import overwrite_rows
from offsetstream.tables.transaction import BatchId
from testkit.processes import offsetstream, printed
from testkit.s3_server import in_environment
from tests.stores.azure_store import azure_store
from tests.stores.commits_at_once import commit_at_once

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def tables() -> Iterator[PathStore]:
    with azure_store() as store, in_environment(store.environment):
        made = PathStore(f"{store.uri}/tables")
        create_tables(made, "cluster-1", "new")
        yield made


def test_commands_without_spark_work_on_azure(tables: PathStore) -> None:
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


def test_concurrent_commits_get_separate_versions(tables: PathStore) -> None:
    uri = f"{tables.root}/at-once"
    expected = commit_at_once(uri)
    assert DeltaTable(uri).version() == expected
