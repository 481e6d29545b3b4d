"""Which engine writes what: the driver by itself what it can hold, Spark all else. The limits stand here alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

SMALL_ROWS = 200_000  # which the driver reduces, and delta-rs merges, in a tenth of the time of Spark
SMALL_LOAD = 1_200_000  # of what a load leaves of the log: rare; Spark takes twice as long and longer, with less memory
FEW_ROWS = 16_384  # of a batch, which come to the driver by the job that reads them
SMALL_BYTES = 128 << 20  # of keys, values and their JSON


class StateWrites(StrEnum):
    """Who merges into the state tables: the driver by delta-rs or Spark by MERGE; `AUTO` chooses by size."""

    AUTO = "auto"
    DRIVER = "driver"
    SPARK = "spark"


@dataclass(frozen=True)
class Size:
    """How many rows there are, and the bytes of their keys, values and JSON."""

    rows: int
    bytes: int

    def is_small(self, *, is_load: bool = False) -> bool:
        """Tell whether the driver can hold them, of a batch or of what a load leaves of the log."""
        return self.rows <= (SMALL_LOAD if is_load else SMALL_ROWS) and self.bytes <= SMALL_BYTES


def driver_reduces(ways: StateWrites, size: Size, *, is_load: bool = False) -> bool:
    """Tell whether the driver takes decoded records as a whole, which it does only if it can hold them."""
    return ways is not StateWrites.SPARK and size.is_small(is_load=is_load)


def driver_merges(ways: StateWrites, measured: Callable[[], Size]) -> bool:
    """Tell whether the driver takes the rows of one merge: of a large batch, too, few may be left when it is reduced.

    `measured`, which takes a Spark job, is called only where the size decides.
    """
    return ways is StateWrites.DRIVER or (ways is StateWrites.AUTO and measured().is_small())
