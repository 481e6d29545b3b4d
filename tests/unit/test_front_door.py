"""What programs import: the package `offsetstream`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import offsetstream
from offsetstream.codec.decoding import DECODED_SCHEMA
from offsetstream.codec.records import encode_record
from offsetstream.errors import TablesError
from testkit.tables import append_rows, create_empty_tables, new_tables

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def records() -> pa.Table:
    key = {"type": 1, "data": {"group": "billing", "topic": "orders", "partition": 0}}
    value = {"version": 3, "data": {"offset": 41, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 1}}
    whole = encode_record(key, value)
    return pa.table({"key": [whole[0], whole[0], b"?"], "value": [whole[1], None, None]})


def test_importing_it_loads_nothing_else() -> None:
    heavy = "{'numpy', 'pyarrow', 'pandas', 'pyspark', 'deltalake', 'duckdb', 'confluent_kafka', 'click'}"
    code = f"import sys, offsetstream; dir(offsetstream); sys.exit(' '.join({heavy} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_public_name_exists() -> None:
    for name in offsetstream.__all__:
        assert getattr(offsetstream, name) is not None
    assert set(offsetstream.__all__) <= set(dir(offsetstream))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        offsetstream.nothing  # noqa: B018


def test_decode_returns_the_type_that_it_was_given() -> None:
    table = records()
    decoded = offsetstream.decode(table)
    assert decoded.schema == DECODED_SCHEMA
    assert decoded["committed_offset"].to_pylist() == [41, None, None]
    assert decoded["is_tombstone"].to_pylist() == [False, True, True]
    assert [error is None for error in decoded["error"].to_pylist()] == [True, True, False]
    (batch,) = table.to_batches()
    assert offsetstream.decode(batch).equals(decoded.to_batches()[0])
    renamed = table.rename_columns(["k", "v"])
    assert offsetstream.decode(renamed, key="k", value="v").equals(decoded)


def test_decode_of_a_frame_keeps_its_index() -> None:
    frame = records().to_pandas().set_index(pd.Index(["x", "y", "z"]))
    decoded = offsetstream.decode(frame)
    assert list(decoded.index) == ["x", "y", "z"]
    assert decoded.loc["x", "committed_offset"] == 41
    assert decoded["committed_offset"].dtype == pd.ArrowDtype(pa.int64())
    assert offsetstream.decode(frame.iloc[:0]).empty


def test_decode_refuses_invalid_input() -> None:
    with pytest.raises(TypeError, match="records are a list"):
        offsetstream.decode([(b"", b"")])
    with pytest.raises(KeyError):
        offsetstream.decode(records(), key="no such column")


def test_the_tables_as_arrow(tmp_path: Path) -> None:
    new_tables(tmp_path)
    place = {"topic": "orders", "partition": 0, "commit_timestamp": AT}
    rows = [
        {
            **place,
            "offsets_partition": 1,
            "group_id": group,
            "committed_offset": offset,
            "in_coordinator_partition": inside,
        }
        for group, offset, inside in (("billing", 41, True), ("billing", 7, False), ("search", 5, True))
    ]
    append_rows(tmp_path, "committed_offsets", rows)
    tables = offsetstream.open_tables(tmp_path)
    (mine,) = tables.committed_offsets(group="billing").to_pylist()
    assert (mine["committed_offset"], mine["commit_timestamp"]) == (41, AT)
    assert tables.committed_offsets(group=["billing", "search"], topic="orders").num_rows == 2
    assert tables.committed_offsets(group="billing", topic=[]).num_rows == 0
    assert tables.read("committed_offsets", group="billing").num_rows == 2
    assert tables.read("committed_offsets", offsets_partition=2).num_rows == 0
    assert tables.read("committed_offsets", offsets_partition=[1, 2], in_coordinator_partition=False).num_rows == 1


def test_empty_tables_have_their_columns(tmp_path: Path) -> None:
    create_empty_tables(tmp_path)
    tables = offsetstream.open_tables(tmp_path)
    for read in (
        tables.committed_offsets,
        tables.groups,
        tables.group_members,
        tables.member_assignments,
        tables.member_subscriptions,
        tables.offset_commits,
    ):
        found = read()
        assert found.num_rows == 0
        assert "group_id" in found.column_names


def test_missing_tables_are_an_error(tmp_path: Path) -> None:
    new_tables(tmp_path)
    tables = offsetstream.open_tables(tmp_path)
    shutil.rmtree(tmp_path / "groups")
    with pytest.raises(TablesError, match="there is no table"):
        tables.groups()
