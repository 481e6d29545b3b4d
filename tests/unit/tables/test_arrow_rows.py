"""Plain rows as Arrow tables, whatever their columns repeat."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from offsetstream.tables.arrow_rows import from_rows
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
def test_rows_together_are_what_each_is_by_itself(rows: list[dict[str, Any]]) -> None:
    together = from_rows(rows, _SCHEMA)
    assert together.schema == _SCHEMA.arrow
    assert together.to_pylist() == [found for row in rows for found in from_rows([row], _SCHEMA).to_pylist()]
    assert [found["topic"] for found in together.to_pylist()] == [row["topic"] for row in rows]
