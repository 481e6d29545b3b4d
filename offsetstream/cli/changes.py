"""Shared by the commands that change a live cluster: their options, and how they show and execute a plan."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

import click

from offsetstream.cli.answers import Row
from offsetstream.cli.options import (
    SECONDS,
    Command,
    client_properties,
    cluster_options,
    open_with_spark,
    own_spark,
    require_server,
    spark_options,
    tables_option,
)
from offsetstream.cli.output import Column, Output
from offsetstream.cli.process import stop_on_signal
from offsetstream.cli.text import counted, print_line
from offsetstream.errors import OffsetstreamError, UsageError
from offsetstream.operations.plan import JUDGED_BY_OPERATOR
from offsetstream.settings.places import parse_tables
from offsetstream.tables.create import require_cluster

if TYPE_CHECKING:
    from offsetstream.cluster.group_admin import GroupAdmin
    from offsetstream.cluster.metadata import MetadataCache
    from offsetstream.operations.execute import Result
    from offsetstream.operations.plan import Change, Objection, Plan
    from offsetstream.tables.store import Store

_READ_ONLY = "OFFSETSTREAM_READ_ONLY"
_TIMEOUT = 30.0
_OUTSIDE = (
    "--execute holds these groups, by a row in the table operations, so that no second operator changes them at the "
    "same time. Kafka's own tools, and offsetstream with another tables folder, do not know of this"
)
_PROGRESS_FROM = 20  # groups: shorter work prints no progress


@dataclass(frozen=True)
class Operator:
    """The values of `operating_options`."""

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
        """Remove the operator's options from the options of a command, and return them."""
        return cls(**{name: options.pop(name) for name in cls.__dataclass_fields__})


def operating_options(command: Command) -> Command:
    """Add the options that `Operator` holds."""
    added: list[Callable[[Command], Command]] = [
        click.option(
            "--execute",
            is_flag=True,
            allow_from_autoenv=False,
            help="Make the change; without this, only show the plan.",
        ),
        click.option(
            "--read-only",
            is_flag=True,
            envvar=_READ_ONLY,
            show_envvar=True,
            help="Refuse --execute, so that nothing changes.",
        ),
        click.option(
            "--despite",
            multiple=True,
            allow_from_autoenv=False,
            type=click.Choice(JUDGED_BY_OPERATOR),
            help="Overrule objections of this kind (repeatable).",
        ),
        click.option("--skip-objected", is_flag=True, allow_from_autoenv=False, help="Skip groups with an objection."),
        click.option(
            "--snapshots",
            metavar="FOLDER",
            envvar="OFFSETSTREAM_SNAPSHOTS",
            help="Save the previous offsets in this folder; 'offsets undo' looks there for the newest snapshot "
            "(default: snapshots, in the folder of --tables).",
        ),
        click.option(
            "--timeout",
            type=SECONDS,
            default=_TIMEOUT,
            show_default=True,
            metavar="SECONDS",
            help="Wait this long for a coordinator or a leader.",
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
    """The live cluster, its groups and the tables, for one command."""

    cluster: MetadataCache
    admin: GroupAdmin
    store: Store
    cluster_id: str
    properties: dict[str, str]


@contextmanager
def open_session(operator: Operator, *operations: str) -> Iterator[Session]:
    """Open the live cluster and the tables. The command needs the rights `operations` on groups.

    Raise UsageError if the operator may not write, and TablesError if the tables are of another cluster.
    """
    if operator.execute and operator.read_only:
        raise UsageError(f"--read-only (or {_READ_ONLY}) forbids changes to a cluster: omit --execute")
    server = require_server(operator.bootstrap_server)
    from offsetstream.cluster.group_admin import group_admin
    from offsetstream.cluster.metadata import MetadataCache

    properties = client_properties(operator.command_config)
    cluster = MetadataCache(server, properties)
    cluster_id = cluster.cluster_id()
    with open_with_spark(operator.tables, partial(own_spark, operator.master, operator.conf)) as store:
        require_cluster(store, cluster_id)
        with group_admin(cluster, properties, operator.timeout, operations) as admin:
            yield Session(cluster, admin, store, cluster_id, properties)


def show_or_execute(output: Output, operator: Operator, live: Session, plan: Plan) -> None:
    """Show the plan; with --execute and without remaining objections, execute it. Exit with the exit code."""
    skipped = (
        {each.group_id for each in plan.remaining_objections(operator.despite)} if operator.skip_objected else set()
    )
    objections, plan = plan.objections, plan.without_groups(skipped)
    remaining = plan.remaining_objections(operator.despite)
    if not operator.execute or remaining or not plan.group_ids:
        if plan.group_ids and not remaining:
            plan.notes.append(_OUTSIDE)
        show_plan(output, plan, objections, planned(plan, remaining))
        click.get_current_context().exit(1 if remaining or skipped else 0)
    from offsetstream.operations.execute import changed_since, execute

    output.require_writable()
    folder, journal = _folder(operator), _journal(live, operator)
    with journal.holding(plan):
        if changed := changed_since(live.admin, plan, lambda _: journal.keep()):
            objections = [*objections, *changed]
            changed_groups = {each.group_id for each in changed}
            plan = plan.without_groups(changed_groups if operator.skip_objected else ())
            skipped |= changed_groups
            if not operator.skip_objected or not plan.group_ids:
                show_plan(output, plan, objections, planned(plan, changed))
                click.get_current_context().exit(1)
        with stopped_between_groups() as is_stopped:
            tick = _ticks(len(plan.group_ids), is_stopped)
            result = execute(live.admin, plan, folder, journal, tick)
    errors = [each for each in (result.ended_by, result.journal_error) if each is not None]
    try:
        show_plan(output, plan, objections, executed(plan, result), result)
    except (OSError, UsageError) as error:  # a full disk or a closed pipe must not hide the result
        print_line(executed(plan, result))
        errors.append(OffsetstreamError(f"cannot write the result: {error}"))
    for each in errors:
        print_line(f"Error: {each}")
    if result.journal_error is not None:
        print_line("The table operations does not record how this ended; the result above is complete.")
    code = errors[0].exit_code if errors else 0 if result.status(plan) == "done" and not skipped else 1
    click.get_current_context().exit(code)


def _folder(operator: Operator) -> Path:
    from offsetstream.operations.undo import default_folder

    return Path(operator.snapshots) if operator.snapshots else default_folder(parse_tables(operator.tables))


def snapshot_path(operator: Operator, named: str | None) -> Path:
    """Return the named snapshot, else the newest one."""
    from offsetstream.operations.undo import newest_snapshot

    return Path(named) if named else newest_snapshot(_folder(operator))


def _journal(live: Session, operator: Operator) -> Any:
    from offsetstream.operations.journal import HOLD, Journal

    # The change of one group may wait for its coordinator four times; the hold is renewed between two groups.
    hold = HOLD + 5 * timedelta(seconds=operator.timeout)
    return Journal(live.store, live.cluster_id, uuid4().hex[:12], command_line(sys.argv[1:]), hold)


def command_line(arguments: Sequence[str]) -> str:
    """Return the command line, without the values of --conf: they may be secrets."""
    shown, is_setting = ["offsetstream"], False
    for argument in arguments:
        setting = (
            argument.removeprefix("--conf=") if argument.startswith("--conf=") else argument if is_setting else None
        )
        hidden = None if setting is None else f"{setting.partition('=')[0]}=..."
        shown.append(argument if hidden is None else hidden if is_setting else f"--conf={hidden}")
        is_setting = argument == "--conf"
    return shlex.join(shown)


@contextmanager
def stopped_between_groups() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C or SIGTERM came.

    The first signal lets the current group finish; the second one stops at once.
    """
    stopping = Event()

    def stop() -> None:
        stopping.set()
        print_line("Stopping after the current group; interrupt again to stop at once")

    with stop_on_signal(stop, once=True):
        try:
            yield stopping.is_set
        except KeyboardInterrupt:
            print_line("Stopped in the middle of a group: 'offsetstream offsets undo' undoes what was done.")
            raise


def _ticks(groups: int, is_stopped: Callable[[], bool]) -> Callable[[str], None]:
    """Return a function to call before each group. It prints progress at every tenth of long work.

    It raises OffsetstreamError if the operator has stopped the work.
    """
    done = 0

    def tick(_: str) -> None:
        nonlocal done
        if is_stopped():
            raise OffsetstreamError(f"stopped after {done} of {counted(groups, 'group')}: the others are unchanged")
        if groups >= _PROGRESS_FROM and done and not done % (groups // 10):
            print_line(f"{done} of {groups} groups")
        done += 1

    return tick


_SHOWN = 20  # objections and notes that are printed as sentences
_COLUMNS = (
    Column("group", "GROUP", 30),
    Column("topic", "TOPIC", 30),
    Column("partition", "PARTITION", 10, "id"),
    Column("new_offset", "NEW-OFFSET", 15, "id"),
    Column("current_offset", "CURRENT-OFFSET", 15, "id"),
    Column("skipped", "SKIPPED", 8, "number"),
    Column("read_again", "READ-AGAIN", 10, "number"),
    Column("log_start_offset"),
    Column("log_end_offset", "LOG-END-OFFSET", 15, "id"),
    Column("topic_id"),
    Column("current_leader_epoch"),
    Column("new_leader_epoch"),
    Column("current_metadata"),
    Column("new_metadata"),
    Column("objections", "OBJECTIONS", 10),
    Column("why"),
    Column("result", "RESULT", 8),
)
_Key: TypeAlias = tuple[str, tuple[str, int] | None]


def show_plan(
    output: Output, plan: Plan, objections: Collection[Objection], closing: str, result: Result | None = None
) -> None:
    """Print the change of each partition, also of those that have only objections, and then the objections."""
    by_key: dict[_Key, list[Objection]] = {}
    for each in objections:
        by_key.setdefault((each.group_id, each.place), []).append(each)
    rows = {(each.group_id, each.place): _row(each, result) for each in plan.changes}
    for group_id, place in by_key:
        if place is not None:
            topic, partition = place
            rows.setdefault((group_id, place), {"group": group_id, "topic": topic, "partition": partition})
    with_rows = {group_id for group_id, _ in rows}
    for group_id in {*plan.deleted_groups, *(group_id for group_id, _ in by_key)} - with_rows:
        rows[group_id, ("", 0)] = {"group": group_id, "result": _group_result(result, group_id)}
    shown = [rows[key] | _objections(key, by_key) for key in sorted(rows)]
    output.table(_COLUMNS, shown, closing=closing)
    for line in [*map(_sentence, objections), *(f"Note: {each}" for each in plan.notes)][:_SHOWN]:
        print_line(line)
    if (more := len(objections) + len(plan.notes) - _SHOWN) > 0:
        print_line(f"... and {more} more: --output json has all objections")


def planned(plan: Plan, remaining: Collection[Objection]) -> str:
    """Return the closing sentence of a plan that was not executed."""
    sums = _sums(plan.changes, plan.deleted_groups)
    if remaining:
        return f"{sums}. Nothing was changed: {counted(len(remaining), 'objection')}."
    if not plan.group_ids:
        return "There is nothing to do."
    return f"{sums}. Nothing was changed: this is the plan. Add --execute to make the change."


def executed(plan: Plan, result: Result) -> str:
    """Return the closing sentence of an executed plan."""
    changed = [each for each in plan.changes if result.error_of(each) is None]
    failed = len(plan.changes) - len(changed)
    rest = f"; {failed} not changed" if failed else ""
    groups = [each for each in plan.deleted_groups if _group_result(result, each) == "executed"]
    return (
        f"Done: {_sums(changed, groups, 'deleted')}{rest}. The previous offsets are in {result.snapshot}: "
        "'offsetstream offsets undo' with this file undoes the change."
    )


def _row(change: Change, result: Result | None) -> Row:
    present, new, distance = change.present, change.new, change.distance
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
        "result": (result.error_of(change) or "executed") if result else None,
    }


def _objections(key: _Key, by_key: dict[_Key, list[Objection]]) -> dict[str, Any]:
    objections = [*by_key.get((key[0], None), []), *by_key.get(key, [])]
    return {
        "objections": ", ".join(each.kind for each in objections) or None,
        "why": "; ".join(each.told for each in objections) or None,
    }


def _group_result(result: Result | None, group_id: str) -> str | None:
    return (result.groups.get(group_id, "not executed") or "executed") if result else None


def _sums(changes: Collection[Change], deleted_groups: Collection[str], deleted: str = "to be deleted") -> str:
    """Return how many offsets move, how many messages that skips or repeats, and how many offsets and groups go."""
    moved, gone = ([each for each in changes if (each.new is None) is is_gone] for is_gone in (False, True))
    skipped = sum(max(each.distance or 0, 0) for each in moved)
    again = sum(max(-(each.distance or 0), 0) if each.read_again is None else each.read_again for each in moved)
    parts = (
        [f"{_offsets_and_groups(moved)}: {counted(skipped, 'message')} skipped, {again} read again"] if moved else []
    )
    if deleted_groups:
        parts.append(f"{counted(len(deleted_groups), 'group')} {deleted}, with {counted(len(gone), 'offset')}")
    elif gone:
        parts.append(f"{_offsets_and_groups(gone)} {deleted}")
    return "; ".join(parts) or "0 offsets"


def _offsets_and_groups(changes: Collection[Change]) -> str:
    groups = len({each.group_id for each in changes})
    return f"{counted(len(changes), 'offset')} of {counted(groups, 'group')}"


def _sentence(objection: Objection) -> str:
    place = f" {objection.place[0]}-{objection.place[1]}" if objection.place else ""
    overrule = f" (--despite {objection.kind} overrules this)" if objection.kind in JUDGED_BY_OPERATOR else ""
    return f"Objection: group '{objection.group_id}'{place}: {objection.told}{overrule}"
