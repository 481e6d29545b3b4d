"""Shared by the commands that change a live cluster: their options, and how they show and execute a plan."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from offsetstream.cli.messages import counted, print_line
from offsetstream.cli.options import SECONDS, Command, client_properties, cluster_options, tables_option
from offsetstream.cli.output import Output
from offsetstream.cli.own_spark import open_with_spark, own_spark, spark_options
from offsetstream.cli.plan_text import done, planned, show_plan
from offsetstream.cli.signals import stop_on_signal
from offsetstream.errors import OffsetstreamError, UsageError
from offsetstream.operations.plan import JUDGED_BY_OPERATOR

if TYPE_CHECKING:
    from offsetstream.cluster.group_admin import GroupAdmin
    from offsetstream.cluster.metadata import MetadataCache
    from offsetstream.operations.plan import Plan
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
    if operator.bootstrap_server is None:
        raise UsageError("this command needs the live cluster: name a broker by --bootstrap-server")
    from offsetstream.cluster.group_admin import group_admin  # noqa: PLC0415 - slow
    from offsetstream.cluster.metadata import MetadataCache  # noqa: PLC0415 - slow
    from offsetstream.tables.create import require_cluster  # noqa: PLC0415 - slow

    properties = client_properties(operator.command_config)
    cluster = MetadataCache(operator.bootstrap_server, properties)
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
    from offsetstream.operations.execute import changed_since, execute  # noqa: PLC0415 - slow

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
        show_plan(output, plan, objections, done(plan, result), result)
    except (OSError, UsageError) as error:  # a full disk or a closed pipe must not hide the result
        print_line(done(plan, result))
        errors.append(OffsetstreamError(f"cannot write the result: {error}"))
    for each in errors:
        print_line(f"Error: {each}")
    if result.journal_error is not None:
        print_line("The table operations does not record how this ended; the result above is complete.")
    code = errors[0].exit_code if errors else 0 if result.status(plan) == "done" and not skipped else 1
    click.get_current_context().exit(code)


def _folder(operator: Operator) -> Path:
    from offsetstream.operations.undo import default_folder  # noqa: PLC0415 - slow
    from offsetstream.tables.location import parse_tables  # noqa: PLC0415 - slow

    return Path(operator.snapshots) if operator.snapshots else default_folder(parse_tables(operator.tables))


def snapshot_path(operator: Operator, named: str | None) -> Path:
    """Return the named snapshot, else the newest one."""
    from offsetstream.operations.undo import newest_snapshot  # noqa: PLC0415 - slow

    return Path(named) if named else newest_snapshot(_folder(operator))


def _journal(live: Session, operator: Operator) -> Any:
    from offsetstream.operations.journal import HOLD, Journal  # noqa: PLC0415 - slow

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
