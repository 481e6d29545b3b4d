"""The joins of docs/reference/tables.md, on the tables of the recorded night and of a made-up cluster."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from offsetstream.tables.schema import Join, all_joins, load_schema
from testkit.group_world import GroupWorld
from testkit.night import FIXTURE
from testkit.tables import write_tables

PAIRS = [(rows, join) for join in all_joins() for rows in join.rows]


@pytest.fixture(scope="module", params=["night", "made up"])
def tables(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    if request.param == "night":
        return write_tables(folder, {file.stem: pq.read_table(file).to_pylist() for file in FIXTURE.glob("*.parquet")})
    return write_tables(folder, GroupWorld(1).rows)


@pytest.mark.parametrize(("rows", "join"), PAIRS, ids=[f"{rows} of {join.of}" for rows, join in PAIRS])
def test_documented_joins_find_rows(tables: Path, rows: str, join: Join) -> None:
    keyed, found = joined(tables, rows, join.of, join.by)
    assert keyed > 0 or rows == "undecodable_records"  # both sets of tables have none of these
    assert found == keyed if join.always else found > 0


@pytest.mark.parametrize("join", [join for join in all_joins() if join.always], ids=lambda join: join.of)
def test_a_join_with_one_match_never_finds_two(join: Join) -> None:
    assert load_schema(join.of).key == join.by


def joined(folder: Path, rows: str, of: str, by: tuple[str, ...]) -> tuple[int, int]:
    """Return how many rows have values in all columns of the join, and how many of these have a match."""
    keyed = " AND ".join(f'"{name}" IS NOT NULL' for name in by)
    same = " AND ".join(f'ours."{name}" = theirs."{name}"' for name in by)
    ours, theirs = (f"read_parquet('{folder}/{name}.parquet')" for name in (rows, of))
    query = (
        f"SELECT count(*), count(*) FILTER (EXISTS (FROM {theirs} AS theirs WHERE {same})) "  # noqa: S608
        f"FROM (FROM {ours} WHERE {keyed}) AS ours"
    )
    with duckdb.connect() as connection:
        found = connection.execute(query).fetchone()
    assert found is not None
    return int(found[0]), int(found[1])
