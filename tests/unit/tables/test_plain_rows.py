"""Plain rows become Arrow tables, with any repetition of values."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from offsetstream.coordinator.rows import PARTITION_COLUMNS, Assignments
from offsetstream.tables.rows import count, flat_rows, from_rows
from offsetstream.tables.schema import load_schema

_SCHEMA = load_schema("member_assignments")
_FEW = {
    "INT": st.sampled_from([None, 0, 1, 2**31 - 1]),
    "BIGINT": st.sampled_from([None, 0, 1, -(2**63)]),
    "STRING": st.sampled_from([None, "", "a", "\N{SNOWMAN}"]),
    "BOOLEAN": st.sampled_from([None, True, False]),
    "TIMESTAMP": st.sampled_from([None, 0, 1_700_000_000_000, 2**62]),
}
_ROW = st.fixed_dictionaries(
    {f"{each.name}_ms" if each.type == "TIMESTAMP" else each.name: _FEW[each.type] for each in _SCHEMA.columns}
)


@given(st.lists(_ROW, max_size=4))
def test_rows_convert_the_same_together_and_one_by_one(rows: list[dict[str, Any]]) -> None:
    together = from_rows(rows, _SCHEMA)
    assert together.schema == _SCHEMA.arrow
    assert together.to_pylist() == [found for row in rows for found in from_rows([row], _SCHEMA).to_pylist()]
    assert [found["topic"] for found in together.to_pylist()] == [row["topic"] for row in rows]


_STRING, _NUMBER = _FEW["STRING"], _FEW["INT"]
_SHARED = (*PARTITION_COLUMNS, "kind", "subtopology_id", "topic_id", "topic")
_COMMON = _ROW.map(lambda row: {name: value for name, value in row.items() if name not in _SHARED})
_PARTITIONS = st.dictionaries(_NUMBER, _NUMBER, max_size=3)
_SHARES = st.dictionaries(st.tuples(_STRING, _STRING, _STRING, _STRING), st.tuples(_STRING, _PARTITIONS), max_size=3)


@given(st.lists(st.builds(Assignments, _COMMON, _SHARES), max_size=4))
def test_assignments_convert_like_their_single_rows(found: list[Assignments]) -> None:
    rows = flat_rows(found)
    assert count(found) == len(rows)
    assert from_rows(found, _SCHEMA).equals(from_rows(rows, _SCHEMA))
    told = [(topic, *own) for each in found for topic, has in each.shares.values() for own in has.items()]
    assert [(row["topic"], row["partition"], row["assignment_epoch"]) for row in rows] == told
