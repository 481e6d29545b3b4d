"""Which groups and topics the tables leave out: a user's patterns, and groups that tools make up for one use.

The tables of an offsets partition are those of a log without the records that are left out. By which filters, its row
in `offsets_partitions` tells (`text`): whoever compares with the cluster must leave out the same.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.compute as pc

from offsetstream.settings.patterns import whole_matches

# Ids that tools choose anew each time they are started: Kafka's own, Confluent's, and Spark's source.
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
    """Regular expressions of whole names (RE2): what does not match a filter, or matches an exclusion, is left out.

    `short_lived`: of the ids of short-lived groups; the expression itself, as another version may have another.
    Of groups everything is left out, of topics the offsets that were committed; never what cannot be decoded.
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
        """How a row of `offsets_partitions` has them; None where nothing is left out."""
        return json.dumps(self._given) if self else None

    def __bool__(self) -> bool:
        return bool(self._given)

    def __str__(self) -> str:
        return ", ".join(_WORDS[name].format(repr(pattern)) for name, pattern in self._given.items())

    @property
    def _given(self) -> dict[str, str]:
        return {name: pattern for name, pattern in asdict(self).items() if pattern is not None}

    def filtered(self, decoded: pa.Table | pa.RecordBatch) -> pa.Array:
        """Tell of each decoded record whether it is left out; needs `error`, `group_id` and `topic`."""
        groups, topics = (_plain(decoded[name]) for name in ("group_id", "topic"))
        filtered = pc.or_(self.filters_groups(groups), self.filters_topics(topics))
        return pc.and_(filtered, pc.is_null(_plain(decoded["error"])))

    def filters_groups(self, group_ids: pa.Array) -> pa.Array:
        """Tell of each group id whether the group is left out; false of null."""
        return _any(group_ids, [(self.group_filter, False), (self.group_exclude, True), (self.short_lived, True)])

    def filters_topics(self, topics: pa.Array) -> pa.Array:
        """Tell of each topic whether its offsets are left out; false of null."""
        return _any(topics, [(self.topic_filter, False), (self.topic_exclude, True)])


NO_FILTERS = Filters()


def _any(names: pa.Array, patterns: list[tuple[str | None, bool]]) -> pa.Array:
    """Tell of each name whether any pattern says of it what is beside it; each name is looked at once."""
    coded = names.dictionary_encode()
    found = pa.repeat(pa.scalar(False), len(coded.dictionary))
    for pattern, is_filtered in patterns:
        if pattern is not None:
            matches = whole_matches(coded.dictionary, pattern)
            found = pc.or_(found, matches if is_filtered else pc.invert(matches))
    return pc.fill_null(found.take(coded.indices), False)


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
