"""`offsetstream offsets import`: commit the offsets of groups of one cluster on another."""

from __future__ import annotations

from typing import Any

import click

from offsetstream.cli.cluster_changes import Operator, open_session, operating_options, show_or_execute
from offsetstream.cli.failures import OneLineErrors
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

Say how the logs of both clusters correspond. --same-log: same records at the same offsets, such as moved disks.
--translate timestamp: same records in the same order. The group then resumes at the first record with the timestamp of
its next record, so it reads some records again, at most READ-AGAIN. If no record has that timestamp (LogAppendTime, or
the copy lacks the record), the command objects.

Exit codes: 1 an objection prevents the commit, another operator is changing the group, or a partition was refused;
3 a coordinator does not answer.""",
)
@config_option("offsets.import")
@click.argument("file")
@click.option(
    "--group", multiple=True, metavar="GROUP", help="Import only this group of the file (repeatable; default: all)."
)
@click.option(
    "--same-log",
    is_flag=True,
    help="Commit the offsets unchanged: this cluster has the same records at the same offsets.",
)
@click.option(
    "--translate", type=click.Choice(["timestamp"]), help="Find the offsets here by the timestamps of the records."
)
@click.option(
    "--rename-topic",
    multiple=True,
    metavar="PATTERN=NAME",
    help="Rename topics: a regular expression for complete names, and the new name with \\1 (repeatable).",
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
    """Commit the offsets in a file of 'offsets export --with-times' on this cluster.

    This is a dry run unless you add --execute.
    """
    output, operator = output_of(options), Operator.of(options)
    if same_log == (translate is not None):
        raise click.UsageError("say how the offsets of both clusters correspond: --same-log, or --translate timestamp")
    from offsetstream.operations.moves import Renames, plan_import, renamed  # noqa: PLC0415 - only what is asked
    from offsetstream.operations.offset_file import read_offset_file  # noqa: PLC0415 - likewise

    offset_file = read_offset_file(file, sorted(set(group)))
    moved = renamed(offset_file.offsets, Renames(rename_topic))
    with open_session(operator, "READ") as found:
        cluster, properties = found.cluster, found.properties
        plan = plan_import(cluster, found.admin, moved, operator.timeout, same_log=same_log, properties=properties)
        plan.notes += offset_file.notes(uses_times=not same_log)
        show_or_execute(output, operator, found, plan)
