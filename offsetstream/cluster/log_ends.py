"""Where the logs of many topics begin and end: what one partition, topic or leader refuses loses none of the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.connection import LEADER_MOVES, NO_RIGHT
from offsetstream.cluster.error_names import kafka_name
from offsetstream.cluster.topics import kafka_uuid

NO_TOPIC, NO_LEADER = "UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE"
HIDDEN = "TOPIC_AUTHORIZATION_FAILED"
# The client's cost grows faster than the partitions of one call: 20,000 in one took 2.0 s of CPU, in ten 0.5 s.
_AT_ONCE = 2000
_TIMEOUT = 10.0  # seconds: a leader that is silent must not stop the others' samples for longer
# What librdkafka says of a partition whose leader went away while it asked.
_ASK_AGAIN = {*LEADER_MOVES, KafkaError._NOENT}
_NO_RECORD = -1  # below it nobody answered in time: librdkafka may give no error then
_NO_ID = "A" * 22  # before Kafka 2.8


class TopicPlace(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True)
class LogEnd:
    """Where a partition's log begins (None: not asked, or not told) and ends, and who leads it."""

    topic_id: str | None
    leader_id: int | None
    leader_epoch: int | None
    log_start_offset: int | None
    high_watermark: int
    last_stable_offset: int


@dataclass(frozen=True)
class NoEnd:
    """Why a partition's ends are not told, in Kafka's words; which topic it is of, as far as that is."""

    topic_id: str | None
    error: str


@dataclass(frozen=True)
class RecordTimes:
    """When a partition's first record from some time on was written, and its newest, in milliseconds since 1970.

    `first_offset` is that of the former; -1 for no such record.
    """

    first_offset: int
    first_ms: int
    newest_ms: int


Answers: TypeAlias = dict[TopicPlace, LogEnd | NoEnd]
_Told: TypeAlias = dict[TopicPlace, Any]


class LogEnds(Cluster):
    """A live cluster that is asked where the logs of its topics end."""

    def ends(
        self, wanted: Mapping[str, Collection[int] | None], known_starts: Mapping[TopicPlace, str | None]
    ) -> Answers:
        """Return the ends of the wanted partitions (None: all of the topic), or why each has none.

        The starts of logs are asked of all but `known_starts`, which has topic ids. Raises UnreachableError where
        nobody answers.
        """
        topics, refused = self._described(wanted)
        found = self._ends_of(wanted, topics, refused, known_starts)
        for topic, numbers in wanted.items():
            for place in (TopicPlace(topic, number) for number in numbers or ()):
                found.setdefault(place, NoEnd(None, NO_TOPIC))
        return found

    def _ends_of(
        self,
        wanted: Mapping[str, Collection[int] | None],
        topics: Mapping[str, Any],
        refused: Mapping[str, str],
        known_starts: Mapping[TopicPlace, str | None],
    ) -> Answers:
        found: Answers = {
            TopicPlace(topic, number): NoEnd(None, error)
            for topic, error in refused.items()
            for number in wanted[topic] or ()
        }
        leaders: dict[TopicPlace, int] = {}
        for place, leader in _partitions(wanted, topics):
            if leader is None:
                found[place] = NoEnd(_id_of(topics[place.topic]), NO_LEADER)
            else:
                leaders[place] = leader
        of_start = [place for place in leaders if known_starts.get(place, _NO_ID) != _id_of(topics[place.topic])]
        starts, stable, high, errors = self._asked(leaders, of_start)
        for place, leader in leaders.items():
            topic_id = _id_of(topics[place.topic])
            if place in errors:
                found[place] = NoEnd(topic_id, errors[place])
            else:
                end, start = high[place], starts.get(place)
                stable_end = min(stable[place].offset, end.offset)
                found[place] = LogEnd(
                    topic_id, leader, end.leader_epoch, start and start.offset, end.offset, stable_end
                )
        return found

    def record_times(self, since: Mapping[TopicPlace, int]) -> dict[TopicPlace, RecordTimes]:
        """Return when records were written from a time on, by partition, in milliseconds since 1970.

        What a leader refuses or does not tell is left out (brokers before 3.0 do not know the newest: KIP-734).
        """
        isolation = IsolationLevel.READ_UNCOMMITTED
        newest, _ = self._offsets_once(dict.fromkeys(since, OffsetSpec.max_timestamp()), isolation)
        specs = {place: OffsetSpec.for_timestamp(since[place]) for place in newest}
        first, _ = self._offsets_once(specs, isolation)
        return {
            place: RecordTimes(told.offset, told.timestamp, newest[place].timestamp)
            for place, told in first.items()
            if min(told.offset, newest[place].offset) >= _NO_RECORD
        }

    def first_since(self, place: TopicPlace, since_ms: int) -> int | str | None:
        """Return the offset of the partition's first record of a time (ms since 1970) or later, None where none is.

        A text is Kafka's name of why it is not told.
        """
        return self.first_since_each({place: since_ms})[place]

    def first_since_each(self, since_ms: Mapping[TopicPlace, int]) -> dict[TopicPlace, int | str | None]:
        """Return the same of many partitions, each with a time of its own."""
        asked = {place: OffsetSpec.for_timestamp(each) for place, each in since_ms.items()}
        found, errors = self._offsets_again(asked, IsolationLevel.READ_UNCOMMITTED, below=_NO_RECORD)
        told: dict[TopicPlace, int | str | None] = {place: kafka_name(error) for place, error in errors.items()}
        for place, each in found.items():
            told[place] = (
                each.offset if each.offset >= 0 else None if each.offset == _NO_RECORD else "REQUEST_TIMED_OUT"
            )
        return told

    def offsets_retention(self) -> tuple[int | None, int | None]:
        """Return for how long the brokers keep offsets, and how often they look for expired ones, in milliseconds.

        UnauthorisedError without DESCRIBE_CONFIGS on the cluster.
        """
        config = self.broker_settings()
        minutes, interval = (config.get(f"offsets.retention.{name}") for name in ("minutes", "check.interval.ms"))
        return int(minutes) * 60_000 if minutes else None, int(interval) if interval else None

    def _described(self, names: Collection[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the topics that there are, by name, and why others are not described."""
        if not names:
            return {}, {}

        def ask(timeout: float) -> tuple[dict[str, Any], dict[str, KafkaError]]:
            asked = self._admin.describe_topics(TopicCollection(sorted(names)), request_timeout=timeout)
            found, errors = self._settle(asked)
            told = [error for error in errors.values() if error.code() in NO_RIGHT or kafka_name(error) == NO_TOPIC]
            if errors and not found and not told:
                raise KafkaException(next(iter(errors.values())))
            return found, errors

        found, errors = self._ask_again("the topics", ask)
        words = {name: kafka_name(error) for name, error in errors.items()}
        return found, {name: error for name, error in words.items() if error != NO_TOPIC}

    def _asked(
        self, led: Collection[TopicPlace], of_start: Collection[TopicPlace]
    ) -> tuple[_Told, _Told, _Told, dict[TopicPlace, str]]:
        """Return starts, last stable offsets, high watermarks and errors; the last stable offset is asked for last.

        So it is below the high watermark only where a transaction is open, not where records came between the two.
        """
        starts, errors = self._offsets(of_start, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
        left = [place for place in led if place not in errors]
        high, more = self._offsets(left, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        errors |= more
        left = [place for place in left if place not in errors]
        stable, more = self._offsets(left, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        return starts, stable, high, errors | more

    def _offsets(self, asked: Collection[TopicPlace], spec: Any, isolation: Any) -> tuple[_Told, dict[TopicPlace, str]]:
        found, errors = self._offsets_again(dict.fromkeys(asked, spec), isolation)
        words = {place: kafka_name(error) for place, error in errors.items()}
        # Of a leader that did not answer in time librdkafka may give offsets below zero instead of an error.
        silent = {place: "REQUEST_TIMED_OUT" for place, told in found.items() if told.offset < 0}
        return found, words | silent

    def _offsets_again(
        self, specs: Mapping[TopicPlace, Any], isolation: Any, below: int | None = None
    ) -> tuple[_Told, dict[TopicPlace, KafkaError]]:
        """Ask once more where a leader has moved, and where an offset is `below` this, as of one that was silent."""
        found, errors = self._offsets_once(specs, isolation)
        moved = {place for place, error in errors.items() if error.code() in _ASK_AGAIN}
        moved |= {place for place, told in found.items() if below is not None and told.offset < below}
        if not moved:
            return found, errors
        # Else librdkafka may ask by older leaders for minutes.
        self._ask("the topics", lambda: self._metadata(None))
        again, still = self._offsets_once({place: specs[place] for place in moved}, isolation)
        found = {place: each for place, each in found.items() if place not in moved} | again
        return found, {place: each for place, each in errors.items() if place not in moved} | still

    def _offsets_once(
        self, specs: Mapping[TopicPlace, Any], isolation: Any
    ) -> tuple[_Told, dict[TopicPlace, KafkaError]]:
        found: _Told = {}
        errors: dict[TopicPlace, KafkaError] = {}
        under_way = [  # at once: one silent leader is then waited for once
            self._admin.list_offsets(
                {TopicPartition(*place): specs[place] for place in some},
                isolation_level=isolation,
                request_timeout=_TIMEOUT,
            )
            for some in _pieces(specs)
        ]
        for answers in under_way:
            told, refused = self._settle(answers)
            found |= {TopicPlace(key.topic, key.partition): each for key, each in told.items()}
            errors |= {TopicPlace(key.topic, key.partition): each for key, each in refused.items()}
        return found, errors


def _partitions(
    wanted: Mapping[str, Collection[int] | None], topics: Mapping[str, Any]
) -> Iterator[tuple[TopicPlace, int | None]]:
    """Yield the wanted partitions that there are, with their leaders."""
    for name, topic in topics.items():
        numbers = wanted[name]
        for each in topic.partitions:
            if numbers is None or each.id in numbers:
                leader = each.leader.id if each.leader is not None else -1
                yield TopicPlace(name, each.id), leader if leader >= 0 else None


def _id_of(topic: Any) -> str | None:
    topic_id = kafka_uuid(topic.topic_id)
    return None if topic_id == _NO_ID else topic_id


def _pieces(asked: Collection[TopicPlace]) -> Iterator[list[TopicPlace]]:
    left = iter(asked)
    while some := list(islice(left, _AT_ONCE)):
        yield some
