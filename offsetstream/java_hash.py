"""Java's `String.hashCode`: it assigns groups to offsets partitions (reference 7) and orders Scala's maps."""

import sys
from array import array


def java_hash(text: str) -> int:
    """Return the hash of the text over its UTF-16 code units, as a signed 32-bit number."""
    # surrogatepass: a lone surrogate cannot come from Kafka, but must not break a look-up.
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    if sys.byteorder == "big":
        units.byteswap()
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value
