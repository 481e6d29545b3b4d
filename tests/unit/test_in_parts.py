"""Some of many at a time: nothing is lost, and no part is larger than it must be."""

from hypothesis import given
from hypothesis import strategies as st

from offsetstream.in_parts import in_parts


@given(st.lists(st.integers(0, 9)), st.integers(1, 20))
def test_parts_have_enough_and_no_more_than_that(sizes: list[int], enough: int) -> None:
    parts = list(in_parts(sizes, enough, int))
    assert [size for part in parts for size in part] == sizes
    assert all(sum(part[:-1]) < enough for part in parts)
    assert all(sum(part) >= enough for part in parts[:-1])
    assert [] not in parts
