"""`offsetstream coordinator` and `partition-for`: a group's offsets partition, and the broker that coordinates it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.age import AGE
from offsetstream.cli.answers import Asked, Found, make_cells, open_reader, show, watch_option
from offsetstream.cli.describe import broker_text
from offsetstream.cli.names import complete_ids, expand, is_pattern, missing_messages
from offsetstream.cli.options import (
    UNREACHABLE,
    cluster_options,
    connect_to_tables_cluster,
    max_age_option,
    output_of,
    output_options,
    reading_timeout_option,
    row_options,
    tables_option,
)
from offsetstream.cli.output import Column
from offsetstream.cli.settings_file import config_option
from offsetstream.coordinator import partitioning
from offsetstream.errors import UsageError
from offsetstream.settings.places import is_utf8
from offsetstream.tables.lookup import Row
from offsetstream.tables.placement import Placement, read_placement
from offsetstream.tables.store import Store

if TYPE_CHECKING:
    from offsetstream.cluster.coordinators import Coordination

_TABLES = (
    Column("group", "GROUP", 15),
    Column("offsets_partition", "OFFSETS-PARTITION", 0, "id"),
    Column("coordinator", "COORDINATOR (ID)", 25),
    Column("coordinator_id"),
    Column("coordinator_epoch", "EPOCH", 0, "id"),
    Column("coordinator_available", "AVAILABLE"),
    Column("load_state", "LOAD-STATE"),
    *AGE,
)
_CLUSTER = (
    Column("cluster_offsets_partition", "CLUSTER-PARTITION", 0, "id"),
    Column("cluster_coordinator", "CLUSTER-COORDINATOR (ID)", 25),
    Column("cluster_coordinator_id"),
    Column("cluster_leader", "PARTITION-LEADER (ID)", 25),
    Column("cluster_leader_id"),
    Column("agrees", "AGREES"),
    Column("differs", "DIFFERS"),
    Column("error"),
)
_WHY_UNKNOWN = "no partition is loaded yet, or the brokers do not use Kafka's hash and the group has no records"
_OF_PARTITION = ("offsets_partition", "coordinator_id", "coordinator_epoch", "coordinator_available", "load_state")


@click.command(
    epilog="""\b
Examples:
  offsetstream coordinator --group my-group
  offsetstream coordinator --group a --group b --bootstrap-server localhost:9092 --output json

CLUSTER-COORDINATOR is the broker that answers as the group's coordinator (FindCoordinator, DescribeGroups).
PARTITION-LEADER is the leader of the offsets partition by the hash of the group id. AGREES: both are the same broker.

Exit codes: 1 a group has no coordinator, or the cluster and the tables differ; 3 no coordinator answers within
--timeout."""
)
@config_option("coordinator", is_lookup=True)
@click.option(
    "--group",
    multiple=True,
    required=True,
    metavar="GROUP",
    shell_complete=complete_ids("group_id"),
    help="Group id; the group need not exist. Or a pattern such as 'team-a-*' (repeatable, required).",
)
@reading_timeout_option
@max_age_option
@watch_option
@cluster_options
@tables_option
@row_options
def coordinator(
    *,
    group: tuple[str, ...],
    timeout: float,
    max_age: float | None,
    watch: float | None,
    bootstrap_server: str | None,
    command_config: str | None,
    tables: str,
    **options: Any,
) -> None:
    """Show the offsets partition of a group and the broker that coordinates it.

    The answer is what the job last saw. With --bootstrap-server it also shows what the cluster answers now.
    """
    output = output_of(options)

    def ask() -> Found:
        reader = open_reader(tables, max_age=max_age)
        groups = expand(reader.store, "group_id", group)
        patterns = [each for each in groups if is_pattern(each)]
        unmatched = {each: text for each in patterns for text in missing_messages(reader, "group_id", [each], ())}
        known = reader.tables.rows("offsets_partitions", _OF_PARTITION)
        partitions, placement = {row["offsets_partition"]: row for row in known}, read_placement(reader.tables)
        rows = [_table_row(group_id, partitions, placement) for group_id in groups if group_id not in unmatched]
        asked = Asked(reader, groups, (), None, None, None, output.is_text, {})
        ages = asked.age.columns({"offsets_partition": [row["offsets_partition"] for row in rows]})
        for row, as_of, is_stale in zip(rows, ages["as_of"], ages["is_stale"], strict=True):
            row |= {"as_of": as_of, "is_stale": is_stale}
        if bootstrap_server is not None:
            _add_cluster_answers(rows, placement, reader.store, bootstrap_server, command_config, timeout)
        columns = _TABLES if bootstrap_server is None else (*_TABLES, *_CLUSTER)
        make_cells(rows, columns, is_text=output.is_text)
        exit_code, wrong = _wrong(rows)
        wrong += unmatched.values()
        return Found(columns, rows, asked.plain_closing(), exit_code, wrong, asked.plain_warnings())

    show(output, watch, ask)


def _table_row(group_id: str, partitions: Mapping[int, Row], placement: Placement) -> Row:
    number = placement.of(group_id)
    found = dict.fromkeys(_OF_PARTITION) if number is None else partitions[number]
    return found | {"group": group_id, "coordinator": broker_text(found["coordinator_id"], {})}


def _add_cluster_answers(
    rows: list[Row],
    placement: Placement,
    store: Store,
    bootstrap_server: str,
    command_config: str | None,
    timeout: float,
) -> None:
    """Add to each row what the cluster answers, and the addresses of its brokers.

    Raises UsageError for an id that is not UTF-8: a command line may hold one, but no group can have it.
    """
    for row in rows:
        if not is_utf8(row["group"]):
            raise UsageError(f"the group id {row['group']} is not UTF-8: check the encoding of your terminal")
    from offsetstream.cluster.coordinators import CoordinatorLookup

    cluster = connect_to_tables_cluster(CoordinatorLookup, store, bootstrap_server, command_config)
    addresses = {number: broker.address for number, broker in cluster.brokers().items()}
    answers = cluster.coordinations({row["group"] for row in rows}, timeout, placement.homes)
    for row in rows:
        row.update(_answer(answers[row["group"]], addresses))
        row["coordinator"] = broker_text(row["coordinator_id"], addresses)
        if row["error"] is None:
            row["differs"] = any(
                row[name] != row[f"cluster_{name}"]
                for name in ("offsets_partition", "coordinator_id")
                if row["offsets_partition"] is not None or placement.homes is None
            )


def _answer(found: Coordination, addresses: Mapping[int, str]) -> Row:
    broker = found.coordinator
    return {
        "cluster_offsets_partition": found.offsets_partition,
        "cluster_coordinator": broker and broker_text(broker.broker_id, {broker.broker_id: broker.address}),
        "cluster_coordinator_id": broker and broker.broker_id,
        "cluster_leader": broker_text(found.leader_id, addresses),
        "cluster_leader_id": found.leader_id,
        "agrees": broker and (found.offsets_partition is None or broker.broker_id == found.leader_id),
        "error": found.error,
    }


def _wrong(rows: list[Row]) -> tuple[int, list[str]]:
    """Return the exit code, and what is wrong."""
    code, wrong = 0, list[str]()
    for row in rows:
        place = f"offsets partition {row['offsets_partition']} of group '{row['group']}'"
        if row["offsets_partition"] is None:
            wrong.append(f"the tables do not know the offsets partition of group '{row['group']}': {_WHY_UNKNOWN}.")
        elif row["coordinator_id"] is None or row["coordinator_available"] is False:
            wrong.append(f"{place} has no coordinator in the tables.")
        if row.get("differs"):
            wrong.append(
                f"{place} is coordinated by {row['coordinator'] or 'nobody'} in the tables, but the cluster "
                f"answers {row['cluster_coordinator']} for partition {row['cluster_offsets_partition']}."
            )
        if row.get("agrees") is False:
            wrong.append(
                f"{row['cluster_coordinator']} serves group '{row['group']}', but offsets partition "
                f"{row['cluster_offsets_partition']} is led by {row['cluster_leader'] or 'nobody'}: it is moving, "
                "or brokers disagree about the number of offsets partitions."
            )
        if row.get("error"):
            code = UNREACHABLE
            wrong.append(
                f"{row['error']}: no broker coordinates group '{row['group']}'; its offsets partition "
                f"{row['cluster_offsets_partition']} is led by {row['cluster_leader'] or 'no broker'}."
            )
    return code or int(bool(wrong)), wrong


_PLACES = (Column("group_id", "GROUP", 15), Column("partition", "PARTITION"))


@click.command(
    "partition-for",
    epilog="""\b
Examples:
  offsetstream partition-for my-group
  offsetstream partition-for my-group another-group --partitions 100 --output json""",
)
@click.argument("group", nargs=-1, required=True)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Number of partitions of __consumer_offsets (offsets.topic.num.partitions of the brokers).",
)
@output_options
def partition_for(group: tuple[str, ...], partitions: int, **options: Any) -> None:
    """Print the partition of __consumer_offsets that holds each group.

    The leader of that partition is the group's coordinator. This needs no cluster.
    """
    rows = [{"group_id": group_id, "partition": partitioning.partition_for(group_id, partitions)} for group_id in group]
    output_of(options).table(_PLACES, rows)
