"""The size of records, and what the driver processes at once. All limits are here."""

from __future__ import annotations

from dataclasses import dataclass

SMALL_ROWS = 1_200_000  # rows that remain of a log or batch after tasks have reduced them
MAX_SMALL_ROWS = 16_384  # rows of a batch that the reading Spark job returns to the driver at once
SMALL_BYTES = 128 << 20  # of keys, values and their JSON together


@dataclass(frozen=True)
class Size:
    """Number of rows, and the bytes of their keys, values and JSON."""

    rows: int
    bytes: int

    @property
    def fits_driver(self) -> bool:
        """Whether the driver can process the rows at once."""
        return self.portions == 1

    @property
    def portions(self) -> int:
        """Into how many portions to divide the rows for the driver."""
        return self.parts(SMALL_ROWS, SMALL_BYTES)

    def parts(self, rows: int, bytes_: int) -> int:
        """Return into how many parts to divide the rows, so that most have at most these rows and bytes."""
        return max(1, -(-self.rows // rows), -(-self.bytes // bytes_))
