"""`offsetstream offsets reset`, `undo`, `import`, `delete`, and `groups delete`: change offsets in the live cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.changes import Operator, Session, open_session, operating_options, show_or_execute, snapshot_path
from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.options import output_of, output_options
from offsetstream.cli.settings_file import config_option
from offsetstream.cli.text import Duration, Instant, milliseconds, print_line
from offsetstream.errors import OtherClusterError, UsageError
from offsetstream.operations.offset_file import by_group, read_offset_file

if TYPE_CHECKING:
    from offsetstream.operations.plan import Plan
    from offsetstream.operations.reset import Scope

_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)


class KafkaDuration(Duration):
    """A parameter type for a duration, in the form of Kafka's tool (P1DT2H) or as 1d2h."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Parse the value."""
        if isinstance(value, str) and (match := _ISO.fullmatch(value)) and any(match.groups()):
            days, hours, minutes, seconds = (float(each or 0) for each in match.groups())
            try:
                return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
            except OverflowError:
                return self.fail(f"'{value}' is too long", param, ctx)
        return super().convert(value, param, ctx)


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream offsets reset --group my-group --at 03:00 --bootstrap-server localhost:9092
  offsetstream offsets reset --group my-group --at 03:00 --bootstrap-server localhost:9092 --execute
  offsetstream offsets reset --group my-group --topic orders:0,1 --shift-by -100 --execute
  offsetstream offsets reset --group my-group --all-topics --to-latest
  offsetstream offsets reset --all-groups --all-topics --by-duration 1h --skip-objected --execute
  offsetstream offsets reset --group my-group --from-file offsets.csv

Without --execute nothing changes. The plan shows for each partition its current and new offset, the messages that the
group will skip or read again, and any objection. 'offsets undo' undoes a reset.

Exit codes: 1 an objection stands, another operator is changing the group, or a partition was refused;
3 a coordinator does not answer.""",
)
@config_option("offsets.reset")
@click.option(
    "--group", multiple=True, metavar="GROUP", help="Reset this group, which must have no members (repeatable)."
)
@click.option("--all-groups", is_flag=True, help="Reset all groups that have offsets.")
@click.option(
    "--topic", multiple=True, metavar="TOPIC[:0,1]", help="Reset this topic, or these partitions of it (repeatable)."
)
@click.option("--all-topics", is_flag=True, help="Reset all partitions with a committed offset.")
@click.option(
    "--at", type=Instant(), metavar="TIME", help="Set to the offsets at this time, by the tables: 10m (ago), 03:00."
)
@click.option("--from-file", metavar="CSV", help="Set to the offsets in a file: [group,]topic,partition,offset.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="Set to this offset.")
@click.option("--shift-by", type=int, metavar="N", help="Move forward by N offsets; backward if N is negative.")
@click.option(
    "--by-duration", type=KafkaDuration(), metavar="DURATION", help="Set to the first record of the last 1h (or PT1H)."
)
@click.option("--to-datetime", type=Instant(), metavar="TIME", help="Set to the first record of this time or later.")
@click.option("--to-earliest", is_flag=True, help="Set to the start of the log.")
@click.option("--to-latest", is_flag=True, help="Set to the end of the log.")
@click.option("--to-current", is_flag=True, help="Keep the committed offset; without one, set to the end of the log.")
@operating_options
@output_options
def reset(
    *, group: tuple[str, ...], all_groups: bool, topic: tuple[str, ...], all_topics: bool, **options: Any
) -> None:
    """Set committed offsets of groups that have no members. This is a dry run unless you give --execute."""
    output, operator = output_of(options), Operator.of(options)
    word, value = _one_target(options)
    if bool(group) == all_groups:
        raise click.UsageError("give --group or --all-groups")
    if word not in {"at", "from_file"} and not topic and not all_topics:
        raise click.UsageError("name the partitions: --topic TOPIC[:0,1] or --all-topics")
    from offsetstream.operations.reset import Scope, parse_topics

    scope = Scope(parse_topics(topic), all_topics)
    if word == "from_file":
        value = read_offset_file(value, sorted(set(group)))
    with open_session(operator, "READ") as live:
        show_or_execute(output, operator, live, _plan(live, operator, group, scope, word, value))


def _one_target(options: dict[str, Any]) -> tuple[str, Any]:
    given = [(name, value) for name, value in options.items() if value is not None and value is not False]
    if len(given) != 1:
        raise click.UsageError(
            "give one of --at, --from-file, --to-offset, --shift-by, --by-duration, --to-datetime, --to-earliest, "
            "--to-latest and --to-current"
        )
    return given[0]


def _plan(live: Session, operator: Operator, group: Sequence[str], scope: Scope, word: str, value: Any) -> Plan:
    from offsetstream.operations.reset import (
        Target,
        plan_reset,
        recreation_objections,
        without_epochs,
    )

    group_ids = sorted(set(group))
    if word == "at":
        from offsetstream.operations.past_offsets import read_past_offsets, require_not_filtered

        _require_past(value)
        past = read_past_offsets(live.store, value, group_ids or None)
        require_not_filtered(past, scope.topics, value)
        target = Target("offsets", offsets=past.offsets)
        plan = plan_reset(live.cluster, live.admin, sorted(past.offsets), scope, target, operator.timeout)
        plan.objections += [*past.objections, *recreation_objections(plan.changes, past.topic_ids)]
        plan.changes = without_epochs(plan.changes, plan.objections)
        plan.notes += past.notes
        plan.notes += [past.filtered.note] if past.filtered.note else []
        return plan
    if word == "from_file":
        target = Target("offsets", offsets=by_group((each, each.offset) for each in value.offsets))
        plan = plan_reset(live.cluster, live.admin, sorted(target.offsets), scope, target, operator.timeout)
        planned = {(each.group_id, each.place) for each in plan.changes}
        objected = {(each.group_id, each.place) for each in plan.objections if each.place is not None}
        plan.notes += value.notes(uses_times=False) + value.unplanned(planned | objected)
        return plan
    group_ids = group_ids or live.admin.group_ids()
    return plan_reset(live.cluster, live.admin, group_ids, scope, _target(word, value), operator.timeout)


def _target(word: str, value: Any) -> Any:
    from offsetstream.operations.reset import Target

    # No record is older than 1970: a time before means the first record.
    if word == "by_duration":
        return Target("time", max(milliseconds(datetime.now(UTC)) - value // timedelta(milliseconds=1), 0))
    if word == "to_datetime":
        return Target("time", max(milliseconds(value), 0))
    if word == "to_offset":
        return Target("offset", value)
    if word == "shift_by":
        return Target("shift", value)
    words: dict[str, Any] = {"to_earliest": "earliest", "to_latest": "latest", "to_current": "current"}
    return Target(words[word])


def _require_past(at: datetime) -> None:
    if at > datetime.now(UTC):
        raise UsageError(f"--at {at.isoformat()} is in the future: give a past time")


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
    from offsetstream.operations.reset import Scope, parse_topics
    from offsetstream.operations.undo import plan_undo, read_snapshot

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
    from offsetstream.operations.moves import Renames, plan_import, renamed

    offset_file = read_offset_file(file, sorted(set(group)))
    moved = renamed(offset_file.offsets, Renames(rename_topic))
    with open_session(operator, "READ") as found:
        cluster, properties = found.cluster, found.properties
        plan = plan_import(cluster, found.admin, moved, operator.timeout, same_log=same_log, properties=properties)
        plan.notes += offset_file.notes(uses_times=not same_log)
        show_or_execute(output, operator, found, plan)


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
    from offsetstream.operations.deletion import plan_offset_deletion
    from offsetstream.operations.reset import parse_topics

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
    from offsetstream.operations.deletion import plan_group_deletion

    with open_session(operator, "DELETE") as found:
        show_or_execute(output, operator, found, plan_group_deletion(found.cluster, found.admin, set(group)))
