import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetstream.coordinator.partitioning import partition_for
from offsetstream.java_hash import java_hash

# Reference 7: group id, String.hashCode, partition of 50.
TABLE = [
    ("testgroup", -1172783827, 27),
    ("polygenelubricants", -2147483648, 0),
    ("DESIGNING WORKHOUSES", -2147483648, 0),
    ("", 0, 0),
    ("console-consumer-12345", 158455506, 6),
    ("connect-cluster", 1440343063, 13),
    ("my-group", -1906497762, 12),
    ("grüppe", -1233264812, 12),
    ("日本語グループ", -305235731, 31),
    ("group-😀", 508083057, 7),
    ("😀", 1772899, 49),
    ("𝄞", 1772394, 44),
]


@pytest.mark.parametrize(("group_id", "hash_code", "partition"), TABLE)
def test_partitions_equal_the_table_of_the_reference(group_id: str, hash_code: int, partition: int) -> None:
    assert java_hash(group_id) == hash_code
    assert partition_for(group_id, 50) == partition


@given(st.text(), st.integers(min_value=1, max_value=1000))
def test_a_partition_is_always_one_of_the_topic(group_id: str, partitions: int) -> None:
    assert 0 <= partition_for(group_id, partitions) < partitions


@given(st.text(), st.text(max_size=5))
def test_the_hash_is_a_polynomial_of_its_code_units(prefix: str, suffix: str) -> None:
    units = len(suffix.encode("utf-16-le")) // 2
    whole = java_hash(prefix) * 31**units + java_hash(suffix)
    assert (java_hash(prefix + suffix) - whole) % 2**32 == 0


def test_a_lone_surrogate_is_hashed_as_its_code_unit() -> None:
    assert java_hash("\ud83d") == 0xD83D


def test_a_partition_count_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one partition, not 0"):
        partition_for("g", 0)
