"""Start and end offsets of many topics. An error of one partition, topic or leader does not affect the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from offsetstream.cluster.client import Cluster, kafka_uuid
from offsetstream.cluster.connection import LEADER_MOVES, NO_RIGHT, kafka_name
from offsetstream.codec.record_layouts import ZERO_UUID

NO_TOPIC, NO_LEADER = "UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE"
HIDDEN = "TOPIC_AUTHORIZATION_FAILED"
# Large requests cost the client more per partition: 20,000 partitions took 2.0 s of CPU in one request, 0.5 s in ten.
_MAX_PER_REQUEST = 2000
_TIMEOUT = 10.0  # seconds: a silent leader must not delay the samples of the others for longer
# librdkafka's errors for a partition whose leader changed during the request.
_RETRIABLE = {*LEADER_MOVES, KafkaError._NOENT}
_NO_RECORD = -1  # a smaller number means no answer in time: librdkafka may then return no error


class TopicPartitionKey(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True)
class LogEnd:
    """The leader, the end offsets and the start offset of a partition's log (start None: not requested, or unknown)."""

    topic_id: str | None
    leader_id: int | None
    leader_epoch: int | None
    log_start_offset: int | None
    high_watermark: int
    last_stable_offset: int


@dataclass(frozen=True)
class NoEnd:
    """Kafka's name of the error for a partition whose end offsets are unknown, and its topic's id (None: unknown)."""

    topic_id: str | None
    error: str


@dataclass(frozen=True)
class RecordTimes:
    """Timestamps of the first record at a given time or later, and of the newest record, in milliseconds since 1970.

    `first_offset` is the offset of that first record, -1 if there is none.
    """

    first_offset: int
    first_ms: int
    newest_ms: int


Answers: TypeAlias = dict[TopicPartitionKey, LogEnd | NoEnd]
_Offsets: TypeAlias = dict[TopicPartitionKey, Any]


class LogEnds(Cluster):
    """A live cluster: start and end offsets of its topics."""

    def ends(
        self, wanted: Mapping[str, Collection[int] | None], known_starts: Mapping[TopicPartitionKey, str | None]
    ) -> Answers:
        """Return the end offsets of the partitions (None: all of the topic), or the reason why they are unknown.

        Does not request start offsets for `known_starts`, which maps partitions to topic ids. Raises UnreachableError
        if no broker answers.
        """
        topics, refused = self._described(wanted)
        found = self._ends_of(wanted, topics, refused, known_starts)
        for topic, numbers in wanted.items():
            for place in (TopicPartitionKey(topic, number) for number in numbers or ()):
                found.setdefault(place, NoEnd(None, NO_TOPIC))
        return found

    def _ends_of(
        self,
        wanted: Mapping[str, Collection[int] | None],
        topics: Mapping[str, Any],
        refused: Mapping[str, str],
        known_starts: Mapping[TopicPartitionKey, str | None],
    ) -> Answers:
        found: Answers = {
            TopicPartitionKey(topic, number): NoEnd(None, error)
            for topic, error in refused.items()
            for number in wanted[topic] or ()
        }
        leaders: dict[TopicPartitionKey, int] = {}
        for place, leader in _partitions(wanted, topics):
            if leader is None:
                found[place] = NoEnd(_topic_id(topics[place.topic]), NO_LEADER)
            else:
                leaders[place] = leader
        without_start = [
            place for place in leaders if known_starts.get(place, ZERO_UUID) != _topic_id(topics[place.topic])
        ]
        starts, stable, high, errors = self._all_offsets(leaders, without_start)
        for place, leader in leaders.items():
            topic_id = _topic_id(topics[place.topic])
            if place in errors:
                found[place] = NoEnd(topic_id, errors[place])
            else:
                end, start = high[place], starts.get(place)
                stable_end = min(stable[place].offset, end.offset)
                found[place] = LogEnd(
                    topic_id, leader, end.leader_epoch, start and start.offset, end.offset, stable_end
                )
        return found

    def record_times(self, since: Mapping[TopicPartitionKey, int]) -> dict[TopicPartitionKey, RecordTimes]:
        """Return the timestamps of records from a given time on, by partition, in milliseconds since 1970.

        Omits partitions without an answer: brokers before 3.0 do not know the newest timestamp (KIP-734).
        """
        isolation = IsolationLevel.READ_UNCOMMITTED
        newest, _ = self._offsets_once(dict.fromkeys(since, OffsetSpec.max_timestamp()), isolation)
        specs = {place: OffsetSpec.for_timestamp(since[place]) for place in newest}
        first, _ = self._offsets_once(specs, isolation)
        return {
            place: RecordTimes(found.offset, found.timestamp, newest[place].timestamp)
            for place, found in first.items()
            if min(found.offset, newest[place].offset) >= _NO_RECORD
        }

    def first_since(self, place: TopicPartitionKey, since_ms: int) -> int | str | None:
        """Return the offset of the first record at a time (milliseconds since 1970) or later. None: there is none.

        A text is Kafka's name of the error.
        """
        return self.first_since_each({place: since_ms})[place]

    def first_since_each(self, since_ms: Mapping[TopicPartitionKey, int]) -> dict[TopicPartitionKey, int | str | None]:
        """Return the same for many partitions, each with its own time."""
        specs = {place: OffsetSpec.for_timestamp(each) for place, each in since_ms.items()}
        found, errors = self._offsets_with_retry(specs, IsolationLevel.READ_UNCOMMITTED, below=_NO_RECORD)
        first: dict[TopicPartitionKey, int | str | None] = {place: kafka_name(error) for place, error in errors.items()}
        for place, each in found.items():
            first[place] = (
                each.offset if each.offset >= 0 else None if each.offset == _NO_RECORD else "REQUEST_TIMED_OUT"
            )
        return first

    def offsets_retention(self) -> tuple[int | None, int | None]:
        """Return the brokers' retention of offsets and their interval between expiration checks, in milliseconds.

        Raises UnauthorisedError without DESCRIBE_CONFIGS on the cluster.
        """
        config = self.broker_settings()
        minutes, interval = (config.get(f"offsets.retention.{name}") for name in ("minutes", "check.interval.ms"))
        return int(minutes) * 60_000 if minutes else None, int(interval) if interval else None

    def _described(self, names: Collection[str]) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the existing topics by name, and Kafka's names of the errors of others."""
        if not names:
            return {}, {}

        def ask(timeout: float) -> tuple[dict[str, Any], dict[str, KafkaError]]:
            futures = self._admin.describe_topics(TopicCollection(sorted(names)), request_timeout=timeout)
            found, errors = self._settle(futures)
            answered = [error for error in errors.values() if error.code() in NO_RIGHT or kafka_name(error) == NO_TOPIC]
            if errors and not found and not answered:
                raise KafkaException(next(iter(errors.values())))
            return found, errors

        found, errors = self._ask_again("the topics", ask)
        words = {name: kafka_name(error) for name, error in errors.items()}
        return found, {name: error for name, error in words.items() if error != NO_TOPIC}

    def _all_offsets(
        self, led: Collection[TopicPartitionKey], without_start: Collection[TopicPartitionKey]
    ) -> tuple[_Offsets, _Offsets, _Offsets, dict[TopicPartitionKey, str]]:
        """Return start offsets, last stable offsets, high watermarks and errors.

        Requests the last stable offset last. So it is below the high watermark only because of an open transaction,
        and not because of records that came between the two requests.
        """
        starts, errors = self._offsets(without_start, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
        remaining = [place for place in led if place not in errors]
        high, more = self._offsets(remaining, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        errors |= more
        remaining = [place for place in remaining if place not in errors]
        stable, more = self._offsets(remaining, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        return starts, stable, high, errors | more

    def _offsets(
        self, places: Collection[TopicPartitionKey], spec: Any, isolation: Any
    ) -> tuple[_Offsets, dict[TopicPartitionKey, str]]:
        found, errors = self._offsets_with_retry(dict.fromkeys(places, spec), isolation)
        words = {place: kafka_name(error) for place, error in errors.items()}
        # If a leader does not answer in time, librdkafka may return a negative offset instead of an error.
        silent = {place: "REQUEST_TIMED_OUT" for place, each in found.items() if each.offset < 0}
        return found, words | silent

    def _offsets_with_retry(
        self, specs: Mapping[TopicPartitionKey, Any], isolation: Any, below: int | None = None
    ) -> tuple[_Offsets, dict[TopicPartitionKey, KafkaError]]:
        """Request offsets. Retry once if a leader has moved, or an offset is `below` this number (a silent leader)."""
        found, errors = self._offsets_once(specs, isolation)
        moved = {place for place, error in errors.items() if error.code() in _RETRIABLE}
        moved |= {place for place, each in found.items() if below is not None and each.offset < below}
        if not moved:
            return found, errors
        # Without new metadata, librdkafka may ask old leaders for minutes.
        self._ask("the topics", lambda: self._metadata(None))
        retried, still_failed = self._offsets_once({place: specs[place] for place in moved}, isolation)
        found = {place: each for place, each in found.items() if place not in moved} | retried
        return found, {place: each for place, each in errors.items() if place not in moved} | still_failed

    def _offsets_once(
        self, specs: Mapping[TopicPartitionKey, Any], isolation: Any
    ) -> tuple[_Offsets, dict[TopicPartitionKey, KafkaError]]:
        found: _Offsets = {}
        errors: dict[TopicPartitionKey, KafkaError] = {}
        pending = [  # in parallel, so that a silent leader delays the result only once
            self._admin.list_offsets(
                {TopicPartition(*place): specs[place] for place in part},
                isolation_level=isolation,
                request_timeout=_TIMEOUT,
            )
            for part in _parts(specs)
        ]
        for futures in pending:
            answers, refused = self._settle(futures)
            found |= {TopicPartitionKey(key.topic, key.partition): each for key, each in answers.items()}
            errors |= {TopicPartitionKey(key.topic, key.partition): each for key, each in refused.items()}
        return found, errors


def _partitions(
    wanted: Mapping[str, Collection[int] | None], topics: Mapping[str, Any]
) -> Iterator[tuple[TopicPartitionKey, int | None]]:
    """Yield the wanted partitions that exist, with their leaders."""
    for name, topic in topics.items():
        numbers = wanted[name]
        for each in topic.partitions:
            if numbers is None or each.id in numbers:
                leader = each.leader.id if each.leader is not None else -1
                yield TopicPartitionKey(name, each.id), leader if leader >= 0 else None


def _topic_id(topic: Any) -> str | None:
    topic_id = kafka_uuid(topic.topic_id)
    return None if topic_id == ZERO_UUID else topic_id  # brokers before 2.8 send zeros


def _parts(places: Collection[TopicPartitionKey]) -> Iterator[list[TopicPartitionKey]]:
    remaining = iter(places)
    while part := list(islice(remaining, _MAX_PER_REQUEST)):
        yield part
