"""What the views at an instant must have: the topic's records up to that instant, replayed by the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice, pairwise
from operator import itemgetter
from random import Random
from typing import Any

from offsetstream.codec.batches import LogRecord, RecordBatch
from offsetstream.coordinator import GroupMetadataCache
from offsetstream.coordinator.replay.partition import cut_log
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


def intervals_of_other_transactions(book: Book, samples: list[tuple[int, int, int, int]]) -> list[tuple[int, int]]:
    """Return the intervals (ms) between two samples in which a transaction other than the long one was open.

    A short transaction may have ended soon after the sample, but `offsets_at` treats it as open until the next sample.
    `samples` has partition, time (ms), last stable offset and high watermark of each.
    """
    transaction, found = book.open_transaction, []
    for number, partition_samples in groupby(sorted(samples), key=itemgetter(0)):
        at_stable_high = [each[1:] for each in partition_samples]
        for (at_ms, stable, high), (next_ms, *_) in pairwise([*at_stable_high, (1 << 62, 0, 0)]):
            is_the_long_one = number == transaction["offsets_partition"] and stable == transaction["first_offset"]
            if stable < high and not is_the_long_one:
                found.append((at_ms, next_ms))
    return found


def random_instants(book: Book, records: Records, since_ms: int, unsure: list[tuple[int, int]]) -> list[int]:
    """Return random instants of the incident, some within the open transaction and some close to the cut of the log.

    Exclude the times between a change of the transaction or log and the job's sample of it, and the `unsure` intervals
    (from and to, ms): the state at those times is not known.
    """
    transaction, cut, rng = book.open_transaction, book.cut, Random(book.seed)
    last_ms = max(record.timestamp_ms or 0 for records_of_log in records.values() for record in records_of_log)
    excluded = (
        (transaction["since_ms"], transaction["seen_ms"]),
        (transaction["ending_ms"], transaction["ended_ms"]),
        (cut["began_ms"], cut["seen_ms"]),
        *unsure,
    )

    def draw(low: int, high: int, count: int) -> list[int]:
        drawn = (rng.randrange(low, high) for _ in range(1000 * count))
        known = (at_ms for at_ms in drawn if not any(low <= at_ms <= high for low, high in excluded))
        return list(islice(known, count))

    found = draw(transaction["seen_ms"] + 1, transaction["ending_ms"], INSTANTS // 5)
    found += draw(book.lost[0].until_ms, cut["began_ms"], INSTANTS // 10)
    found += draw(cut["seen_ms"] + 1, last_ms + 1000, INSTANTS // 10)
    found += draw(since_ms, last_ms + 1000, INSTANTS - len(found))
    assert len(found) == INSTANTS, f"the times that are unsure leave no instants: {excluded}"
    return sorted(found)


def view_state(rows: Callable[[str, datetime], Rows], book: Book, at_ms: int) -> dict[str, Any]:
    """Return the views' state at an instant, in the model's form.

    Before the cut, the state in the cut offsets partition must be unknown for each of its groups, because another log
    was there at that time.
    """
    found = {table: rows(view, instant(at_ms)) for table, view in _VIEWS.items()}
    number, groups = book.cut["offsets_partition"], {None, *(commit.cell.group for commit in book.lost)}
    for table, table_rows in found.items():
        unknown = {
            (row["offsets_partition"], row["group_id"]) for row in table_rows if row["unknown_reason"] is not None
        }
        assert unknown == ({(number, group) for group in groups} if is_before_cut(book, at_ms) else set()), table
        found[table] = [row for row in table_rows if row["unknown_reason"] is None]
        assert not unknown or number not in {row["offsets_partition"] for row in found[table]}
    return snapshot(found)


def is_before_cut(book: Book, at_ms: int) -> bool:
    return at_ms <= book.cut["began_ms"]


def model_state(book: Book, records: Records, at_ms: int) -> dict[str, Any]:
    """Return the model's state after the records up to the instant, without those that an open transaction blocked."""
    cache, transaction = GroupMetadataCache("new"), book.open_transaction
    is_open = transaction["seen_ms"] <= at_ms <= transaction["ending_ms"]
    for number, log_records in records.items():
        if number == book.cut["offsets_partition"] and is_before_cut(book, at_ms):
            continue
        is_blocked = is_open and number == transaction["offsets_partition"]
        end = transaction["first_offset"] if is_blocked else None
        loaded = cache.load_partition(number, list(cut_log(_batches(log_records), end_offset=end, end_ms=at_ms)))
        assert loaded.error is None, loaded.error
    return without_empty_assignments(cache.snapshot(book.topic_names))


def disagreements(found: Mapping[str, Any], expected: Mapping[str, Any], at_ms: int) -> list[str]:
    return [
        f"at {at_ms}: {kind}: {difference}: {each}"
        for kind in ("groups", "offsets")
        for difference, state, other_state in (("lacking", expected, found), ("beyond", found, expected))
        for each in state[kind]
        if each not in other_state[kind]
    ]


def _batches(records: list[LogRecord]) -> Iterator[RecordBatch]:
    for record in records:
        yield RecordBatch(record.offset, record.offset + 1, (record,))
