"""`offsetstream offsets import`: groups of one cluster go on in another."""

from __future__ import annotations

from typing import Any

import click

from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.operating import Operator, carry_out, operating_options, session
from offsetstream.cli.options import config_option, output_of, output_options


@click.command(
    "import",
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream offsets export --all-groups --with-times --bootstrap-server old:9092 --file offsets.csv
  offsetstream offsets import offsets.csv --translate timestamp --bootstrap-server new:9092 --tables new-tables
  offsetstream offsets import offsets.csv --translate timestamp --rename-topic '(.*)=old.\\1' --execute
  offsetstream offsets import offsets.csv --same-log --execute

An offset means nothing in another cluster unless its logs correspond. --same-log: they have the same records at the
same offsets, as of disks that were moved. --translate timestamp: the same records in the same order; a group goes on at
the first record of the time of the one it would have read next, and reads some again: READ-AGAIN has how many at most.
Where the record that is found is not of that time (LogAppendTime, or the copy lacks it), that is an objection.

Exit code 1 where an objection stands or a partition was refused, 3 where a coordinator does not answer.""",
)
@config_option("offsets.import")
@click.argument("file")
@click.option("--group", multiple=True, metavar="GROUP", help="Only this group of the file; repeatable.")
@click.option("--same-log", is_flag=True, help="The logs here have the same records at the same offsets.")
@click.option("--translate", type=click.Choice(["timestamp"]), help="Find offsets by the times of their records.")
@click.option(
    "--rename-topic",
    multiple=True,
    metavar="PATTERN=NAME",
    help="What topics are called here: a regular expression for whole names, and \\1 for its first group; repeatable.",
)
@operating_options
@output_options
def import_offsets(
    *,
    file: str,
    group: tuple[str, ...],
    same_log: bool,
    translate: str | None,
    rename_topic: tuple[str, ...],
    **options: Any,
) -> None:
    """Commit another cluster's offsets here, from a file of 'offsets export'; a dry run unless --execute is given."""
    output, operator = output_of(options), Operator.of(options)
    if same_log == (translate is not None):
        raise click.UsageError("say how the offsets of both clusters correspond: --same-log, or --translate timestamp")
    from offsetstream.operations.move import Renames, plan_import, renamed  # noqa: PLC0415 - only what is asked
    from offsetstream.operations.offset_file import read_moved  # noqa: PLC0415 - likewise

    moved = renamed(read_moved(file, sorted(set(group))), Renames(rename_topic))
    with session(operator, "READ") as found:
        cluster, properties = found.cluster, found.properties
        plan = plan_import(cluster, found.admin, moved, operator.timeout, same_log=same_log, properties=properties)
        carry_out(output, operator, found, plan)
