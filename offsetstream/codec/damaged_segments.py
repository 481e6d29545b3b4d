"""Read a log whose segments are damaged: skip each damaged batch, continue behind it, and say what is missing.

A batch's checksum covers neither its offset nor its length. So a damaged batch's own length is believed only if the log
continues where it ends, and no whole batches inside lead to that place. Otherwise the next batch is searched byte by
byte: its checksum must match, and the log must continue behind it as well, because a record may contain a batch. Of
batches whose offsets contradict each other, the one that does not fit its neighbours is skipped. One damage stays
unseen, to Kafka as well: another offset that fits the batches around.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from offsetstream.codec.batches import (
    HEADER_BYTES,
    LAST_DELTA_AT,
    MAGIC,
    MAGIC_AT,
    PREFIX,
    SMALLEST_SIZE,
    RecordBatch,
    matches_checksum,
    read_batch,
)
from offsetstream.codec.log_segments import (
    SEGMENT_NAME,
    DamagedBatchError,
    LogPartition,
    Report,
    Segment,
    Skip,
    Transactions,
    find_transactions,
    read_batches,
    without_earlier,
)
from offsetstream.codec.wire import DecodeError
from offsetstream.errors import SegmentError

_LAST_DELTA_AND_COUNT = struct.Struct(">i30xi")
_UP_TO_MAGIC = MAGIC_AT + 1
# What a batch may start with: offset and size are positive, the size is not too small, and the magic byte is known.
_START = re.compile(rb"(?=[\0-\x7f].{7}(?!\0\0\0[\0-\x0d])[\0-\x7f].{7}[\0-\2])", re.DOTALL)
_OFFSETS_OF_SEGMENT = 1 << 31  # an index has four bytes for an offset
_UNLIMITED = 1 << 63
_ZEROS_AT_ONCE = 1 << 20


def find_surviving(
    partition: LogPartition, report: Report, on_skip: Callable[[Skip], None]
) -> tuple[Transactions, Iterator[RecordBatch]]:
    """Return a partition's transactions, and its batches outside of what is damaged. It is read twice.

    `report` also gets a sentence for each transaction whose end may be among what was skipped.
    """
    skips: list[Skip] = []

    def note(skip: Skip) -> None:
        skips.append(skip)
        on_skip(skip)

    log = read_undamaged(partition.segments, report, note, transactions_only=True)
    transactions = find_transactions(log, skips)
    for producer, ranges in transactions.unknown.items():
        for first, end in ranges:
            report(
                f"{partition.path}: it is unknown how the transaction of producer {producer} at offset {first} ended, "
                f"because its end may be in a damaged batch: its records before offset {end} are left out"
            )
    return transactions, read_undamaged(partition.segments, _ignore, _ignore)


def _ignore(_: object) -> None:
    """Ignore what the first reading has reported."""


def read_undamaged(
    segments: Sequence[Segment], report: Report, on_skip: Callable[[Skip], None], *, transactions_only: bool = False
) -> Iterator[RecordBatch]:
    """Read the segments of one partition as `read_segments` does, but skip what is damaged.

    `on_skip` gets what was skipped before the next batch is yielded. Raises SegmentError only if a file cannot be read.
    """
    next_offset, skips = 0, _Skips(on_skip)
    for number, segment in enumerate(segments, 1):
        base = _base_offset(segment)
        if base is not None and base >= next_offset:
            skips.close(base)
            next_offset = base
        is_start = base is None and next_offset == 0
        following = segments[number] if number < len(segments) else None
        for item in _read(segment, following, report if following is None else None):
            if isinstance(item, Skip):
                skips.add(item, None if is_start else next_offset)
            elif batch := without_earlier(item, next_offset):
                skips.close(batch.base_offset)
                next_offset, is_start = batch.next_offset, False
                if not transactions_only or batch.is_transactional or batch.is_control:
                    yield batch
    skips.close(None)


@dataclass
class _Skips:
    """Collects skips until the next batch shows which offsets are missing."""

    on_skip: Callable[[Skip], None]
    waiting: list[Skip] = field(default_factory=list)

    def add(self, skip: Skip, first_offset: int | None) -> None:
        last = self.waiting[-1] if self.waiting else None
        if last is not None and (last.path, last.end) == (skip.path, skip.position):
            reason = last.reason if last.reason == skip.reason else f"{last.reason}; {skip.reason}"
            self.waiting[-1] = replace(last, end=skip.end, is_rest=skip.is_rest, is_one_batch=False, reason=reason)
        else:
            self.waiting.append(replace(skip, first_offset=first_offset))

    def close(self, next_offset: int | None) -> None:
        for skip in self.waiting:
            self.on_skip(replace(skip, next_offset=next_offset))
        self.waiting.clear()


def _base_offset(segment: Segment) -> int | None:
    """Return the first offset that a segment may have, by its name."""
    named = SEGMENT_NAME.fullmatch(segment.path.name)
    return int(named[1]) if named else None


def _read(segment: Segment, following: Segment | None, report: Report | None) -> Iterator[RecordBatch | Skip]:
    """Yield a segment's batches in the order of their offsets, and what is skipped. Reads the file twice."""
    known: dict[int, Skip] = {}
    placed = []
    for position, item in _read_on(segment, known, None):
        if not isinstance(item, Skip):
            placed.append(_Placed(position, item.base_offset, item.next_offset))
    # A cleaned segment may have the offsets of those that it is about to replace.
    is_log = following is not None and segment.path.suffix != ".swap"
    limit = _base_offset(following) if following is not None and is_log else None
    misplaced = _misplaced(placed, _base_offset(segment), limit)
    for position, item in _read_on(segment, known, report):
        if position in misplaced and not isinstance(item, Skip):
            end = position + item.size
            yield Skip(segment.path, position, end, "its offset does not fit the batches around", is_one_batch=True)
        else:
            yield item


def _read_on(
    segment: Segment, known: dict[int, Skip], report: Report | None
) -> Iterator[tuple[int, RecordBatch | Skip]]:
    """Yield a segment's batches and what is skipped, with their positions. `known` keeps what was found by a search."""
    position = 0
    while position < segment.size:
        try:
            yield from read_batches(segment, _raise_at_end, start=position)
        except DamagedBatchError as damage:
            if damage.position not in known:
                known[damage.position] = _skip(segment, damage)
            skip = known[damage.position]
            if isinstance(damage, _EndError) and skip.is_rest and report is not None:
                report(str(damage))  # a log may end so
            else:
                yield skip.position, skip
            position = skip.end
        else:
            return


class _EndError(DamagedBatchError):
    """A segment ends within a batch, or in zeros."""


def _raise_at_end(position: int, reason: str, note: str) -> None:
    raise _EndError(note, position, reason)


class _Placed(NamedTuple):
    """A batch's position in the file, its first offset, and the next one after it."""

    position: int
    first: int
    next: int


def _misplaced(batches: Sequence[_Placed], base: int | None, limit: int | None) -> set[int]:
    """Return the positions of batches whose offsets do not fit.

    The next segment starts at offset `limit`; a batch beyond it is wrong if there is room for it before.
    """
    low = 0 if base is None else base
    fitting = [each for each in batches if base is None or base <= each.first < base + _OFFSETS_OF_SEGMENT]
    misplaced = {each.position for each in batches} - {each.position for each in fitting}
    waiting = fitting[::-1]
    while waiting:
        one = waiting.pop()
        other = waiting[-1] if waiting else None
        is_last_and_beyond = other is None and limit is not None and one.next > limit >= low + one.next - one.first
        if one.first < low or is_last_and_beyond:
            misplaced.add(one.position)
        elif other is None or other.first >= one.next:
            low = one.next
        elif other.first < low:
            misplaced.add(waiting.pop().position)
            waiting.append(one)
        else:
            wrong = _contradicting(one, other, low, waiting[-2].first if len(waiting) > 1 else limit)
            misplaced |= {each.position for each in wrong}
            waiting[-1:] = [each for each in (other, one) if each not in wrong]
    return misplaced


def _contradicting(one: _Placed, other: _Placed, low: int, following: int | None) -> tuple[_Placed, ...]:
    """Return which of two neighbours has a wrong offset: the one that has room for its right one. Both if unknown."""
    rooms = {
        one: other.first - low - (one.next - one.first),
        other: _UNLIMITED if following is None else following - one.next - (other.next - other.first),
    }
    wrong = [each for each, room in rooms.items() if room >= 0]
    exact = [each for each, room in rooms.items() if room == 0]
    return tuple(wrong if len(wrong) == 1 else exact if len(exact) == 1 else (one, other))


def _skip(segment: Segment, damage: DamagedBatchError) -> Skip:
    """Find where the log continues behind a damaged batch."""
    try:
        with segment.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            log = _Log(data, min(segment.size, len(data)), _base_offset(segment))
            found, is_one_batch = log.after(damage.position)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SegmentError(f"cannot read {segment.path}: {reason}") from error
    end = segment.size if found is None else found
    return Skip(segment.path, damage.position, end, damage.reason, is_one_batch, is_rest=found is None)


class _Log:
    """A segment's bytes, to search for batches."""

    def __init__(self, data: mmap.mmap, size: int, base: int | None) -> None:
        self._data, self._size = data, size
        self._low, self._high = (0, _UNLIMITED) if base is None else (base, base + _OFFSETS_OF_SEGMENT)

    def after(self, position: int) -> tuple[int | None, bool]:
        """Return where the log continues behind a damaged batch, and whether that is the end by its own length."""
        end = self._declared_end(position)
        if end is not None and (end == self._size or self._whole(end) is not None or self._is_zero(end)):
            inside = (at for at in self._starts(position + 1, end) if self._leads_to(at, end))
            found = next(inside, end)
            return found, found == end
        for at in self._starts(position + 1, self._size):
            if (whole := self._whole(at)) is not None and self._continues(*whole):
                return at, False
        return end, end is not None

    def _declared_end(self, position: int) -> int | None:
        """Return where a batch ends by its own length; None if the log does not continue there."""
        if position + _UP_TO_MAGIC > self._size:
            return None
        offset, size = PREFIX.unpack_from(self._data, position)
        end = position + PREFIX.size + size
        is_end = size >= SMALLEST_SIZE and end <= self._size and self._continues(end, self._low or max(0, offset))
        return int(end) if is_end else None

    def _leads_to(self, at: int, end: int) -> bool:
        """Whether whole batches from here lead to that place: then a damaged length has jumped over them."""
        offset = self._low
        while at < end:
            whole = self._whole(at)
            if whole is None or PREFIX.unpack_from(self._data, at)[0] < offset:
                return False
            at, offset = whole
        return at == end

    def _starts(self, begin: int, end: int) -> Iterator[int]:
        """Yield where a batch may start."""
        for match in _START.finditer(self._data, begin, end):
            offset, size = PREFIX.unpack_from(self._data, match.start())
            if self._low <= offset < self._high and SMALLEST_SIZE <= size <= end - match.start() - PREFIX.size:
                yield match.start()

    def _whole(self, at: int) -> tuple[int, int] | None:
        """Return where a batch ends, and its next offset. None if no batch is here, or its checksum does not match."""
        if at + _UP_TO_MAGIC > self._size:
            return None
        offset, size = PREFIX.unpack_from(self._data, at)
        end = at + PREFIX.size + size
        if size < SMALLEST_SIZE or end > self._size or not self._low <= offset < self._high:
            return None
        if self._data[at + MAGIC_AT] == MAGIC:
            next_offset = self._next_offset(at, end)
            return None if next_offset is None else (end, next_offset)
        try:
            return end, read_batch(self._data[at:end]).next_offset
        except DecodeError:
            return None

    def _next_offset(self, at: int, end: int) -> int | None:
        """Return the next offset of a batch of format 2; None if its header or its checksum is wrong."""
        if end - at < HEADER_BYTES:
            return None
        last_delta, count = _LAST_DELTA_AND_COUNT.unpack_from(self._data, at + LAST_DELTA_AT)
        # The checksum is slow, so it is for those that look like a batch.
        if last_delta < 0 or not 0 <= count <= last_delta + 1 or not matches_checksum(self._data[at:end]):
            return None
        return int(PREFIX.unpack_from(self._data, at)[0] + last_delta + 1)

    def _continues(self, at: int, offset: int) -> bool:
        """Whether the log may continue here from an offset on: with a batch, whole or not, with zeros, or its end."""
        if at + _UP_TO_MAGIC > self._size:
            return True
        found, size = PREFIX.unpack_from(self._data, at)
        is_near = offset <= found < min(self._high, offset + _OFFSETS_OF_SEGMENT)
        if is_near and size >= SMALLEST_SIZE and self._data[at + MAGIC_AT] <= MAGIC:
            return True
        return self._is_zero(at)

    def _is_zero(self, at: int) -> bool:
        """Whether only zeros follow."""
        return all(
            not self._data[begin : min(begin + _ZEROS_AT_ONCE, self._size)].strip(b"\0")
            for begin in range(at, self._size, _ZEROS_AT_ONCE)
        )
