from pathlib import Path

import pytest

from offsetstream.errors import UsageError
from offsetstream.tables.location import TablesLocation


def test_a_local_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert TablesLocation.parse("tables/").root == str(tmp_path / "tables")
    assert TablesLocation.parse(str(tmp_path) + "//").root == str(tmp_path)


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert TablesLocation.parse("~/tables").root == str(tmp_path / "tables")


@pytest.mark.parametrize("uri", ["s3://bucket/tables", "abfss://c@account/tables", "file:///data/tables"])
def test_a_uri_stays_as_it_is(uri: str) -> None:
    assert TablesLocation.parse(uri).root == uri
    assert TablesLocation.parse(uri + "/").root == uri
    assert TablesLocation.parse(uri).table("groups") == f"{uri}/groups"


@pytest.mark.parametrize("name", ["dbfs:/mnt/lake", "file:/data/tables", "s3a:/lake"])
def test_what_delta_rs_does_not_reach_is_no_local_folder(name: str) -> None:
    with pytest.raises(UsageError, match=f"^{name} is neither a folder nor a URI"):
        TablesLocation.parse(name)
