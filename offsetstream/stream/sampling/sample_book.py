"""What was sampled last of each partition, and which samples are new rows of `end_offsets`: neither asks nor writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

from offsetstream.cluster.log_ends import Answers, LogEnd, RecordTimes, TopicPlace
from offsetstream.cluster.rights import OFFSETS_TOPIC

# However idle a partition is, a row so often says that it was looked at.
AT_LEAST_EVERY = timedelta(minutes=10)
_QUESTION_MS = 1000  # in which records may come between the look at the clock and the leaders' answers
_UNEVEN = 0.25  # of the greater of two rates, by which the other is lower
_HELD = timedelta(minutes=1)  # after which it is asked whose transaction a last stable offset stands at
_ASK_AGAIN = timedelta(minutes=1)  # where there was no answer


class Tail(NamedTuple):
    """The offsets of a log between two, of which nobody knows whether a record is at or behind them."""

    lower: int
    upper: int


class Holder(NamedTuple):
    """The open transaction that a log's last stable offset stands at; None for what its coordinator does not tell."""

    transactional_id: str | None
    started_at: datetime | None


class Values(NamedTuple):
    """What a new row of `end_offsets` is written for when it changes, as the tables call it."""

    topic_id: str | None = None
    leader_id: int | None = None
    leader_epoch: int | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    readable_end: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether an open transaction holds the last stable offset below the end."""
        return (
            self.high_watermark is not None
            and self.last_stable_offset is not None
            and self.last_stable_offset < self.high_watermark
        )


@dataclass
class Sampled:
    """A partition, as it is in `topic_partitions`; times are null until a look succeeded.

    `recorded_at` is the `sampled_at` of its last row in `end_offsets`, null for none; `rate` is how many records
    came a second between the last two looks. `stands`: the last look saw the end of the look before; `record_at` is the
    greatest offset at which a record was read since, -1 for none. `blocked_since`: when this job
    first saw the last stable offset where it is, below the end; `holder`: whose transaction that is.
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
        """Tell whether nobody was asked about this end, or so long ago that it is worth to ask again."""
        return self.error is None and (self.asked_at is None or now - self.asked_at >= _ASK_AGAIN)

    def rate_until(self, end: LogEnd, sampled_at: datetime) -> float:
        """Return how many records came a second since the last look; 0 where that is not known."""
        if self.values.high_watermark is None or self.sampled_at is None or sampled_at <= self.sampled_at:
            return 0.0
        rise = max(0, end.high_watermark - self.values.high_watermark)
        return rise / (sampled_at - self.sampled_at).total_seconds()


class SampleBook:
    """The partitions that are sampled, and the rows of `end_offsets` that wait to be written."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPlace, Sampled] = {}
        self.waiting: list[dict[str, Any]] = []

    def recall(self, rows: Iterable[Mapping[str, Any]], recorded: Mapping[TopicPlace, Mapping[str, Any]]) -> None:
        """Begin with the rows of `topic_partitions`, and with the last row that `end_offsets` has of each.

        A job whose writes failed, or of an older version, may have left out its last rows in the latter. Of these the
        newest is made up for; the one before it is known to have held at its own time only. One that was killed between
        its two writes left them in the latter alone: then that is what was seen last.
        """
        for row in rows:
            place = TopicPlace(row["topic"], row["partition"])
            self.partitions[place] = found = _recalled(row, recorded.get(place))
            if found.changed_at and (found.recorded_at is None or found.recorded_at < found.changed_at):
                self._record(place, found, found.changed_at, found.recorded_at)

    @property
    def starts(self) -> dict[TopicPlace, str | None]:
        """The partitions of which it is known where their logs begin, with the topic id of which it is."""
        known = ((place, each.values) for place, each in self.partitions.items())
        return {place: values.topic_id for place, values in known if values.log_start_offset is not None}

    def uneven(self, answers: Answers, sampled_at: datetime) -> Iterator[tuple[TopicPlace, datetime]]:
        """Yield the partitions whose ends rose at another rate than before, and when each was looked at last.

        There a burst began or ended, and a straight line between the two looks would be wrong by up to their distance.
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
        self, answers: Answers, sampled_at: datetime, times: Mapping[TopicPlace, RecordTimes] | None = None
    ) -> None:
        """Take in what a round was told; partitions that it was told nothing of are sampled no longer.

        `times`: when records were written since the look before, of `uneven` partitions.
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

    def tails(self, now: datetime) -> Iterator[tuple[TopicPlace, Tail]]:
        """Yield the partitions that stand still, and where in each nobody knows whether a record can be read."""
        for place, found in self.partitions.items():
            values = found.values
            if not found.stands or values.is_held or place.topic == OFFSETS_TOPIC or not found.is_to_ask(now):
                continue
            upper = values.high_watermark if values.readable_end is None else values.readable_end
            lower = max(found.record_at, values.log_start_offset or 0)
            if upper is not None and lower < upper:
                yield place, Tail(lower, upper)

    def take_records(
        self, asked: Mapping[TopicPlace, int], told: Mapping[TopicPlace, int | None], sampled_at: datetime
    ) -> None:
        """Take in at which offset the first record can be read from each of those that were asked; None: there is none.

        A new `readable_end` is a new row of `end_offsets`: the end of the log where there is a record.
        """
        for place, offset in asked.items():
            found = self.partitions[place]
            if place not in told:
                found.asked_at = sampled_at
                continue
            readable_end: int | None = offset
            if (record_at := told[place]) is not None:
                found.record_at = record_at
                readable_end = found.values.readable_end or found.values.high_watermark
            if readable_end != found.values.readable_end:
                found.values = found.values._replace(readable_end=readable_end)
                found.changed_at = sampled_at
                self._record(place, found, sampled_at, sampled_at)

    def held(self, now: datetime) -> list[TopicPlace]:
        """Return the partitions whose last stable offset has stood below the end for a minute, by whom is not known."""
        return [
            place
            for place, found in self.partitions.items()
            if found.blocked_since
            and found.holder is None
            and now - found.blocked_since >= _HELD
            and found.is_to_ask(now)
        ]

    def take_holders(
        self, asked: Iterable[TopicPlace], told: Mapping[TopicPlace, Holder], sampled_at: datetime
    ) -> None:
        """Take in whose transactions hold those back that were asked."""
        for place in asked:
            self.partitions[place].holder, self.partitions[place].asked_at = told.get(place), sampled_at

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
        self, place: TopicPlace, found: Sampled, end: LogEnd, sampled_at: datetime, times: RecordTimes | None
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
        held_until, since = _rise(found, times, sampled_at)
        is_new = found.changed_at is None or values != found.values
        found.rate = found.rate_until(end, sampled_at)
        found.values, found.sampled_at, found.error = values, sampled_at, None
        if is_new:
            found.changed_at = since
        if is_new or found.recorded_at is None or sampled_at - found.recorded_at >= AT_LEAST_EVERY:
            self._record(place, found, since, held_until)

    def _record(self, place: TopicPlace, found: Sampled, sampled_at: datetime, held_until: datetime | None) -> None:
        if found.recorded_at == sampled_at:  # what is known of the same look by now
            held_until = self._forgotten(place, sampled_at, held_until)
        times = {"sampled_at": sampled_at, "previous_sampled_at": held_until}
        self.waiting.append({**place._asdict(), **found.values._asdict(), **times})
        found.recorded_at = sampled_at

    def _forgotten(self, place: TopicPlace, sampled_at: datetime, held_until: datetime | None) -> datetime | None:
        """Take back the row of a look, and return until when the row before it held."""
        for number, row in enumerate(self.waiting):
            if (row["topic"], row["partition"], row["sampled_at"]) == (*place, sampled_at):
                del self.waiting[number]
                return cast("datetime | None", row["previous_sampled_at"])
        return held_until


def _recalled(row: Mapping[str, Any], last: Mapping[str, Any] | None) -> Sampled:
    """Return what was seen last: the row of `topic_partitions`, or the `last` one of `end_offsets` if that is newer."""
    recorded_at: datetime | None = last["sampled_at"] if last else None
    seen, sampled_at, changed_at = row, row["sampled_at"], row["changed_at"]
    if last and recorded_at and (sampled_at is None or recorded_at > sampled_at):
        seen, sampled_at, changed_at = last, recorded_at, recorded_at
    return Sampled(Values(*(seen[name] for name in Values._fields)), sampled_at, changed_at, row["error"], recorded_at)


def _is_other(found: Sampled, topic_id: str | None) -> bool:
    """Tell whether the topic is another one of the same name; an id that is not told tells nothing."""
    return topic_id is not None and found.values.topic_id != topic_id


def _rise(found: Sampled, times: RecordTimes | None, sampled_at: datetime) -> tuple[datetime | None, datetime]:
    """Return until when the end held that was seen last, and since when the new one; else the times of the two looks.

    Clocks of producers may tell anything: what does not lie between the looks tells nothing.
    """
    if times is None or found.sampled_at is None:
        return found.sampled_at, sampled_at
    held_until, since = found.sampled_at, sampled_at
    first, newest = (_time(each, sampled_at) for each in (times.first_ms, times.newest_ms))
    if first and times.first_offset == found.values.high_watermark and first > held_until:
        held_until = first
    if newest and held_until <= newest < since and newest > found.sampled_at:
        since = newest
    return held_until, since


def _time(ms: int, latest: datetime) -> datetime | None:
    """Return the time, `latest` at most; None where it is later by more than a question takes, as wrong clocks tell."""
    later_ms = ms - latest.timestamp() * 1000
    if later_ms > _QUESTION_MS:
        return None
    return latest if later_ms >= 0 else datetime.fromtimestamp(max(ms, 0) / 1000, UTC)
