"""`offsetstream topics`: partitions of topics in the live cluster, and the groups that read them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from offsetstream.cli.age import Age
from offsetstream.cli.answers import Found, open_reader, show, topic_options, watch_option
from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.names import is_pattern, matching
from offsetstream.cli.options import (
    UNREACHABLE,
    client_properties,
    cluster_options,
    is_unreachable,
    max_age_option,
    output_of,
    require_server,
    row_options,
    tables_option,
)
from offsetstream.cli.output import Column
from offsetstream.cli.settings_file import config_option
from offsetstream.cli.text import counted, instant_text, print_line
from offsetstream.cluster.rights import DESCRIBE_ALL_TOPICS, describe_each
from offsetstream.errors import TablesError
from offsetstream.tables.create import require_cluster
from offsetstream.tables.location import store_at

if TYPE_CHECKING:
    from offsetstream.cluster.metadata import MetadataCache, PartitionMetadata, TopicMetadata
    from offsetstream.tables.store import Store

_COLUMNS = (
    Column("topic", "TOPIC", 15),
    Column("topic_id"),
    Column("is_internal"),
    Column("partition", "PARTITION", 0, "id"),
    Column("leader", "LEADER", 0, "id"),
    Column("leader_epoch", "LEADER-EPOCH", 0, "id"),
    Column("replicas", "REPLICAS", 8),
    Column("in_sync_replicas", "ISR", 5),
    Column("log_start_offset", "LOG-START-OFFSET", 0, "id"),
    Column("log_end_offset", "LOG-END-OFFSET", 0, "id"),
    Column("last_stable_offset"),
    Column("error"),
)
_GROUPS = (Column("groups", "GROUPS", 6), Column("note", "NOTE"))
_COMMITTED = "committed_offsets"
_SHOWN = 3  # groups in a cell of text
Row = dict[str, Any]
Groups = Mapping[tuple[str, int], Collection[str]]


@click.group()
def topics() -> None:
    """Describe topics of the live cluster and the groups that read them."""


@topics.command(
    "describe",
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream topics describe --bootstrap-server localhost:9092
  offsetstream topics describe --topic orders --bootstrap-server localhost:9092 --tables tables
  offsetstream topics describe --topic orders --bootstrap-server localhost:9092 --watch 5

GROUPS lists the groups with a committed offset in the partition. It comes from the tables, and is unknown without them;
a warning says if they are stale.

Exit codes: 1 a topic does not exist, or you may not see it; 3 a partition has no leader, or it does not answer.""",
)
@config_option("topics.describe")
@topic_options
@max_age_option
@watch_option
@cluster_options
@tables_option
@row_options
def describe(
    *,
    topic: tuple[str, ...],
    max_age: float | None,
    watch: float | None,
    bootstrap_server: str | None,
    command_config: str | None,
    tables: str,
    **options: Any,
) -> None:
    """Show leader, replicas and offsets of each partition in the live cluster, and the groups that read it."""
    output = output_of(options)
    server = require_server(bootstrap_server)
    from offsetstream.cluster.client import sees_all_topics
    from offsetstream.cluster.log_ends import HIDDEN
    from offsetstream.cluster.metadata import MetadataCache

    cluster = MetadataCache(server, client_properties(command_config))
    if not topic and not sees_all_topics(cluster):
        print_line(f"{DESCRIBE_ALL_TOPICS}: {DESCRIBE_ALL_TOPICS.without}")
    source = click.get_current_context().get_parameter_source("tables")
    store = _store(cluster, tables, must_be_there=source is not ParameterSource.DEFAULT)

    def ask() -> Found:
        has_pattern = any(map(is_pattern, topic))
        refused = cluster.refresh(None if has_pattern else topic or None)
        wanted = matching(topic, cluster.known) if has_pattern else topic
        refused = {name: error for name, error in refused.items() if not wanted or name in wanted}
        if hidden := [name for name, error in refused.items() if error == HIDDEN]:
            raise cluster.lacks(describe_each("topic", hidden))
        groups = None if store is None else _groups(store, wanted)
        known = [each for each in sorted(cluster.known.items()) if not has_pattern or each[0] in wanted]
        rows = [row for name, metadata in known for row in _rows(cluster, name, metadata, groups)]
        age = None if store is None else Age.of(open_reader(tables, max_age=max_age))
        closing = _closing(rows, None if age is None or store is None else age.as_of_text(store))
        if output.output_format != "json":
            rows = [_flat(row, is_text=output.is_text) for row in rows]
        gone = [f"topic '{name}' is not there" for name in sorted(set(wanted) - set(cluster.known) - set(refused))]
        missing = gone + [f"topic '{name}': {error}" for name, error in sorted(refused.items())]
        warnings = [] if age is None else age.lines()
        silent = any(is_unreachable(row["error"]) for row in rows)
        return Found((*_COLUMNS, *_GROUPS), rows, closing, UNREACHABLE if silent else 0, missing, warnings)

    show(output, watch, ask)


def _store(cluster: MetadataCache, tables: str, *, must_be_there: bool) -> Store | None:
    """Return the cluster's tables, if any. Raise TablesError if the user named others, or some that are missing."""
    store = store_at(tables)
    table = store.open(_COMMITTED) if must_be_there else store.opened(_COMMITTED)
    if table is None:
        return None
    try:
        require_cluster(store, cluster.cluster_id())
    except TablesError as error:
        if must_be_there:
            raise
        print_line(f"Without groups: {error}")
        return None
    return store


def _groups(store: Store, topics: Collection[str]) -> Groups:
    from offsetstream.tables.lookup import Lookup

    where = {"topic": topics or None, "in_coordinator_partition": [True]}
    groups: dict[tuple[str, int], set[str]] = {}
    for row in Lookup(store).rows(_COMMITTED, ("topic", "partition", "group_id"), where):
        groups.setdefault((row["topic"], row["partition"]), set()).add(row["group_id"])
    return groups


def _rows(cluster: MetadataCache, name: str, topic: TopicMetadata, groups: Groups | None) -> list[Row]:
    from offsetstream.cluster.log_ends import LogEnd, NoEnd

    ends = {place.partition: end for place, end in cluster.last_ends(name).items()}
    rows = []
    for number, partition in sorted(topic.partitions.items()):
        end, row = ends.get(number), _row(name, topic, number, partition)
        if isinstance(end, LogEnd):
            row |= {"log_start_offset": end.log_start_offset, "log_end_offset": end.high_watermark}
            row |= {"last_stable_offset": end.last_stable_offset}
        elif isinstance(end, NoEnd):
            row |= {"error": end.error, "note": end.error}
        rows.append(row | {"groups": None if groups is None else sorted(groups.get((name, number), ()))})
    return rows


def _row(name: str, topic: TopicMetadata, number: int, partition: PartitionMetadata) -> Row:
    return {
        "topic": name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partition": number,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "in_sync_replicas": list(partition.in_sync_replicas),
        "error": None,
    }


def _flat(row: Row, *, is_text: bool) -> Row:
    """Return the row with its lists as text."""
    groups = row["groups"]
    shown = groups if groups is None or not is_text else groups[:_SHOWN]
    more = f" and {len(groups) - _SHOWN} more" if is_text and groups and len(groups) > _SHOWN else ""
    return row | {
        "replicas": ",".join(map(str, row["replicas"])),
        "in_sync_replicas": ",".join(map(str, row["in_sync_replicas"])),
        "groups": None if groups is None else (",".join(shown) + more) or None,
    }


def _closing(rows: list[Row], as_of: str | None) -> str:
    topics = len({row["topic"] for row in rows})
    behind = sum(1 for row in rows if len(row["in_sync_replicas"]) < len(row["replicas"]))
    unknown = "" if as_of else "; the groups that read them are unknown: there are no tables"
    groups = f"; groups from the tables, {as_of}" if as_of else ""
    return (
        f"{counted(topics, 'topic')}, {counted(len(rows), 'partition')}, {behind} with replicas out of sync"
        f"{unknown}; as of {instant_text(datetime.now(UTC))}{groups}."
    )
