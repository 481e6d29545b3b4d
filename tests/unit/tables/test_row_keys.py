"""Exactly the rows with the same keys are found, with any values in the keys."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetstream.tables.matching import RowKeys, rows_with_keys, rows_without_keys

NAMES = ("text", "number", "more")
SCHEMA = pa.schema([("text", pa.string()), ("number", pa.int32()), ("more", pa.string()), ("row", pa.int64())])
TEXTS = st.none() | st.sampled_from(["", "a", "b", "a:b", "null", "1", "😀"])
KEYS = st.lists(st.tuples(TEXTS, st.none() | st.integers(-2, 2), TEXTS), max_size=20)
Key = tuple[Any, ...]


def table(keys: list[Key], chunks: int = 1) -> pa.Table:
    rows = [dict(zip(SCHEMA.names, (*key, number), strict=True)) for number, key in enumerate(keys)]
    parts = [pa.Table.from_pylist(rows[start::chunks], schema=SCHEMA) for start in range(chunks)]
    return pa.concat_tables(parts)


@given(KEYS, KEYS, st.integers(1, 3))
def test_the_first_row_of_a_key_is_found(known: list[Key], sought: list[Key], chunks: int) -> None:
    rows, keys = table(sought, chunks), RowKeys(table(known), NAMES)
    in_order = [tuple(row[name] for name in NAMES) for row in rows.to_pylist()]
    found = keys.find(rows)
    assert found.to_pylist() == [known.index(key) if key in known else None for key in in_order]
    assert [tuple(row[name] for name in NAMES) for row in rows_with_keys(rows, keys).to_pylist()] == [
        key for key in in_order if key in known
    ]
    assert [tuple(row[name] for name in NAMES) for row in rows_without_keys(rows, keys).to_pylist()] == [
        key for key in in_order if key not in known
    ]


@pytest.mark.parametrize("type_", [pa.string_view(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_texts_of_other_arrow_types_are_equal(type_: pa.DataType) -> None:
    known = table([("a", 1, "x"), (None, 2, "y")])
    rows = table([(None, 2, "y"), ("b", 1, "x"), ("a", 1, "x")])
    for name in ("text", "more"):
        rows = rows.set_column(rows.column_names.index(name), name, rows[name].cast(type_))
    assert RowKeys(known, NAMES).find(rows).to_pylist() == [1, None, 0]


def test_many_distinct_values_do_not_overflow() -> None:
    """The product of four columns with a hundred thousand values each would not fit in 64 bits."""
    numbers = pa.array(range(100_000))
    rows = pa.table(dict.fromkeys("abcd", numbers))
    assert RowKeys(rows, "abcd").find(rows).equals(numbers.cast(pa.int32()))
    shifted = rows.set_column(3, "d", pa.array(range(1, 100_001)))
    assert RowKeys(rows, "abcd").find(shifted).null_count == 100_000
