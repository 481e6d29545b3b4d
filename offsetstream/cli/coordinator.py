"""`offsetstream coordinator`: the offsets partition and the broker that serve a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from offsetstream.cli.describe import broker_text
from offsetstream.cli.loading import tell_what_is_loading
from offsetstream.cli.options import cluster_options, config_option, output_of, output_options, tables_option
from offsetstream.cli.output import Column, tell
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.errors import UsageError
from offsetstream.tables.location import is_utf8, store_at
from offsetstream.tables.lookup import Lookup, Row
from offsetstream.tables.store import Store

_TABLES = (
    Column("group", "GROUP", 15),
    Column("offsets_partition", "OFFSETS-PARTITION"),
    Column("coordinator", "COORDINATOR (ID)", 25),
    Column("coordinator_id"),
    Column("coordinator_epoch", "EPOCH"),
    Column("coordinator_available", "AVAILABLE"),
    Column("load_state", "LOAD-STATE"),
)
_CLUSTER = (
    Column("cluster_offsets_partition", "CLUSTER-PARTITION"),
    Column("cluster_coordinator", "CLUSTER-COORDINATOR (ID)", 25),
    Column("cluster_coordinator_id"),
    Column("differs", "DIFFERS"),
)
_OF_PARTITION = ("offsets_partition", "coordinator_id", "coordinator_epoch", "coordinator_available", "load_state")


@click.command(
    epilog="""\b
Examples:
  offsetstream coordinator --group my-group
  offsetstream coordinator --group a --group b --bootstrap-server localhost:9092 --output json

Exit code 1 where the partition of a group has no coordinator, or the cluster's answer is not that of the tables."""
)
@config_option("coordinator")
@click.option("--group", multiple=True, required=True, metavar="GROUP", help="A group, there or not; repeatable.")
@cluster_options
@tables_option
@output_options
def coordinator(
    *, group: tuple[str, ...], bootstrap_server: str | None, command_config: str | None, tables: str, **options: Any
) -> None:
    """Show the offsets partition and the broker that serve a group.

    From the tables, as the job last saw them; with --bootstrap-server also what the cluster answers now.
    """
    output = output_of(options)
    lookup = Lookup(store_at(tables))
    tell_what_is_loading(lookup, group)
    partitions = {row["offsets_partition"]: row for row in lookup.rows("offsets_partitions", _OF_PARTITION)}
    rows = [_of_tables(group_id, partitions) for group_id in group]
    if bootstrap_server is not None:
        _add_answers(rows, lookup.store, bootstrap_server, command_config)
    output.table(_TABLES if bootstrap_server is None else (*_TABLES, *_CLUSTER), rows)
    if _tell(rows):
        click.get_current_context().exit(1)


def _of_tables(group_id: str, partitions: Mapping[int, Row]) -> Row:
    empty = dict.fromkeys(_OF_PARTITION)
    found = partitions.get(partition_for(group_id, len(partitions)), empty) if partitions else empty
    return found | {"group": group_id, "coordinator": broker_text(found["coordinator_id"], {})}


def _add_answers(rows: list[Row], store: Store, bootstrap_server: str, command_config: str | None) -> None:
    """Add to each row what the cluster answers, and the addresses of the brokers that it has.

    UsageError for an id that is not UTF-8, which a command line may hold, but no group can have.
    """
    for row in rows:
        if not is_utf8(row["group"]):
            raise UsageError(f"the group id {row['group']} is not UTF-8: name a group that can be")
    # Only here is the Kafka client needed, and its import takes time.
    from offsetstream.cli.own_cluster import own_cluster  # noqa: PLC0415 - only what is asked is imported

    cluster = own_cluster(store, bootstrap_server, command_config)
    partitions = len(cluster.topic_partitions())
    addresses = {number: broker.address for number, broker in cluster.brokers().items()}
    answers = cluster.coordinators({row["group"] for row in rows})
    for row in rows:
        broker = answers[row["group"]]
        row["coordinator"] = broker_text(row["coordinator_id"], addresses)
        row["cluster_offsets_partition"] = partition_for(row["group"], partitions)
        row["cluster_coordinator"] = broker_text(broker.broker_id, {broker.broker_id: broker.address})
        row["cluster_coordinator_id"] = broker.broker_id
        row["differs"] = any(row[name] != row[f"cluster_{name}"] for name in ("offsets_partition", "coordinator_id"))


def _tell(rows: list[Row]) -> bool:
    """Write to stderr what is wrong; returns whether anything is."""
    wrong = False
    for row in rows:
        where = f"offsets partition {row['offsets_partition']}, that of group '{row['group']}',"
        if not row["coordinator_available"]:
            wrong = True
            tell(f"Error: {where} has no coordinator as far as the tables know.")
        if row.get("differs"):
            wrong = True
            tell(
                f"Error: {where} is served by {row['coordinator'] or 'nobody'} in the tables, but the cluster names "
                f"{row['cluster_coordinator']} for partition {row['cluster_offsets_partition']}."
            )
    return wrong
