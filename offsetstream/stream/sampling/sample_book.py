"""The last sample of each partition, and which samples become rows of `end_offsets`. No queries, no writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

from offsetstream.cluster.log_ends import Answers, LogEnd, RecordTimes, TopicPartitionKey
from offsetstream.cluster.rights import OFFSETS_TOPIC

# An idle partition has a row at least this often, which shows that it was sampled.
AT_LEAST_EVERY = timedelta(minutes=10)
_QUERY_MS = 1000  # in which records may arrive between reading the clock and the leaders' answers
_UNEVEN = 0.25  # two rates differ if the lower one is less by this share of the greater one
_BLOCKED = timedelta(minutes=1)  # after which the transaction that blocks a last stable offset is queried
_ASK_AGAIN = timedelta(minutes=1)  # if there was no answer


class Tail(NamedTuple):
    """A range of offsets for which it is unknown whether a record can be read at or after them."""

    lower: int
    upper: int


class Holder(NamedTuple):
    """The open transaction that blocks the last stable offset. None for what its coordinator does not return."""

    transactional_id: str | None
    started_at: datetime | None


class Values(NamedTuple):
    """The columns of `end_offsets` of which a change needs a new row."""

    topic_id: str | None = None
    leader_id: int | None = None
    leader_epoch: int | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    readable_end: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether an open transaction blocks the last stable offset below the end."""
        return (
            self.high_watermark is not None
            and self.last_stable_offset is not None
            and self.last_stable_offset < self.high_watermark
        )


@dataclass
class Sampled:
    """A partition of `topic_partitions`. Times are None until a sample succeeded.

    - `recorded_at`: `sampled_at` of its last row in `end_offsets`, None if there is none.
    - `rate`: records per second between the last two samples.
    - `stands`: whether the last two samples saw the same end.
    - `record_at`: the greatest offset at which a record was read since the end stands, -1 if none.
    - `blocked_since`: when this job first saw the last stable offset where it is, below the end.
    - `holder`: the transaction that blocks it.
    """

    values: Values
    sampled_at: datetime | None = None
    changed_at: datetime | None = None
    error: str | None = None
    recorded_at: datetime | None = None
    rate: float = 0.0
    stands: bool = False
    record_at: int = -1
    blocked_since: datetime | None = None
    holder: Holder | None = None
    asked_at: datetime | None = None

    def is_to_ask(self, now: datetime) -> bool:
        """Return whether this end was not queried yet, or long enough ago to try again."""
        return self.error is None and (self.asked_at is None or now - self.asked_at >= _ASK_AGAIN)

    def rate_until(self, end: LogEnd, sampled_at: datetime) -> float:
        """Return the records per second since the last sample; 0 if that is unknown."""
        if self.values.high_watermark is None or self.sampled_at is None or sampled_at <= self.sampled_at:
            return 0.0
        rise = max(0, end.high_watermark - self.values.high_watermark)
        return rise / (sampled_at - self.sampled_at).total_seconds()


class SampleBook:
    """The sampled partitions, and the rows of `end_offsets` that are not written yet."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartitionKey, Sampled] = {}
        self.waiting: list[dict[str, Any]] = []

    def recall(
        self, rows: Iterable[Mapping[str, Any]], recorded: Mapping[TopicPartitionKey, Mapping[str, Any]]
    ) -> None:
        """Start with the rows of `topic_partitions`, and the last row of each partition in `end_offsets`.

        If the last job could not write to `end_offsets`, it lacks its last rows.
        The newest of them is added now, with the time of the row before it. If the last job was killed between its two
        writes, only `end_offsets` has the last sample: then that one counts.
        """
        for row in rows:
            place = TopicPartitionKey(row["topic"], row["partition"])
            self.partitions[place] = found = _recalled(row, recorded.get(place))
            if found.changed_at and (found.recorded_at is None or found.recorded_at < found.changed_at):
                self._record(place, found, found.changed_at, found.recorded_at)

    @property
    def starts(self) -> dict[TopicPartitionKey, str | None]:
        """The topic ids of the partitions with a known log start offset."""
        known = ((place, each.values) for place, each in self.partitions.items())
        return {place: values.topic_id for place, values in known if values.log_start_offset is not None}

    def with_changed_rate(self, answers: Answers, sampled_at: datetime) -> Iterator[tuple[TopicPartitionKey, datetime]]:
        """Yield the partitions whose ends rose at another rate than before, with the time of the last sample.

        A burst started or ended there. A straight line between the two samples would be wrong by up to their distance.
        """
        for place, answer in answers.items():
            found = self.partitions.get(place)
            if found is None or found.sampled_at is None or not isinstance(answer, LogEnd):
                continue
            if place.topic == OFFSETS_TOPIC or _is_other(found, answer.topic_id):
                continue
            rate = found.rate_until(answer, sampled_at)
            if rate > 0 and abs(rate - found.rate) > _UNEVEN * max(rate, found.rate):
                yield place, found.sampled_at

    def take(
        self, answers: Answers, sampled_at: datetime, times: Mapping[TopicPartitionKey, RecordTimes] | None = None
    ) -> None:
        """Take the answers of a round. Partitions without an answer are no longer sampled.

        `times`: for `with_changed_rate` partitions, when records were written since the last sample.
        """
        before, self.partitions = self.partitions, {}
        for place, answer in answers.items():
            found = before.get(place)
            if found is None or _is_other(found, answer.topic_id):
                found = Sampled(Values(answer.topic_id))
            self.partitions[place] = found
            if isinstance(answer, LogEnd):
                self._sample(place, found, answer, sampled_at, (times or {}).get(place))
            else:
                found.error = answer.error

    def tails(self, now: datetime) -> Iterator[tuple[TopicPartitionKey, Tail]]:
        """Yield the idle partitions with the range in which it is unknown whether a record can be read."""
        for place, found in self.partitions.items():
            values = found.values
            if not found.stands or values.is_held or place.topic == OFFSETS_TOPIC or not found.is_to_ask(now):
                continue
            upper = values.high_watermark if values.readable_end is None else values.readable_end
            lower = max(found.record_at, values.log_start_offset or 0)
            if upper is not None and lower < upper:
                yield place, Tail(lower, upper)

    def take_records(
        self,
        asked: Mapping[TopicPartitionKey, int],
        answers: Mapping[TopicPartitionKey, int | None],
        sampled_at: datetime,
    ) -> None:
        """Take the offset of the first readable record after each offset in `asked`; None if there is none.

        A new `readable_end` needs a new row of `end_offsets`. If there is a record, it is the end of the log.
        """
        for place, offset in asked.items():
            found = self.partitions[place]
            if place not in answers:
                found.asked_at = sampled_at
                continue
            readable_end: int | None = offset
            if (record_at := answers[place]) is not None:
                found.record_at = record_at
                readable_end = found.values.readable_end or found.values.high_watermark
            if readable_end != found.values.readable_end:
                found.values = found.values._replace(readable_end=readable_end)
                found.changed_at = sampled_at
                self._record(place, found, sampled_at, sampled_at)

    def blocked(self, now: datetime) -> list[TopicPartitionKey]:
        """Return the partitions that have been blocked for a minute by an unknown transaction."""
        return [
            place
            for place, found in self.partitions.items()
            if found.blocked_since
            and found.holder is None
            and now - found.blocked_since >= _BLOCKED
            and found.is_to_ask(now)
        ]

    def take_blocking(
        self, asked: Iterable[TopicPartitionKey], answers: Mapping[TopicPartitionKey, Holder], sampled_at: datetime
    ) -> None:
        """Take the transactions that block the partitions in `asked`."""
        for place in asked:
            self.partitions[place].holder, self.partitions[place].asked_at = answers.get(place), sampled_at

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of `topic_partitions`."""
        return [
            {
                **place._asdict(),
                **each.values._asdict(),
                "sampled_at": each.sampled_at,
                "changed_at": each.changed_at,
                "error": each.error,
                "open_transaction": each.holder and each.holder.transactional_id,
                "open_transaction_since": each.holder and each.holder.started_at,
            }
            for place, each in self.partitions.items()
        ]

    def _sample(
        self, place: TopicPartitionKey, found: Sampled, end: LogEnd, sampled_at: datetime, times: RecordTimes | None
    ) -> None:
        start = found.values.log_start_offset if end.log_start_offset is None else end.log_start_offset
        values = Values(
            end.topic_id, end.leader_id, end.leader_epoch, start, end.high_watermark, end.last_stable_offset
        )
        found.stands = found.values.high_watermark == values.high_watermark
        if values.is_held:
            if found.blocked_since is None or found.values.last_stable_offset != values.last_stable_offset:
                found.blocked_since, found.holder, found.asked_at = sampled_at, None, None
        else:
            found.blocked_since, found.holder = None, None
            if found.stands:
                values = values._replace(readable_end=found.values.readable_end)
            else:
                found.asked_at = None
        if not found.stands:
            found.record_at = -1
        unchanged_until, since = _rise(found, times, sampled_at)
        is_new = found.changed_at is None or values != found.values
        found.rate = found.rate_until(end, sampled_at)
        found.values, found.sampled_at, found.error = values, sampled_at, None
        if is_new:
            found.changed_at = since
        if is_new or found.recorded_at is None or sampled_at - found.recorded_at >= AT_LEAST_EVERY:
            self._record(place, found, since, unchanged_until)

    def _record(
        self, place: TopicPartitionKey, found: Sampled, sampled_at: datetime, unchanged_until: datetime | None
    ) -> None:
        if found.recorded_at == sampled_at:  # more is known now about the same sample
            unchanged_until = self._withdraw(place, sampled_at, unchanged_until)
        times = {"sampled_at": sampled_at, "previous_sampled_at": unchanged_until}
        self.waiting.append({**place._asdict(), **found.values._asdict(), **times})
        found.recorded_at = sampled_at

    def _withdraw(
        self, place: TopicPartitionKey, sampled_at: datetime, unchanged_until: datetime | None
    ) -> datetime | None:
        """Remove the waiting row of a sample, and return until when the row before it was valid."""
        for number, row in enumerate(self.waiting):
            if (row["topic"], row["partition"], row["sampled_at"]) == (*place, sampled_at):
                del self.waiting[number]
                return cast("datetime | None", row["previous_sampled_at"])
        return unchanged_until


def _recalled(row: Mapping[str, Any], last: Mapping[str, Any] | None) -> Sampled:
    """Return the last sample: the row of `topic_partitions`, or `last` from `end_offsets` if that is newer."""
    recorded_at: datetime | None = last["sampled_at"] if last else None
    newest, sampled_at, changed_at = row, row["sampled_at"], row["changed_at"]
    if last and recorded_at and (sampled_at is None or recorded_at > sampled_at):
        newest, sampled_at, changed_at = last, recorded_at, recorded_at
    return Sampled(
        Values(*(newest[name] for name in Values._fields)), sampled_at, changed_at, row["error"], recorded_at
    )


def _is_other(found: Sampled, topic_id: str | None) -> bool:
    """Return whether the topic was recreated. An unknown id shows nothing."""
    return topic_id is not None and found.values.topic_id != topic_id


def _rise(found: Sampled, times: RecordTimes | None, sampled_at: datetime) -> tuple[datetime | None, datetime]:
    """Return until when the last end was valid, and since when the new one is; by default the times of the two samples.

    Clocks of producers may be wrong: ignore times that are not between the two samples.
    """
    if times is None or found.sampled_at is None:
        return found.sampled_at, sampled_at
    unchanged_until, since = found.sampled_at, sampled_at
    first, newest = (_time(each, sampled_at) for each in (times.first_ms, times.newest_ms))
    if first and times.first_offset == found.values.high_watermark and first > unchanged_until:
        unchanged_until = first
    if newest and unchanged_until <= newest < since and newest > found.sampled_at:
        since = newest
    return unchanged_until, since


def _time(ms: int, latest: datetime) -> datetime | None:
    """Return the time, at most `latest`; None if it is later by more than a query takes: then a clock is wrong."""
    later_ms = ms - latest.timestamp() * 1000
    if later_ms > _QUERY_MS:
        return None
    return latest if later_ms >= 0 else datetime.fromtimestamp(max(ms, 0) / 1000, UTC)
