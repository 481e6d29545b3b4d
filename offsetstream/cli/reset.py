"""`offsetstream offsets reset`: groups are put where they should read on, as Kafka's tool does it, and safely."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.operating import Operator, Session, carry_out, operating_options, session
from offsetstream.cli.options import config_option, output_of, output_options
from offsetstream.cli.times import Duration, Instant, milliseconds
from offsetstream.errors import UsageError

if TYPE_CHECKING:
    from offsetstream.operations.plan import Plan
    from offsetstream.operations.reset import Scope

_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)


class KafkaDuration(Duration):
    """A length of time as Kafka's tool takes it (P1DT2H), or as people write it (1d2h)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read it."""
        if isinstance(value, str) and (found := _ISO.fullmatch(value)) and any(found.groups()):
            days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
            try:
                return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
            except OverflowError:
                return self.fail(f"'{value}' is too long a time", param, ctx)
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

Without --execute nothing is changed: each partition's present and new offset is shown, what is skipped or read again,
and what speaks against it. 'offsets undo' takes a reset back.

Exit code 1 where an objection stands or a partition was refused, 3 where a coordinator does not answer.""",
)
@config_option("offsets.reset")
@click.option("--group", multiple=True, metavar="GROUP", help="A group, which must have no member; repeatable.")
@click.option("--all-groups", is_flag=True, help="All groups that have offsets.")
@click.option("--topic", multiple=True, metavar="TOPIC[:0,1]", help="A topic, or some of its partitions; repeatable.")
@click.option("--all-topics", is_flag=True, help="All partitions that the group has an offset of.")
@click.option("--at", type=Instant(), metavar="TIME", help="To where it stood then, by the tables: 10m (ago), 03:00.")
@click.option("--from-file", metavar="CSV", help="To what a file has: [group,]topic,partition,offset.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="So many offsets on; below zero, back.")
@click.option("--by-duration", type=KafkaDuration(), metavar="DURATION", help="To the first record since: 1h, PT1H.")
@click.option("--to-datetime", type=Instant(), metavar="TIME", help="To the first record of then or later.")
@click.option("--to-earliest", is_flag=True, help="To the start of the log.")
@click.option("--to-latest", is_flag=True, help="To its end.")
@click.option("--to-current", is_flag=True, help="To what is committed; to the end where nothing is.")
@operating_options
@output_options
def reset(
    *, group: tuple[str, ...], all_groups: bool, topic: tuple[str, ...], all_topics: bool, **options: Any
) -> None:
    """Set committed offsets of groups without members; a dry run unless --execute is given."""
    output, operator = output_of(options), Operator.of(options)
    word, value = _one_target(options)
    if bool(group) == all_groups:
        raise click.UsageError("give --group, or --all-groups")
    if word not in {"at", "from_file"} and not topic and not all_topics:
        raise click.UsageError("say which partitions: --topic TOPIC[:0,1], or --all-topics")
    from offsetstream.operations.reset import Scope, parse_topics  # noqa: PLC0415 - only what is asked is imported

    scope = Scope(parse_topics(topic), all_topics)
    with session(operator, "READ") as found:
        carry_out(output, operator, found, _plan(found, operator, group, scope, word, value))


def _one_target(options: dict[str, Any]) -> tuple[str, Any]:
    given = [(name, value) for name, value in options.items() if value is not None and value is not False]
    if len(given) != 1:
        raise click.UsageError(
            "give one of --at, --from-file, --to-offset, --shift-by, --by-duration, --to-datetime, --to-earliest, "
            "--to-latest and --to-current"
        )
    return given[0]


def _plan(found: Session, operator: Operator, group: Sequence[str], scope: Scope, word: str, value: Any) -> Plan:
    from offsetstream.operations.offset_file import read_offsets  # noqa: PLC0415 - only what is asked is imported
    from offsetstream.operations.reset import plan_reset, recreated, without_epochs  # noqa: PLC0415 - likewise
    from offsetstream.operations.targets import Target  # noqa: PLC0415 - likewise

    group_ids = sorted(set(group))
    if word == "at":
        from offsetstream.operations.then import offsets_then, require_told  # noqa: PLC0415 - likewise

        _require_past(value)
        then = offsets_then(found.store, value, group_ids or None)
        require_told(then, scope.topics, value)
        target = Target("offsets", offsets=then.offsets)
        plan = plan_reset(found.cluster, found.admin, sorted(then.offsets), scope, target, operator.timeout)
        plan.objections += [*then.objections, *recreated(plan.changes, then.topic_ids)]
        plan.changes = without_epochs(plan.changes, plan.objections)
        plan.notes += then.notes
        plan.notes += [then.filtered.note] if then.filtered.note else []
        return plan
    if word == "from_file":
        given = read_offsets(value, group_ids)
        target = Target("offsets", offsets=given)
        return plan_reset(found.cluster, found.admin, sorted(given), scope, target, operator.timeout)
    group_ids = group_ids or found.admin.group_ids()
    return plan_reset(found.cluster, found.admin, group_ids, scope, _target(word, value), operator.timeout)


def _target(word: str, value: Any) -> Any:
    from offsetstream.operations.targets import Target  # noqa: PLC0415 - only what is asked is imported

    # Before 1970 nothing was written: from the first record on.
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
        raise UsageError(f"{at.isoformat()} is still to come: no table has what was committed then")
