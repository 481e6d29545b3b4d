"""`offsetstream groups list`: the groups in the tables, with the names that Kafka's own tool uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import compress
from typing import Any

import click

from offsetstream.cli.age import AGE, Age
from offsetstream.cli.answers import Found, at_option, fetch_sorted, open_reader, show, table_of
from offsetstream.cli.group_state import COPIES_IN_ORDER, Current
from offsetstream.cli.loading import warn_if_loading
from offsetstream.cli.names import no_history_messages, unknown_text
from offsetstream.cli.options import config_option, max_age_option, output_of, row_options, tables_option
from offsetstream.cli.output import Column, Output, RereadParts
from offsetstream.cli.times import capitalized
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
    *AGE,
)
_UNCHANGED = ("state", "is_simple", "offsets_partition", "in_coordinator_partition")
_READ = ("group_id", "group_type", "protocol_type", "member_count", *_UNCHANGED)


@click.command(
    "list",
    epilog="""\b
Examples:
  offsetstream groups list
  offsetstream groups list --type Consumer --state Stable
  offsetstream groups list --at 03:00
  offsetstream groups list --output json --file groups.json""",
)
@config_option("groups.list")
@click.option(
    "--state",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    metavar=f"[{'|'.join(_STATES)}]",  # newer versions of click would write them in small letters
    help="Show only groups in this state (repeatable; default: all).",
)
@click.option(
    "--type",
    "group_type",
    envvar="OFFSETSTREAM_GROUPS_LIST_TYPE",
    multiple=True,
    type=click.Choice(_TYPES, case_sensitive=False),
    metavar=f"[{'|'.join(_TYPES)}]",
    help="Show only groups of this type (repeatable; default: all).",
)
@at_option
@max_age_option
@tables_option
@row_options
def list_groups(
    *,
    state: tuple[str, ...],
    group_type: tuple[str, ...],
    at: datetime | None,
    max_age: float | None,
    tables: str,
    **options: Any,
) -> None:
    """List groups with their type and state, now or at a past time."""
    output, chosen = output_of(options), {"state": state, "group_type": group_type}
    if at is not None:
        _list_at(output, tables, at, max_age, chosen)
        return
    lookup = Lookup(store_at(tables))
    warn_if_loading(lookup, None)
    age = Age.of_tables(lookup.store, max_age)
    age.warn()

    def parts() -> Iterator[dict[str, Sequence[Any]]]:
        is_current = Current()
        for part in lookup.parts("groups", _READ, order=COPIES_IN_ORDER):
            wanted = is_current.of(part) if output.is_text else [True] * len(part["group_id"])
            yield age.columns(_listed(part, wanted, chosen))

    closing = age.line_if_old(lookup.store) if output.is_text else None
    output.table(_LIST, RereadParts(parts), closing=closing)


def _list_at(
    output: Output, tables: str, at: datetime, max_age: float | None, chosen: Mapping[str, Sequence[str]]
) -> None:
    """List the groups as they were at a past time."""

    def ask() -> Found:
        reader = open_reader(tables, at, max_age=max_age)
        age, found = Age.of(reader), fetch_sorted(table_of(reader, "groups", {}), "group_id")
        part = {name: [row[name] for row in found] for name in _READ}
        listed = age.columns(_listed(part, [True] * len(found), chosen))
        closing = f"{capitalized(age.as_of_text(reader.store))}.{unknown_text(reader)}"
        rows = [dict(zip(listed, row, strict=True)) for row in zip(*listed.values(), strict=True)]
        nothing = no_history_messages(reader, found, (), at)
        return Found(_LIST, rows, closing, missing=nothing, warnings=age.lines())

    show(output, None, ask)


def _listed(
    part: Mapping[str, Sequence[Any]], wanted: Sequence[bool], chosen: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[Any]]:
    """Return the columns of the wanted groups that have one of the chosen values of each column (none: any)."""
    for name, values in chosen.items():
        if values:
            wanted = [so_far and value in values for so_far, value in zip(wanted, part[name], strict=True)]
    part = {name: list(compress(values, wanted)) for name, values in part.items()}
    types = part["group_type"]
    # Brokers list newer types under a protocol type of the same name.
    newer = {group_type: group_type.lower() for group_type in set(types)} | {"Classic": None}
    of_members = zip(types, part["protocol_type"], strict=True)
    return {
        "group": part["group_id"],
        "type": types,
        "protocol_type": [newer[group_type] or own for group_type, own in of_members],
        "members": part["member_count"],
    } | {name: part[name] for name in _UNCHANGED}
