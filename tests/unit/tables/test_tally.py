"""Checksums of rows depend on the values only: not on order, batches or null columns of later versions."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from offsetstream.tables import tally
from offsetstream.tables.schema import load_schema
from offsetstream.tables.tally import row_hashes

COMMITS = load_schema("offset_commits")
UNDECODABLE = load_schema("undecodable_records")
ROW = {"offsets_partition": 1, "record_offset": 2, "log_id": 0, "group_id": "a", "topic": "", "metadata": "é"}
ROW |= {"is_tombstone": False, "commit_timestamp": datetime(2030, 1, 1, tzinfo=UTC), "checkpoint_id": 1}


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([dict.fromkeys(COMMITS.column_names) | row for row in rows], schema=COMMITS.arrow)


def test_hashes_stay_the_same_in_later_versions() -> None:
    """Users' ledgers contain these numbers."""
    assert row_hashes(table(ROW), COMMITS).tolist() == [HASH]
    assert row_hashes(table(ROW).drop_columns(["leader_epoch"]), COMMITS).tolist() == [HASH]
    other = {"checkpoint_id": 7, "batch_id": 8, "written_day": datetime(2030, 1, 2, tzinfo=UTC).date()}
    assert row_hashes(table(ROW | other), COMMITS).tolist() == [HASH]


HASH = 2249034702970438874


@pytest.mark.parametrize(
    "change",
    [
        {"record_offset": 3},
        {"record_offset": 1, "offsets_partition": 2},
        {"group_id": "", "topic": "a"},
        {"group_id": "a\0"},
        {"metadata": None},
        {"metadata": ""},
        {"is_tombstone": True},
        {"is_tombstone": None},
        {"leader_epoch": 0},
        {"commit_timestamp": None},
    ],
)
def test_changed_rows_have_other_hashes(change: dict[str, Any]) -> None:
    assert row_hashes(table(ROW | change), COMMITS)[0] != row_hashes(table(ROW), COMMITS)[0]


def test_checksum_does_not_depend_on_order_or_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [None, b"", b"\0", b"\0\0", bytes(range(256)) * 3, b"x" * 5000, b"y", None]
    rows = pa.table({"value_bytes": pa.array(values, pa.binary())})
    whole = row_hashes(rows, UNDECODABLE)
    assert len({*whole.tolist()}) == len(values) - 1  # the nulls are alike
    pieces = pa.concat_tables([rows.slice(at, 1) for at in range(len(values))])
    assert row_hashes(pieces, UNDECODABLE).tolist() == whole.tolist()
    assert row_hashes(rows.slice(3, 4), UNDECODABLE).tolist() == whole[3:7].tolist()
    assert row_hashes(rows.take(list(range(7, -1, -1))), UNDECODABLE).tolist() == whole[::-1].tolist()
    tally._powers.cache_clear()
    monkeypatch.setattr(tally, "_SLICE_BYTES", 5000)
    assert row_hashes(rows, UNDECODABLE).tolist() == whole.tolist()
    tally._powers.cache_clear()


def test_checksum_of_no_rows() -> None:
    assert row_hashes(COMMITS.arrow.empty_table(), COMMITS).tolist() == []


def test_text_types_have_the_same_hashes() -> None:
    strings = pa.array(["a", None, "b" * 40])
    hashes = [
        row_hashes(pa.table({"group_id": strings.cast(kind)}), COMMITS)
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    ]
    assert all(np.array_equal(each, hashes[0]) for each in hashes)
