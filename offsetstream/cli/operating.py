"""What the commands share that change a live cluster: their options, how a plan is shown, and how it is carried out."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from offsetstream.cli.answers import Row, counted
from offsetstream.cli.options import SECONDS, Command, client_properties, cluster_options, tables_option
from offsetstream.cli.output import Column, Output, tell
from offsetstream.cli.own_spark import own_spark, reached, spark_options
from offsetstream.errors import UsageError

if TYPE_CHECKING:
    from offsetstream.cluster.group_admin import GroupAdmin
    from offsetstream.cluster.metadata import MetadataCache
    from offsetstream.operations.execute import Result
    from offsetstream.operations.plan import Change, Objection, Plan
    from offsetstream.tables.store import Store

# As operations/plan.py has them, which --help does not import.
DESPITE = ("no-such-group", "recreated-topic", "out-of-range", "tables-behind", "open-transaction")
_READ_ONLY = "OFFSETSTREAM_READ_ONLY"
_TIMEOUT = 30.0
_SHOWN = 20  # objections, in words
# Kafka's columns first, in its tool's order.
_COLUMNS = (
    Column("group", "GROUP", 30),
    Column("topic", "TOPIC", 30),
    Column("partition", "PARTITION", 10),
    Column("new_offset", "NEW-OFFSET", 15),
    Column("current_offset", "CURRENT-OFFSET", 15),
    Column("skipped", "SKIPPED", 8),
    Column("read_again", "READ-AGAIN", 10),
    Column("log_start_offset"),
    Column("log_end_offset", "LOG-END-OFFSET", 15),
    Column("topic_id"),
    Column("current_leader_epoch"),
    Column("new_leader_epoch"),
    Column("current_metadata"),
    Column("new_metadata"),
    Column("objections", "OBJECTIONS", 10),
    Column("result", "RESULT", 8),
)


@dataclass(frozen=True)
class Operator:
    """How an operator wants it: the options of `operating_options`."""

    bootstrap_server: str | None
    command_config: str | None
    tables: str
    execute: bool
    read_only: bool
    despite: tuple[str, ...]
    skip_objected: bool
    snapshots: str | None
    timeout: float
    master: str | None
    conf: dict[str, str]

    @classmethod
    def of(cls, options: dict[str, Any]) -> Operator:
        """Take the options out of those of a command."""
        return cls(**{name: options.pop(name) for name in cls.__dataclass_fields__})


def operating_options(command: Command) -> Command:
    """Add what `Operator` takes."""
    added: list[Callable[[Command], Command]] = [
        click.option(
            "--execute", is_flag=True, allow_from_autoenv=False, help="Do it; without this the plan is shown only."
        ),
        click.option(
            "--read-only",
            is_flag=True,
            envvar=_READ_ONLY,
            show_envvar=True,
            help="Refuse --execute: nothing is written to a cluster.",
        ),
        click.option(
            "--despite",
            multiple=True,
            allow_from_autoenv=False,
            type=click.Choice(DESPITE),
            help="Overrule objections of this kind; repeatable.",
        ),
        click.option(
            "--skip-objected", is_flag=True, allow_from_autoenv=False, help="Leave out groups with an objection."
        ),
        click.option(
            "--snapshots",
            metavar="FOLDER",
            envvar="OFFSETSTREAM_SNAPSHOTS",
            show_envvar=True,
            help="Where what was committed before is kept [default: snapshots in the folder of --tables].",
        ),
        click.option(
            "--timeout",
            type=SECONDS,
            default=_TIMEOUT,
            show_default=True,
            metavar="SECONDS",
            help="How long to wait for a coordinator or a leader.",
        ),
        cluster_options,
        tables_option,
        spark_options,
    ]
    for add in reversed(added):
        command = add(command)
    return command


@dataclass
class Session:
    """The live cluster, its groups, and the tables, for one command."""

    cluster: MetadataCache
    admin: GroupAdmin
    store: Store
    cluster_id: str


@contextmanager
def session(operator: Operator, *operations: str) -> Iterator[Session]:
    """Give what a command works with, and which needs these rights to groups.

    UsageError where it may not write, TablesError where the tables are of another cluster.
    """
    if operator.execute and operator.read_only:
        raise UsageError(f"--read-only (or {_READ_ONLY}): nothing is written to a cluster; leave out --execute")
    if operator.bootstrap_server is None:
        raise UsageError("this is about the live cluster: name a broker by --bootstrap-server")
    from offsetstream.cluster.group_admin import group_admin  # noqa: PLC0415 - only what is asked is imported
    from offsetstream.cluster.metadata import MetadataCache  # noqa: PLC0415 - likewise
    from offsetstream.tables.create import require_tables_of  # noqa: PLC0415 - likewise

    properties = client_properties(operator.command_config)
    cluster = MetadataCache(operator.bootstrap_server, properties)
    cluster_id = cluster.cluster_id()
    with reached(operator.tables, partial(own_spark, operator.master, operator.conf)) as store:
        require_tables_of(store, cluster_id)
        with group_admin(cluster, properties, operator.timeout, operations) as admin:
            yield Session(cluster, admin, store, cluster_id)


def carry_out(output: Output, operator: Operator, found: Session, plan: Plan) -> None:
    """Show the plan, and do it if that is wanted and nothing speaks against it; end with the exit code."""
    left_out = (
        {each.group_id for each in plan.standing_objections(operator.despite)} if operator.skip_objected else set()
    )
    objections, plan = plan.objections, plan.without_groups(left_out)
    standing = plan.standing_objections(operator.despite)
    if not operator.execute or standing or not plan.group_ids:
        _show(output, plan, _planned(plan, standing), None)
        _tell_objections(objections)
        _tell_notes(plan)
        click.get_current_context().exit(1 if standing or left_out else 0)
    from offsetstream.operations.execute import execute  # noqa: PLC0415 - only what is asked is imported

    result = execute(found.admin, plan, _folder(operator), _journal(found), _ticks(len(plan.group_ids)))
    _show(output, plan, _done(plan, result), result)
    _tell_objections(objections)
    _tell_notes(plan)
    if result.ended_by is not None:
        tell(f"Error: {result.ended_by}")
    status = result.status(plan)
    code = result.ended_by.exit_code if result.ended_by else 0 if status == "done" and not left_out else 1
    click.get_current_context().exit(code)


def _folder(operator: Operator) -> Path:
    from offsetstream.operations.snapshot import default_folder  # noqa: PLC0415 - only what is asked is imported
    from offsetstream.tables.location import parse_tables  # noqa: PLC0415 - likewise

    return Path(operator.snapshots) if operator.snapshots else default_folder(parse_tables(operator.tables))


def snapshot_path(operator: Operator, named: str | None) -> Path:
    """Return the snapshot that is meant: the newest where none is named."""
    from offsetstream.operations.snapshot import newest_snapshot  # noqa: PLC0415 - only what is asked is imported

    return Path(named) if named else newest_snapshot(_folder(operator))


def _journal(found: Session) -> Any:
    from offsetstream.operations.journal import Journal  # noqa: PLC0415 - only what is asked is imported

    command = shlex.join(["offsetstream", *sys.argv[1:]])
    return Journal(found.store, found.cluster_id, uuid4().hex[:12], command)


def _ticks(groups: int) -> Callable[[str], None]:
    """Return what tells of long work how far it is: every tenth of it."""
    done = 0

    def tick(_: str) -> None:
        nonlocal done
        done += 1
        if groups >= _SHOWN and not done % (groups // 10):
            tell(f"{done} of {groups} groups")

    return tick


def _show(output: Output, plan: Plan, closing: str, result: Result | None) -> None:
    told: dict[Any, list[str]] = {}
    for each in plan.objections:
        told.setdefault((each.group_id, each.place), []).append(each.kind)
    rows = [_row(each, told, result) for each in plan.changes]
    without = [group_id for group_id in plan.deleted_groups if not plan.of_group(group_id)]
    rows += [
        {"group": each, "objections": ", ".join(told.get((each, None), [])) or None, "result": _result(result, each)}
        for each in without
    ]
    output.table(_COLUMNS, sorted(rows, key=lambda row: (row["group"], row.get("topic") or "")), closing=closing)


def _result(result: Result | None, group_id: str) -> str | None:
    return (result.groups.get(group_id, "not done") or "done") if result else None


def _row(change: Change, told: dict[Any, list[str]], result: Result | None) -> Row:
    present, new, distance = change.present, change.new, change.distance
    known = [*told.get((change.group_id, None), []), *told.get((change.group_id, change.place), [])]
    again = change.read_again if change.read_again is not None else max(-distance, 0) if distance is not None else None
    return {
        "group": change.group_id,
        "topic": change.topic,
        "partition": change.partition,
        "new_offset": new and new.offset,
        "current_offset": present and present.offset,
        "skipped": max(distance, 0) if distance is not None else None,
        "read_again": again,
        "log_start_offset": change.log_start,
        "log_end_offset": change.log_end,
        "topic_id": change.topic_id,
        "current_leader_epoch": present and present.leader_epoch,
        "new_leader_epoch": new and new.leader_epoch,
        "current_metadata": present and present.metadata,
        "new_metadata": new and new.metadata,
        "objections": ", ".join(known) or None,
        "result": (result.error_of(change) or "done") if result else None,
    }


def _sums(changes: Collection[Change]) -> str:
    skipped = sum(max(each.distance or 0, 0) for each in changes)
    again = sum(max(-(each.distance or 0), 0) if each.read_again is None else each.read_again for each in changes)
    groups = len({each.group_id for each in changes})
    of_groups = f"{counted(len(changes), 'offset')} of {counted(groups, 'group')}"
    return f"{of_groups}: {counted(skipped, 'message')} skipped, {again} read again"


def _planned(plan: Plan, standing: Collection[Objection]) -> str:
    sums = _sums(plan.changes)
    if standing:
        return f"{sums}. Nothing was done: {counted(len(standing), 'objection')}."
    if not plan.group_ids:
        return "There is nothing to be done."
    return f"{sums}. Nothing was done: this is the plan, and --execute does it."


def _done(plan: Plan, result: Result) -> str:
    made = [each for each in plan.changes if result.error_of(each) is None]
    failed = len(plan.changes) - len(made)
    rest = f"; {failed} not changed" if failed else ""
    return (
        f"Done: {_sums(made)}{rest}. What was there before is in {result.snapshot}: "
        "'offsetstream offsets undo' with it takes this back."
    )


def _tell_notes(plan: Plan) -> None:
    for note in plan.notes[:_SHOWN]:
        tell(f"Note: {note}")


def _tell_objections(objections: Collection[Objection]) -> None:
    for each in list(objections)[:_SHOWN]:
        place = f" {each.place[0]}-{each.place[1]}" if each.place else ""
        overrule = f" (--despite {each.kind} overrules this)" if each.kind in DESPITE else ""
        tell(f"Objection: group '{each.group_id}'{place}: {each.told}{overrule}")
    if len(objections) > _SHOWN:
        tell(f"... and {len(objections) - _SHOWN} more: --output json has them all")
