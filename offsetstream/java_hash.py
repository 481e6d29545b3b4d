"""Java's `String.hashCode`, which places groups (reference 7) and orders Scala's maps."""

import sys
from array import array


def java_hash(text: str) -> int:
    """Return the hash of the text: over UTF-16 code units, in 32 bits, signed."""
    # surrogatepass: a lone surrogate cannot come from Kafka, yet must not stop a look-up.
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    if sys.byteorder == "big":
        units.byteswap()
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value
