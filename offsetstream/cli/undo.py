"""`offsetstream offsets undo`: what a reset, an import or a deletion did is taken back, by its snapshot."""

from __future__ import annotations

from typing import Any

import click

from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.operating import Operator, carry_out, operating_options, session, snapshot_path
from offsetstream.cli.options import config_option, output_of, output_options
from offsetstream.cli.tell import tell
from offsetstream.errors import OtherClusterError


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream offsets undo --bootstrap-server localhost:9092
  offsetstream offsets undo --bootstrap-server localhost:9092 --execute
  offsetstream offsets undo tables/snapshots/20261121T030000Z-reset-0a1b2c3d4e5f.json --execute

Without SNAPSHOT the newest is meant, but for those of undoing (name one to undo that). Offsets that were changed get
their old value, those that were created are deleted, and those that were deleted are committed again. What was killed
half-way is taken back as well. Groups that have moved since are refused; topics that are gone are left out.

Exit code 1 where an objection stands or a partition was refused, 3 where a coordinator does not answer.""",
)
@config_option("offsets.undo")
@click.argument("snapshot", required=False, metavar="[SNAPSHOT]")
@click.option("--topic", multiple=True, metavar="TOPIC[:0,1]", help="Only this topic, or partitions of it; repeatable.")
@operating_options
@output_options
def undo(*, snapshot: str | None, topic: tuple[str, ...], **options: Any) -> None:
    """Take an operation back by the snapshot that it left; a dry run unless --execute is given."""
    output, operator = output_of(options), Operator.of(options)
    from offsetstream.operations.reset import Scope, parse_topics  # noqa: PLC0415 - only what is asked is imported
    from offsetstream.operations.snapshot import read_snapshot  # noqa: PLC0415 - only what is asked is imported
    from offsetstream.operations.undo import plan_undo  # noqa: PLC0415 - likewise

    scope = Scope(parse_topics(topic), all_topics=not topic)
    path = snapshot_path(operator, snapshot)
    kept = read_snapshot(path)
    # What was created is deleted, and all else committed.
    operations = {"DELETE" if each.present is None else "READ" for each in kept.changes}
    with session(operator, *operations) as found:
        if kept.cluster_id != found.cluster_id:
            raise OtherClusterError(f"{path} is of the cluster {kept.cluster_id}, and this is {found.cluster_id}")
        plan = plan_undo(found.cluster, found.admin, kept, operator.timeout, scope=scope)
        tell(f"Taking back {path}, {kept.kind} of {kept.written_at.isoformat(timespec='seconds')}")
        carry_out(output, operator, found, plan)
