"""`offsetstream groups list`: the groups as the tables have them, in the words of Kafka's own tool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from offsetstream.cli.group_state import Group, read_groups
from offsetstream.cli.loading import tell_what_is_loading
from offsetstream.cli.options import config_option, output_of, output_options, tables_option
from offsetstream.cli.output import Column, ReadAnew
from offsetstream.tables.location import store_at
from offsetstream.tables.lookup import Lookup

_STATES = ("Empty", "Stable", "Assigning", "Reconciling", "NotReady")
_TYPES = ("Classic", "Consumer", "Share", "Streams")
_LIST = (
    Column("group", "GROUP", 15),
    Column("type", "TYPE", 20),
    Column("state", "STATE", 20),
    Column("protocol_type"),
    Column("is_simple"),
    Column("members"),
    Column("offsets_partition"),
    Column("in_coordinator_partition"),
)


@click.command(
    "list",
    epilog="""\b
Examples:
  offsetstream groups list
  offsetstream groups list --type Consumer --state Stable
  offsetstream groups list --output json --file groups.json""",
)
@config_option("groups.list")
@click.option(
    "--state",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only groups in this state; repeatable.",
)
@click.option(
    "--type",
    "group_type",
    envvar="OFFSETSTREAM_GROUPS_LIST_TYPE",
    multiple=True,
    type=click.Choice(_TYPES, case_sensitive=False),
    help="Only groups of this type; repeatable.",
)
@tables_option
@output_options
def list_groups(state: tuple[str, ...], group_type: tuple[str, ...], tables: str, **options: Any) -> None:
    """List the groups, with their type and state."""
    output = output_of(options)
    lookup = Lookup(store_at(tables))
    tell_what_is_loading(lookup, None)

    def rows() -> Iterator[dict[str, Any]]:
        for group in read_groups(lookup, None):
            wanted = (not state or group.row["state"] in state) and (
                not group_type or group.row["group_type"] in group_type
            )
            if wanted and (group.is_current or not output.is_text):
                yield _list_row(group)

    output.table(_LIST, ReadAnew(rows))


def _list_row(group: Group) -> dict[str, Any]:
    row = group.row
    return {
        "group": row["group_id"],
        "type": row["group_type"],
        # Brokers list newer types under a protocol type of the same name.
        "protocol_type": row["protocol_type"] if row["group_type"] == "Classic" else row["group_type"].lower(),
        "members": row["member_count"],
    } | {name: row[name] for name in ("state", "is_simple", "offsets_partition", "in_coordinator_partition")}
