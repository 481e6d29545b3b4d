"""Files of state tables by group: a merge opens those of its groups, whoever wrote them."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from offsetstream.errors import ConflictError
from offsetstream.tables.matching import merge_on_driver, read_groups
from offsetstream.tables.path_store import PathStore, group_files
from offsetstream.tables.path_store.group_files import hashes_of
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.store import Merge
from offsetstream.tables.transaction import BatchId
from testkit.merge_model import MergeModel, Row, in_order, random_steps, source_table

OFFSETS = "committed_offsets"


@pytest.fixture
def job(tables: PathStore) -> PathStore:
    return tables.for_job()


@pytest.fixture
def _tiny_files(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {
        "_HOT_ROWS": 8,
        "_COLD_ROWS": 4,
        "_LATELY": 2,
        "_UNSORTED": 3,
        "_BUFFER_ROWS": 10,
        "_SMALL": 2,
        "_MANY_SMALL": 2,
    }
    for name, value in sizes.items():
        monkeypatch.setattr(group_files, name, value)


def commit(group: str, offset: int, topic_partition: int = 0, partition: int = 1) -> Row:
    place = {"offsets_partition": partition, "group_id": group, "topic": "t", "partition": topic_partition}
    return place | {"committed_offset": offset, "record_offset": offset, "log_id": 0}


def merge(tables: PathStore, *rows: Row, number: int, name: str = OFFSETS) -> None:
    schema = load_schema(name)
    merge_on_driver(tables, source_table(schema, rows), Merge(schema), BatchId(1, number))


def paths(tables: PathStore, name: str = OFFSETS) -> set[str]:
    return set(pa.table(DeltaTable(tables.table(name)).get_add_actions())["path"].to_pylist())


def groups_in(tables: PathStore, path: str) -> set[str]:
    return set(pq.read_table(Path(tables.table(OFFSETS), path))["group_id"].to_pylist())


def optimize(tables: PathStore, name: str) -> None:
    DeltaTable(tables.table(name)).optimize.compact()


def rewrite(tables: PathStore, name: str) -> None:
    table = DeltaTable(tables.table(name))
    write_deltalake(table, table.to_pyarrow_table(), mode="overwrite")


@pytest.mark.usefixtures("_tiny_files")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("name", "newer_only"), [(OFFSETS, True), ("group_cells", True), ("member_assignments", False), ("groups", False)]
)
def test_merges_between_foreign_commits_equal_those_of_a_dictionary(
    tables: PathStore, name: str, newer_only: bool, seed: int
) -> None:
    """Somebody compacts or rewrites the table, or the job starts again, between any two merges."""
    schema, rng, job = load_schema(name), Random(seed), tables.for_job()
    model, most = MergeModel(schema, newer_only), 0
    for step in random_steps(rng, schema, 25):
        for _ in range(2):  # each merge is repeated
            merge_on_driver(job, source_table(schema, step.rows), step.merge(schema, newer_only=newer_only), step.batch)
            model.apply(step)
        assert in_order(read_rows(tables.open(name))) == in_order(model.rows.values())
        if model.rows:
            some = source_table(schema, rng.sample(list(model.rows.values()), min(3, len(model.rows))))
            wanted = {(row["offsets_partition"], row["group_id"]) for row in some.to_pylist()}
            found = read_groups(job, name, some).to_pylist()
            assert in_order(found) == in_order(
                row for row in model.rows.values() if (row["offsets_partition"], row["group_id"]) in wanted
            )
        most = max(most, len(model.rows))
        match rng.choice(["nothing", "nothing", "optimize", "rewrite", "start"]):
            case "optimize":
                optimize(tables, name)
            case "rewrite":
                rewrite(tables, name)
            case "start":
                job = tables.for_job()
    assert most > 10


def test_a_merge_rewrites_only_the_files_of_its_groups(job: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_files, "_COLD_ROWS", 10)
    monkeypatch.setattr(group_files, "_LATELY", 1)
    merge(job, *(commit(f"g-{group}", 1, number) for group in range(30) for number in range(10)), number=0)
    merge(job, commit("g-0", 2), number=1)  # what was hot becomes cold
    before = paths(job)
    assert len(before) == 30
    home = {path for path in before if "g-7" in groups_in(job, path)}
    assert len(home) == 1
    merge(job, commit("g-7", 3), number=2)
    assert before - paths(job) == home
    (hot,) = paths(job) - before
    assert hot.startswith("hot-")
    assert groups_in(job, hot) == {"g-7"}
    merge(job, commit("g-7", 4), number=3)
    assert paths(job) & before == before - home  # a group that is hot costs no cold file


def test_groups_stay_hot_while_they_change(job: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_files, "_COLD_ROWS", 10)
    monkeypatch.setattr(group_files, "_LATELY", 3)
    merge(job, *(commit(f"g-{group}", 1, number) for group in range(20) for number in range(10)), number=0)
    for number in range(1, 9):
        merge(job, commit("g-0", 1 + number), *([commit("g-1", 1 + number)] if number % 2 else []), number=number)
    hot = {path for path in paths(job) if path.startswith("hot-")}
    assert set[str]().union(*(groups_in(job, path) for path in hot)) == {"g-0", "g-1"}
    again = job.for_job()  # as after a start
    merge(again, commit("g-0", 99), number=9)
    assert hot.isdisjoint(paths(job))
    assert {path for path in paths(job) if not path.startswith("hot-")} >= {
        path for path in paths(job) if "g-5" in groups_in(job, path)
    }


def test_the_number_of_files_stays_bounded(job: PathStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each merge wakes up another group, and its file of one group stays behind."""
    monkeypatch.setattr(group_files, "_COLD_ROWS", 40)
    monkeypatch.setattr(group_files, "_LATELY", 2)
    merge(job, *(commit(f"g-{group}", 1, number) for group in range(40) for number in range(4)), number=0)
    for number in range(1, 60):
        merge(job, commit(f"g-{7 * number % 40}", 1 + number), number=number)
        assert len(paths(job)) < 40
    assert len(read_rows(job.open(OFFSETS))) == 160


def test_after_a_conflict_a_jobs_merge_looks_again(job: PathStore) -> None:
    merge(job, commit("a", 1), commit("b", 1), number=0)
    table, schema = job.open(OFFSETS), load_schema(OFFSETS)
    rewrite(job, OFFSETS)
    with pytest.raises(ConflictError):
        table.merge(source_table(schema, [commit("a", 2)]), Merge(schema))
    merge(job, commit("a", 2), number=1)
    assert {row["group_id"]: row["committed_offset"] for row in read_rows(job.open(OFFSETS))} == {"a": 2, "b": 1}


def test_columns_of_users_stay_with_their_rows(job: PathStore) -> None:
    merge(job, commit("a", 1), commit("b", 1), number=0)
    table = DeltaTable(job.table(OFFSETS))
    rows = table.to_pyarrow_table()
    mine = rows.append_column("mine", pa.array([f"of {group}" for group in rows["group_id"].to_pylist()]))
    write_deltalake(table, mine, mode="overwrite", schema_mode="overwrite")
    merge(job, commit("a", 2), commit("c", 1), number=1)
    found = {row["group_id"]: (row["committed_offset"], row["mine"]) for row in read_rows(job.open(OFFSETS))}
    assert found == {"a": (2, "of a"), "b": (1, "of b"), "c": (1, None)}


def test_a_column_may_be_added_between_two_merges(job: PathStore) -> None:
    merge(job, commit("a", 1), commit("b", 1), number=0)
    DeltaTable(job.table(OFFSETS)).alter.add_columns([Field("mine", PrimitiveType("string"))])
    merge(job, commit("a", 2), commit("c", 1), number=1)
    found = {row["group_id"]: (row["committed_offset"], row["mine"]) for row in read_rows(job.open(OFFSETS))}
    assert found == {"a": (2, None), "b": (1, None), "c": (1, None)}


def test_a_partitioned_table_keeps_what_only_its_log_has(job: PathStore) -> None:
    merge(job, commit("a", 1), commit("b", 1), number=0)
    table = DeltaTable(job.table(OFFSETS))
    write_deltalake(table, table.to_pyarrow_table(), mode="overwrite", schema_mode="overwrite", partition_by=["topic"])
    merge(job, commit("a", 2), number=1)
    found = [(row["group_id"], row["topic"], row["committed_offset"]) for row in read_rows(job.open(OFFSETS))]
    assert sorted(found) == [("a", "t", 2), ("b", "t", 1)]


def test_times_of_a_spark_that_writes_int96_stay(job: PathStore, tmp_path: Path) -> None:
    far = datetime(3000, 1, 1, 12, tzinfo=UTC)
    merge(job, commit("a", 1) | {"commit_timestamp": far}, commit("b", 1), number=0)
    (path,) = paths(job)
    place = Path(job.table(OFFSETS), path)
    pq.write_table(pq.read_table(place), place, use_deprecated_int96_timestamps=True)
    restarted = job.for_job()
    merge(restarted, commit("b", 2), number=1)
    (written,) = paths(job) - {path}
    assert pq.read_table(Path(job.table(OFFSETS), written))["commit_timestamp"].to_pylist().count(far) == 1


@pytest.mark.parametrize("missing", [None, "", "a"])
def test_equal_groups_have_equal_hashes_whatever_is_beside_them(missing: str | None) -> None:
    rows: list[dict[str, Any]] = [
        {"offsets_partition": partition, "group_id": group} for partition in (0, 1, 49) for group in ("a", "b", "ü", "")
    ]
    schema = pa.schema([("offsets_partition", pa.int32()), ("group_id", pa.string())])
    whole = hashes_of(pa.Table.from_pylist(rows, schema=schema))
    assert len(np.unique(whole)) == len(rows)
    other = pa.Table.from_pylist([{"offsets_partition": 7, "group_id": missing}, *reversed(rows)], schema=schema)
    assert hashes_of(other)[1:].tolist() == whole.tolist()[::-1]
    assert len(hashes_of(other.slice(0, 0))) == 0


def test_only_a_job_needs_pandas() -> None:
    """Its extra brings pandas; `offsetstream stop` works without any extra."""
    code = "import sys; sys.modules['pandas'] = None; import offsetstream.tables.path_store.snapshot"
    subprocess.run([sys.executable, "-c", code], check=True)
