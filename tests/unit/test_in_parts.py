"""Splitting a list into parts: no item is lost, and no part is larger than necessary."""

from hypothesis import given
from hypothesis import strategies as st

from offsetstream.in_parts import in_parts


@given(st.lists(st.integers(0, 9)), st.integers(1, 20))
def test_parts_are_large_enough_and_no_larger(sizes: list[int], enough: int) -> None:
    parts = list(in_parts(sizes, enough, int))
    assert [size for part in parts for size in part] == sizes
    assert all(sum(part[:-1]) < enough for part in parts)
    assert all(sum(part) >= enough for part in parts[:-1])
    assert [] not in parts
