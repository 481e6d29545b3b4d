"""Filters of groups and topics: a user's patterns, and the short-lived groups that tools create.

With filters, the tables of an offsets partition are exactly what a log without the filtered records would give. The
partition's row in `offsets_partitions` has the filters as text, so that a comparison with the cluster can use the same.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.settings.kinds import whole_matches

# Group ids that tools generate at each start: Kafka's own tools, Confluent's, and Spark's Kafka source.
SHORT_LIVED = "|".join(
    (
        r"console-consumer-\d+",  # kafka-console-consumer
        r"perf-consumer-\d+",  # kafka-consumer-perf-test
        r"test-group-\d{13}",  # kafka-e2e-latency: the time
        r"confluent_cli_consumer_.+",
        r"spark-kafka-(source|relation)-[0-9a-f]{8}-.+",
    )
)
_WORDS = {
    "group_filter": "groups that do not match {}",
    "group_exclude": "groups that match {}",
    "topic_filter": "offsets of topics that do not match {}",
    "topic_exclude": "offsets of topics that match {}",
    "short_lived": "short-lived groups",
}


@dataclass(frozen=True)
class Filters:
    """Regular expressions (RE2) that must match the complete name.

    A name is filtered if it does not match a `_filter`, or if it matches an `_exclude`. For a filtered group, all
    records are skipped; for a filtered topic, its committed offsets. Records that cannot be decoded are never skipped.
    `short_lived` is the expression for short-lived groups, stored as text because versions may differ in it.
    """

    group_filter: str | None = None
    group_exclude: str | None = None
    topic_filter: str | None = None
    topic_exclude: str | None = None
    short_lived: str | None = None

    @classmethod
    def of(cls, text: str | None) -> Filters:
        """Return the filters of a row of `offsets_partitions`."""
        return cls(**json.loads(text or "{}"))

    @property
    def text(self) -> str | None:
        """The filters as JSON, as in `offsets_partitions`; None if there are none."""
        return json.dumps(self._given) if self else None

    def __bool__(self) -> bool:
        return bool(self._given)

    def __str__(self) -> str:
        return ", ".join(_WORDS[name].format(repr(pattern)) for name, pattern in self._given.items())

    @property
    def _given(self) -> dict[str, str]:
        return {name: pattern for name, pattern in asdict(self).items() if pattern is not None}

    def filtered(self, decoded: pa.Table | pa.RecordBatch) -> pa.Array:
        """Return for each decoded record whether it is skipped; needs `error`, `group_id` and `topic`."""
        groups, topics = (_plain(decoded[name]) for name in ("group_id", "topic"))
        is_filtered = pc.or_(self.filters_groups(groups), self.filters_topics(topics))
        return pc.and_(is_filtered, pc.is_null(_plain(decoded["error"])))

    def filters_groups(self, group_ids: pa.Array) -> pa.Array:
        """Return for each group id whether the group is filtered; false for null."""
        return _any(group_ids, [(self.group_filter, False), (self.group_exclude, True), (self.short_lived, True)])

    def filters_topics(self, topics: pa.Array) -> pa.Array:
        """Return for each topic whether its offsets are filtered; false for null."""
        return _any(topics, [(self.topic_filter, False), (self.topic_exclude, True)])


NO_FILTERS = Filters()


def _any(names: pa.Array, patterns: list[tuple[str | None, bool]]) -> pa.Array:
    """Return for each name whether a pattern filters it.

    A pattern comes with True if it filters names that match, with False if it filters names that do not match.
    Each distinct name is matched once.
    """
    coded = names.dictionary_encode()
    found = pa.repeat(pa.scalar(False), len(coded.dictionary))
    for pattern, filters_matches in patterns:
        if pattern is not None:
            matches = whole_matches(coded.dictionary, pattern)
            found = pc.or_(found, matches if filters_matches else pc.invert(matches))
    return pc.fill_null(found.take(coded.indices), False)


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
