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


@pytest.mark.parametrize("size", [SMALL, MANY, LONG])
def test_the_driver_reduces_small_batches_unless_spark_is_forced(size: Size) -> None:
    assert driver_reduces(AUTO, size) is driver_reduces(DRIVER, size) is (size is SMALL)
    assert not driver_reduces(SPARK, size)


def test_a_load_may_have_more_rows_but_not_more_bytes() -> None:
    assert driver_reduces(AUTO, Size(SMALL_LOAD, SMALL_BYTES), is_load=True)
    assert not driver_reduces(AUTO, Size(SMALL_LOAD + 1, 0), is_load=True)
    assert not driver_reduces(AUTO, LONG, is_load=True)


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
