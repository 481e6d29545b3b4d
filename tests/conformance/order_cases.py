"""Commit, transactional commit, tombstone and COMMIT in every order, by both rules (reference 9.6, case 1)."""

from __future__ import annotations

from typing import Any

from offsetstream.codec.batches import RecordBatch
from tests.conformance.builder import (
    GROUP,
    Log,
    cells,
    commits,
    forget,
)
from tests.conformance.case import CLASSIC, NEW, Case

_SECTION = "9.6"
_SIMPLE: dict[str, Any] = {"type": "Classic", "state": "Empty", "generation": 0}

# N: a commit of 24; T: one of 23 in a transaction; D: a tombstone; C: the transaction's COMMIT. What is committed at
# the end: the first number in the classic coordinator, where a tombstone spares what is pending, the second in the new.
_ORDERS: dict[str, tuple[int | None, int | None]] = {
    "NTDC": (23, None),
    "NTCD": (None, None),
    "NDTC": (23, 23),
    "NDCT": (None, None),
    "NCTD": (None, None),
    "NCDT": (None, None),
    "TNDC": (23, None),
    "TNCD": (None, None),
    "TDNC": (24, 24),
    "TDCN": (24, 24),
    "TCND": (None, None),
    "TCDN": (24, 24),
    "DNTC": (23, 23),
    "DNCT": (24, 24),
    "DTNC": (24, 24),
    "DTCN": (24, 24),
    "DCNT": (24, 24),
    "DCTN": (24, 24),
    "CNTD": (None, None),
    "CNDT": (None, None),
    "CTND": (None, None),
    "CTDN": (24, 24),
    "CDNT": (24, 24),
    "CDTN": (24, 24),
}


def _in_order(order: str) -> tuple[RecordBatch, ...]:
    log = Log()
    for step in order:
        if step == "N":
            log.write(*commits(foo_0=24))
        elif step == "T":
            log.write(*commits(foo_0=23), producer=7)
        elif step == "D":
            log.write(forget("foo", 0))
        else:
            log.end(7)
    return log.batches


def _exists(order: str, offset: int | None) -> bool:
    """Whether the classic coordinator has the group: with an offset, or with one in the open transaction."""
    return offset is not None or order.index("T") > order.index("C")


def _orders() -> tuple[Case, ...]:
    return tuple(
        Case(
            _SECTION,
            f"1 {order} {coordinators[0]}",
            coordinators,
            _in_order(order),
            {GROUP: _SIMPLE} if coordinators == NEW or _exists(order, offset) else {},
            {} if offset is None else cells(foo_0=offset),
        )
        for order, offsets in _ORDERS.items()
        for coordinators, offset in zip((CLASSIC, NEW), offsets, strict=True)
    )


ORDER_CASES = _orders()
