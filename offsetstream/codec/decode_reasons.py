"""Reasons why records could not be decoded: one per record, stored as an index into the distinct texts."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from offsetstream.codec.columns import REASONS, Bools, Cursor, Numbers
from offsetstream.codec.wire import reason_in_part


class DecodeReasons:
    """The reasons of one batch. The first reason of a record stays."""

    def __init__(self, rows: int) -> None:
        self._texts: dict[str, int] = {}
        self._index = np.full(rows, -1, np.int32)

    @property
    def ok(self) -> Bools:
        """Which records have no reason."""
        return self._index < 0

    def add(self, mask: Bools, text: str) -> None:
        """Give every record in `mask` the same reason."""
        rows = mask.nonzero()[0]
        rows = rows[self._index[rows] < 0]
        if len(rows):
            self._index[rows] = self._number(text)

    def add_each(self, rows: Sequence[int], texts: Sequence[str]) -> None:
        """Give each of `rows` its own reason."""
        for row, text in zip(rows, texts, strict=True):
            self._index[row] = self._number(text)

    def add_by_number(self, mask: Bools, codes: Numbers, text: Callable[[int], str]) -> None:
        """Give each record in `mask` the reason for its code."""
        rows = mask.nonzero()[0]
        if len(rows):
            distinct, inverse = np.unique(codes[rows], return_inverse=True)
            numbers = np.array([self._number(text(int(code))) for code in distinct], np.int32)
            self._index[rows] = numbers[inverse]

    def add_cursor(self, cursor: Cursor, part: str) -> None:
        """Add the reasons of a cursor's failed records. `part` is `key` or `value`."""
        if cursor.ok.all():
            return
        for reason, text in REASONS.items():
            self.add(cursor.reason == reason, reason_in_part(text, part))

    def column(self) -> pa.Array:
        """Return the reasons as a string column, null for records without one."""
        if not self._texts:
            return pa.nulls(len(self._index), pa.string())
        texts = pa.array([*self._texts, None], pa.string())  # index -1 takes the null at the end
        return texts.take(pa.array(np.where(self.ok, len(self._texts), self._index)))

    def _number(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))
