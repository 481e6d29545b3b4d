"""The size of the rows, or the user's setting, decides which engine writes."""

import pytest

from offsetstream.tables.engines import (
    SMALL_BYTES,
    SMALL_LOAD,
    SMALL_ROWS,
    Size,
    StateWrites,
    driver_merges,
    driver_reduces,
)

AUTO, DRIVER, SPARK = StateWrites.AUTO, StateWrites.DRIVER, StateWrites.SPARK
SMALL, MANY, LONG = Size(SMALL_ROWS, SMALL_BYTES), Size(SMALL_ROWS + 1, 0), Size(1, SMALL_BYTES + 1)
REDUCED = Size(SMALL_LOAD, SMALL_BYTES)


@pytest.mark.parametrize("size", [REDUCED, Size(SMALL_LOAD + 1, 0), LONG])
def test_the_driver_takes_what_fits_its_memory_unless_spark_is_forced(size: Size) -> None:
    assert driver_reduces(AUTO, size) is driver_reduces(DRIVER, size) is (size is REDUCED)
    assert not driver_reduces(SPARK, size)


@pytest.mark.parametrize("size", [SMALL, MANY, LONG])
def test_a_merge_is_measured_only_if_the_size_decides(size: Size) -> None:
    measured: list[Size] = []

    def measure() -> Size:
        measured.append(size)
        return size

    assert driver_merges(DRIVER, measure)
    assert not driver_merges(SPARK, measure)
    assert measured == []
    assert driver_merges(AUTO, measure) is (size is SMALL)
    assert measured == [size]
