"""`offsetstream offsets delete` and `groups delete`: delete committed offsets, or groups, on the live cluster."""

from __future__ import annotations

from typing import Any

import click

from offsetstream.cli.cluster_changes import Operator, open_session, operating_options, show_or_execute
from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.options import config_option, output_of, output_options


@click.command(
    "delete",
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream offsets delete --group my-group --topic orders --bootstrap-server localhost:9092
  offsetstream offsets delete --group my-group --topic orders:0,1 --execute

The command keeps offsets of topics that members of the group read now. 'offsets undo' restores deleted offsets.

Exit codes: 1 an objection prevents the deletion, another operator is changing the group, or a partition was refused;
3 a coordinator does not answer.""",
)
@config_option("offsets.delete")
@click.option("--group", required=True, metavar="GROUP", help="Group id (required).")
@click.option(
    "--topic",
    required=True,
    multiple=True,
    metavar="TOPIC[:0,1]",
    help="Topic, or some of its partitions (repeatable, required).",
)
@operating_options
@output_options
def delete_offsets(*, group: str, topic: tuple[str, ...], **options: Any) -> None:
    """Delete committed offsets of a group. This is a dry run unless you add --execute."""
    output, operator = output_of(options), Operator.of(options)
    from offsetstream.operations.deletion import plan_offset_deletion  # noqa: PLC0415 - imported on use
    from offsetstream.operations.reset import parse_topics  # noqa: PLC0415 - likewise

    topics = parse_topics(topic)
    with open_session(operator, "DELETE") as found:
        show_or_execute(output, operator, found, plan_offset_deletion(found.cluster, found.admin, group, topics))


@click.command(
    "delete",
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream groups delete --group my-group --bootstrap-server localhost:9092
  offsetstream groups delete --group my-group --group other --execute

'offsets undo' restores the offsets of a deleted group.

Exit codes: 1 an objection prevents the deletion, another operator is changing the group, or a group was refused;
3 a coordinator does not answer.""",
)
@config_option("groups.delete")
@click.option(
    "--group",
    required=True,
    multiple=True,
    metavar="GROUP",
    help="Group id; the group must have no members (repeatable, required).",
)
@operating_options
@output_options
def delete_groups(*, group: tuple[str, ...], **options: Any) -> None:
    """Delete groups with all their offsets. This is a dry run unless you add --execute."""
    output, operator = output_of(options), Operator.of(options)
    from offsetstream.operations.deletion import plan_group_deletion  # noqa: PLC0415 - imported on use

    with open_session(operator, "DELETE") as found:
        show_or_execute(output, operator, found, plan_group_deletion(found.cluster, found.admin, set(group)))
