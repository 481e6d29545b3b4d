"""What the driver processes at once."""

import pytest

from offsetstream.tables.rows import SMALL_BYTES, SMALL_ROWS, Size


@pytest.mark.parametrize(
    ("size", "fits"),
    [
        (Size(SMALL_ROWS, SMALL_BYTES), True),
        (Size(SMALL_ROWS + 1, 0), False),
        (Size(1, SMALL_BYTES + 1), False),
    ],
)
def test_rows_and_bytes_are_limited(size: Size, fits: bool) -> None:
    assert size.fits_driver is fits


@pytest.mark.parametrize(
    ("size", "parts"), [(Size(0, 0), 1), (Size(10, 50), 1), (Size(11, 0), 2), (Size(1, 151), 4), (Size(31, 60), 4)]
)
def test_the_larger_of_rows_and_bytes_decides_into_how_many_parts_to_divide(size: Size, parts: int) -> None:
    assert size.parts(10, 50) == parts
