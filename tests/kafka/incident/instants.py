"""What the views of an instant must have: Kafka's records of the topic up to it, replayed by the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice, pairwise
from operator import itemgetter
from random import Random
from typing import Any

from offsetstream.codec.record_batches import LogRecord, RecordBatch
from offsetstream.coordinator import GroupMetadataCache
from offsetstream.coordinator.log_cut import cut_log
from tests.conformance.state_rows import snapshot, without_empty_assignments
from tests.kafka.incident.book import Book
from tests.reliability.truth import Records

Rows = list[dict[str, Any]]
INSTANTS = 50
_VIEWS = {
    "groups": "group_state_at",
    "group_members": "members_at",
    "member_assignments": "assignments_at",
    "committed_offsets": "offsets_at",
}


def instant(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def blocked_otherwise(book: Book, samples: list[tuple[int, int, int, int]]) -> list[tuple[int, int]]:
    """From which sample of an offsets partition to its next one (ms) another transaction than the long one was open.

    A short transaction may have ended soon after the sample; `offsets_at` takes it for open until the next one.
    `samples` has partition, time (ms), last stable offset and high watermark of each.
    """
    told, found = book.open_transaction, []
    for number, own in groupby(sorted(samples), key=itemgetter(0)):
        at_stable_high = [each[1:] for each in own]
        for (at_ms, stable, high), (next_ms, *_) in pairwise([*at_stable_high, (1 << 62, 0, 0)]):
            is_the_long_one = number == told["offsets_partition"] and stable == told["first_offset"]
            if stable < high and not is_the_long_one:
                found.append((at_ms, next_ms))
    return found


def random_instants(book: Book, records: Records, since_ms: int, unsure: list[tuple[int, int]]) -> list[int]:
    """Random instants of the incident, several within the open transaction, and close to the log that was cut.

    None is between what happened to the transaction, or to that log, and the job's look at it, nor within the other
    times (from and to, ms) that are unsure: nobody can know then.
    """
    told, cut, rng = book.open_transaction, book.cut, Random(book.seed)
    last_ms = max(record.timestamp_ms or 0 for own in records.values() for record in own)
    in_between = (
        (told["since_ms"], told["seen_ms"]),
        (told["ending_ms"], told["ended_ms"]),
        (cut["began_ms"], cut["seen_ms"]),
        *unsure,
    )

    def some(low: int, high: int, count: int) -> list[int]:
        drawn = (rng.randrange(low, high) for _ in range(1000 * count))
        known = (at_ms for at_ms in drawn if not any(low <= at_ms <= high for low, high in in_between))
        return list(islice(known, count))

    found = some(told["seen_ms"] + 1, told["ending_ms"], INSTANTS // 5)
    found += some(book.lost[0].until_ms, cut["began_ms"], INSTANTS // 10)
    found += some(cut["seen_ms"] + 1, last_ms + 1000, INSTANTS // 10)
    found += some(since_ms, last_ms + 1000, INSTANTS - len(found))
    assert len(found) == INSTANTS, f"the times that are unsure leave no instants: {in_between}"
    return sorted(found)


def stood(rows: Callable[[str, datetime], Rows], book: Book, at_ms: int) -> dict[str, Any]:
    """What the views have, in the words of the model.

    Before the cut it is unknown in that offsets partition, of each of its groups: by then another log was there.
    """
    found = {table: rows(view, instant(at_ms)) for table, view in _VIEWS.items()}
    number, groups = book.cut["offsets_partition"], {None, *(commit.cell.group for commit in book.lost)}
    for table, own in found.items():
        unknown = {(row["offsets_partition"], row["group_id"]) for row in own if row["unknown_reason"] is not None}
        assert unknown == ({(number, group) for group in groups} if is_cut_later(book, at_ms) else set()), table
        found[table] = [row for row in own if row["unknown_reason"] is None]
        assert not unknown or number not in {row["offsets_partition"] for row in found[table]}
    return snapshot(found)


def is_cut_later(book: Book, at_ms: int) -> bool:
    return at_ms <= book.cut["began_ms"]


def replayed(book: Book, records: Records, at_ms: int) -> dict[str, Any]:
    """What the model holds of the records before the instant that no open transaction blocked then."""
    cache, told = GroupMetadataCache("new"), book.open_transaction
    is_open = told["seen_ms"] <= at_ms <= told["ending_ms"]
    for number, own in records.items():
        if number == book.cut["offsets_partition"] and is_cut_later(book, at_ms):
            continue
        is_blocked = is_open and number == told["offsets_partition"]
        end = told["first_offset"] if is_blocked else None
        loaded = cache.load_partition(number, list(cut_log(_batches(own), end_offset=end, end_ms=at_ms)))
        assert loaded.error is None, loaded.error
    return without_empty_assignments(cache.snapshot(book.topic_names))


def disagreements(found: Mapping[str, Any], held: Mapping[str, Any], at_ms: int) -> list[str]:
    return [
        f"at {at_ms}: {kind}: {what}: {each}"
        for kind in ("groups", "offsets")
        for what, some, others in (("lacking", held, found), ("beyond", found, held))
        for each in some[kind]
        if each not in others[kind]
    ]


def _batches(records: list[LogRecord]) -> Iterator[RecordBatch]:
    for record in records:
        yield RecordBatch(record.offset, record.offset + 1, (record,))
