"""`offsetstream coordinator`: the offsets partition of a group, and the broker that coordinates it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.age import AGE, Age, warn_if_loading
from offsetstream.cli.describe import broker_text
from offsetstream.cli.names import expand
from offsetstream.cli.options import (
    UNREACHABLE,
    cluster_options,
    config_option,
    connect_to_tables_cluster,
    max_age_option,
    output_of,
    reading_timeout_option,
    row_options,
    tables_option,
)
from offsetstream.cli.output import Column
from offsetstream.cli.text import print_line
from offsetstream.errors import UsageError
from offsetstream.tables.location import is_utf8, store_at
from offsetstream.tables.lookup import Lookup, Row
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
    help="Group id; the group need not exist. Or a pattern such as 'team-a-*' (repeatable, required).",
)
@reading_timeout_option
@max_age_option
@cluster_options
@tables_option
@row_options
def coordinator(
    *,
    group: tuple[str, ...],
    timeout: float,
    max_age: float | None,
    bootstrap_server: str | None,
    command_config: str | None,
    tables: str,
    **options: Any,
) -> None:
    """Show the offsets partition of a group and the broker that coordinates it.

    The answer is what the job last saw. With --bootstrap-server it also shows what the cluster answers now.
    """
    output = output_of(options)
    lookup = Lookup(store_at(tables))
    group = expand(lookup.store, "group_id", group)
    warn_if_loading(lookup, group)
    partitions = {row["offsets_partition"]: row for row in lookup.rows("offsets_partitions", _OF_PARTITION)}
    placement = read_placement(lookup)
    age = Age.of_tables(lookup.store, max_age)
    rows = [age.row(_table_row(group_id, partitions, placement)) for group_id in group]
    age.warn({row["offsets_partition"] for row in rows})
    if bootstrap_server is not None:
        _add_cluster_answers(rows, placement, lookup.store, bootstrap_server, command_config, timeout)
    closing = age.line_if_old(lookup.store, group) if output.is_text else None
    output.table(_TABLES if bootstrap_server is None else (*_TABLES, *_CLUSTER), rows, closing=closing)
    click.get_current_context().exit(_tell(rows))


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
    # Only here is the Kafka client needed, and its import takes time.
    from offsetstream.cluster.coordinators import CoordinatorLookup  # noqa: PLC0415 - likewise

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


def _tell(rows: list[Row]) -> int:
    """Write to stderr what is wrong, and return the exit code."""
    code = 0
    for row in rows:
        place = f"offsets partition {row['offsets_partition']} of group '{row['group']}'"
        if row["offsets_partition"] is None:
            code = max(code, 1)
            print_line(
                f"Error: the tables do not know the offsets partition of group '{row['group']}': {_WHY_UNKNOWN}."
            )
        elif not row["coordinator_available"]:
            code = max(code, 1)
            print_line(f"Error: {place} has no coordinator in the tables.")
        if row.get("differs"):
            code = max(code, 1)
            print_line(
                f"Error: {place} is coordinated by {row['coordinator'] or 'nobody'} in the tables, but the cluster "
                f"answers {row['cluster_coordinator']} for partition {row['cluster_offsets_partition']}."
            )
        if row.get("agrees") is False:
            code = max(code, 1)
            print_line(
                f"Error: {row['cluster_coordinator']} serves group '{row['group']}', but offsets partition "
                f"{row['cluster_offsets_partition']} is led by {row['cluster_leader'] or 'nobody'}: it is moving, "
                "or brokers disagree about the number of offsets partitions."
            )
        if row.get("error"):
            code = UNREACHABLE
            print_line(
                f"Error: {row['error']}: no broker coordinates group '{row['group']}'; its offsets partition "
                f"{row['cluster_offsets_partition']} is led by {row['cluster_leader'] or 'no broker'}."
            )
    return code
