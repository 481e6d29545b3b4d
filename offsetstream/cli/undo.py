"""`offsetstream offsets undo`: undo a reset, an import or a deletion, from its snapshot."""

from __future__ import annotations

from typing import Any

import click

from offsetstream.cli.cluster_changes import Operator, open_session, operating_options, show_or_execute, snapshot_path
from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.messages import print_line
from offsetstream.cli.options import config_option, output_of, output_options
from offsetstream.errors import OtherClusterError


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream offsets undo --bootstrap-server localhost:9092
  offsetstream offsets undo --bootstrap-server localhost:9092 --execute
  offsetstream offsets undo tables/snapshots/20261121T030000Z-reset-0a1b2c3d4e5f.json --execute

Without SNAPSHOT, the newest one is undone, except snapshots of an undo: name such a snapshot. Changed offsets get their
old value, created ones are deleted, and deleted ones are committed again. This also undoes an operation that was killed
half-way. It refuses groups that have moved since, and skips topics that are gone.

Exit codes: 1 an objection stands, another operator is changing the group, or a partition was refused;
3 a coordinator does not answer.""",
)
@config_option("offsets.undo")
@click.argument("snapshot", required=False, metavar="[SNAPSHOT]")
@click.option(
    "--topic",
    multiple=True,
    metavar="TOPIC[:0,1]",
    help="Undo only this topic, or these partitions of it (repeatable).",
)
@operating_options
@output_options
def undo(*, snapshot: str | None, topic: tuple[str, ...], **options: Any) -> None:
    """Undo a reset, an import or a deletion, from its snapshot. This is a dry run unless you give --execute."""
    output, operator = output_of(options), Operator.of(options)
    from offsetstream.operations.reset import Scope, parse_topics  # noqa: PLC0415 - slow
    from offsetstream.operations.undo import plan_undo, read_snapshot  # noqa: PLC0415 - slow

    scope = Scope(parse_topics(topic), all_topics=not topic)
    path = snapshot_path(operator, snapshot)
    saved = read_snapshot(path)
    # Created offsets will be deleted, all others committed.
    operations = {"DELETE" if each.present is None else "READ" for each in saved.changes}
    with open_session(operator, *operations) as live:
        if saved.cluster_id != live.cluster_id:
            raise OtherClusterError(f"{path} is of cluster {saved.cluster_id}, but this is {live.cluster_id}")
        plan = plan_undo(live.cluster, live.admin, saved, operator.timeout, scope=scope)
        print_line(f"Undoing {path}, {saved.kind} of {saved.written_at.isoformat(timespec='seconds')}")
        show_or_execute(output, operator, live, plan)
