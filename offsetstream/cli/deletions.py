"""`offsetstream offsets delete` and `groups delete`: what is committed, and whole groups, of the live cluster."""

from __future__ import annotations

from typing import Any

import click

from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.operating import Operator, carry_out, operating_options, session
from offsetstream.cli.options import config_option, output_of, output_options


@click.command(
    "delete",
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream offsets delete --group my-group --topic orders --bootstrap-server localhost:9092
  offsetstream offsets delete --group my-group --topic orders:0,1 --execute

A group with members keeps the offsets of topics that these read. 'offsets undo' commits again what was deleted.

Exit code 1 where an objection stands or a partition was refused, 3 where a coordinator does not answer.""",
)
@config_option("offsets.delete")
@click.option("--group", required=True, metavar="GROUP", help="The group.")
@click.option(
    "--topic",
    required=True,
    multiple=True,
    metavar="TOPIC[:0,1]",
    help="A topic, or some of its partitions; repeatable.",
)
@operating_options
@output_options
def delete_offsets(*, group: str, topic: tuple[str, ...], **options: Any) -> None:
    """Delete what a group has committed for topics; a dry run unless --execute is given."""
    output, operator = output_of(options), Operator.of(options)
    from offsetstream.operations.deletion import plan_offset_deletion  # noqa: PLC0415 - only what is asked is imported
    from offsetstream.operations.reset import parse_topics  # noqa: PLC0415 - likewise

    topics = parse_topics(topic)
    with session(operator, "DELETE") as found:
        carry_out(output, operator, found, plan_offset_deletion(found.cluster, found.admin, group, topics))


@click.command(
    "delete",
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream groups delete --group my-group --bootstrap-server localhost:9092
  offsetstream groups delete --group my-group --group other --execute

'offsets undo' commits the offsets of a deleted group again.

Exit code 1 where an objection stands or a group was refused, 3 where a coordinator does not answer.""",
)
@config_option("groups.delete")
@click.option("--group", required=True, multiple=True, metavar="GROUP", help="A group without members; repeatable.")
@operating_options
@output_options
def delete_groups(*, group: tuple[str, ...], **options: Any) -> None:
    """Delete groups with all their offsets; a dry run unless --execute is given."""
    output, operator = output_of(options), Operator.of(options)
    from offsetstream.operations.deletion import plan_group_deletion  # noqa: PLC0415 - only what is asked is imported

    with session(operator, "DELETE") as found:
        carry_out(output, operator, found, plan_group_deletion(found.cluster, found.admin, set(group)))
