"""Choose the engine of a write: the driver for what fits in its memory, else Spark. All limits are here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

SMALL_ROWS = 200_000  # up to this the driver and delta-rs take a tenth of Spark's time
SMALL_LOAD = 1_200_000  # rows that remain of a log or batch: Spark takes at least twice as long, with less memory
MAX_SMALL_ROWS = 16_384  # rows of a batch that the reading Spark job returns to the driver at once
SMALL_BYTES = 128 << 20  # of keys, values and their JSON together


class StateWrites(StrEnum):
    """The engine that merges into the state tables: the driver with delta-rs, or Spark. `AUTO` chooses by size."""

    AUTO = "auto"
    DRIVER = "driver"
    SPARK = "spark"


@dataclass(frozen=True)
class Size:
    """Number of rows, and the bytes of their keys, values and JSON."""

    rows: int
    bytes: int

    @property
    def is_small(self) -> bool:
        """Whether the driver merges the rows faster than Spark."""
        return self.rows <= SMALL_ROWS and self.bytes <= SMALL_BYTES

    @property
    def fits_driver(self) -> bool:
        """Whether the driver can process the rows, after tasks have reduced them."""
        return self.rows <= SMALL_LOAD and self.bytes <= SMALL_BYTES


def driver_reduces(ways: StateWrites, size: Size) -> bool:
    """Return whether the driver processes the decoded records instead of Spark: only if they fit in its memory."""
    return ways is not StateWrites.SPARK and size.fits_driver


def driver_merges(ways: StateWrites, measured: Callable[[], Size]) -> bool:
    """Return whether the driver does one merge. Even a large batch may have few rows left after it is reduced.

    `measured` runs a Spark job, so it is called only if the size decides.
    """
    return ways is StateWrites.DRIVER or (ways is StateWrites.AUTO and measured().is_small)
