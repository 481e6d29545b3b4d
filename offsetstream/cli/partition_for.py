"""`offsetstream partition-for`: the offsets partition of a group, whose leader is its coordinator."""

from __future__ import annotations

from typing import Any

import click

from offsetstream.cli.options import output_of, output_options
from offsetstream.cli.output import Column
from offsetstream.coordinator import partitioning

_COLUMNS = (Column("group_id", "GROUP", 15), Column("partition", "PARTITION"))


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
    output_of(options).table(_COLUMNS, rows)
