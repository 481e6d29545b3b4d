from pathlib import Path

import pyarrow as pa
import pytest

from offsetstream.errors import UsageError
from offsetstream.settings.places import in_hadoop, parse_checkpoint, parse_tables
from offsetstream.tables.create import create_tables
from offsetstream.tables.lease import Lease
from offsetstream.tables.location import store_at
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import load_schema
from offsetstream.tables.small_tables import read_rows
from offsetstream.tables.transaction import BatchId
from offsetstream.tables.write import append_from_tasks
from testkit.tables import append_rows
from testkit.task_rows import from_tasks

SIGNATURE = {"checkpoint_id", "batch_id", "written_day"}


def test_a_local_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert store_at("tables/").name == str(tmp_path / "tables")
    assert store_at(str(tmp_path) + "//").name == str(tmp_path)


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store_at("~/tables").name == str(tmp_path / "tables")


@pytest.mark.parametrize("uri", ["s3://bucket/tables", "abfss://c@account/tables", "s3://bucket/a%20[b]"])
def test_a_uri_stays_as_it_is(uri: str) -> None:
    assert store_at(uri).name == uri
    assert store_at(uri + "/").name == uri
    assert PathStore(uri).table("groups") == f"{uri}/groups"


def test_checkpoints_may_be_in_a_volume_of_databricks(tmp_path: Path) -> None:
    for text in ("dbfs:/Volumes/lake/kafka/checkpoints", "dbfs:///Volumes/lake/kafka/checkpoints/"):
        assert in_hadoop(parse_checkpoint(text)) == "dbfs:///Volumes/lake/kafka/checkpoints"
    assert in_hadoop(parse_checkpoint(str(tmp_path))) == f"file:{tmp_path}"
    assert parse_checkpoint("s3a://lake/checkpoints/") == "s3a://lake/checkpoints"


def test_a_uri_of_a_local_folder_is_its_path() -> None:
    assert store_at("file:///data/a%20gr%C3%B6%C3%9Fe/").name == "/data/a größe"


NAMES = [
    "größe",
    "a b",
    " ",
    "50%",
    "%2",
    "%zz",
    "#1",
    "+x",
    "*",
    "?",
    "a?b=c&d",
    "{a,b}",
    "a:b",
    "~",
    "'q\"",
    "日本 😀",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_table_in_a_folder_of_any_name(name: str, tmp_path: Path) -> None:
    """Reads and writes by delta-rs, DuckDB and Arrow work, and no name is a pattern that means another folder."""
    append_rows(tmp_path / "a", "groups", [{"group_id": "of another folder"}])
    tables = store_at(str(tmp_path / name))
    create_tables(tables, "cluster-1", "new")
    lease = Lease.acquire(tables)
    lease.heartbeat()
    append_rows(Path(tables.name), "groups", [{"offsets_partition": 1, "group_id": name}])
    assert list(Lookup(tables).rows("groups", ["group_id"])) == [{"group_id": name}]
    files = tables.files(tables.open("groups"))
    assert (files.lost(), files.stored().files) == ([], 1)
    columns = [column for column in load_schema("offset_commits").arrow if column.name not in SIGNATURE]
    rows = pa.Table.from_pylist([{"offsets_partition": 1, "record_offset": 5}], pa.schema(columns))
    new = from_tasks(tables, "offset_commits", [rows], BatchId(1, 0))
    append_from_tasks(tables, "offset_commits", new, BatchId(1, 0))
    assert [row["record_offset"] for row in read_rows(tables.open("offset_commits"))] == [5]
    create_tables(tables, "cluster-1", "new")
    assert {path.name for path in tmp_path.iterdir()} == {name, "a"}


@pytest.mark.parametrize("name", ["%20", "a%C3%9F", "[a]", "a\\b", "a^b", "a|b", "a\nb", "a\x7fb"])
def test_a_folder_name_that_delta_confuses_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Delta cannot find such a folder again: use another folder"):
        store_at(str(tmp_path / name))


@pytest.mark.parametrize("name", ["dbfs:/mnt/lake", "dbfs://mnt/lake", "file:/data/tables", "s3a:/lake"])
def test_a_uri_that_delta_rs_cannot_reach_is_not_a_local_folder(name: str) -> None:
    with pytest.raises(UsageError, match=f"^{name} is neither a folder nor a URI"):
        store_at(name)


def test_a_name_with_a_dot_is_a_catalog_and_its_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = store_at("spark_catalog.kafka-offsets")
    assert (store.name, store.needs_spark, store_at(store.name)) == ("spark_catalog.kafka-offsets", True, store)
    for folder in ("./a.b", "a.b/", "tables", ".a.b", "a.1", str(tmp_path / "a.b")):
        assert (store_at(folder).needs_spark, Path(store_at(folder).name)) == (False, tmp_path / Path(folder))
    with pytest.raises(UsageError, match=r"a\.b\.c is not a catalog and schema: .* \./a\.b\.c for a folder"):
        store_at("a.b.c")
    (tmp_path / "a.b").mkdir()
    with pytest.raises(UsageError, match=r"a\.b is .* a folder here: type \./a\.b for the folder"):
        store_at("a.b")


def test_a_catalog_without_spark_reports_how_to_query_it() -> None:
    store = store_at("main.kafka")
    for ask in (store.open, store.source):
        with pytest.raises(
            UsageError, match=r"main\.kafka is a schema of a catalog, which only Spark reads: query .*SQL"
        ):
            ask("groups")


def test_two_slashes_at_the_start_become_one() -> None:
    """Hadoop reads a host name after two slashes, which an empty variable before a path leaves."""
    assert store_at("//tmp/tables").name == store_at("/tmp/tables").name == "/tmp/tables"  # noqa: S108 - only names


def test_a_volume_is_refused_on_databricks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_tables("/Volumes/main/kafka/tables") == "/Volumes/main/kafka/tables"
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    with pytest.raises(UsageError, match=r"/Volumes/main/kafka/tables is a volume of .* --tables main\.kafka$"):
        parse_tables("/Volumes/main/kafka/tables/")
    assert parse_tables("/dbfs/kafka") == "/dbfs/kafka"
