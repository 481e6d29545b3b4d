"""What the commands share that change a live cluster: their options, how a plan is shown, and how it is carried out."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from offsetstream.cli.answers import counted
from offsetstream.cli.options import SECONDS, Command, client_properties, cluster_options, tables_option
from offsetstream.cli.output import Output
from offsetstream.cli.own_spark import own_spark, reached, spark_options
from offsetstream.cli.plan_text import done, planned, show_plan
from offsetstream.cli.signals import end_when_asked
from offsetstream.cli.tell import tell
from offsetstream.errors import OffsetstreamError, UsageError
from offsetstream.operations.plan import JUDGED_BY_OPERATOR

if TYPE_CHECKING:
    from offsetstream.cluster.group_admin import GroupAdmin
    from offsetstream.cluster.metadata import MetadataCache
    from offsetstream.operations.plan import Plan
    from offsetstream.tables.store import Store

_READ_ONLY = "OFFSETSTREAM_READ_ONLY"
_TIMEOUT = 30.0
_TOLD_FROM = 20  # groups


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
            type=click.Choice(JUDGED_BY_OPERATOR),
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
    properties: dict[str, str]


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
            yield Session(cluster, admin, store, cluster_id, properties)


def carry_out(output: Output, operator: Operator, found: Session, plan: Plan) -> None:
    """Show the plan, and do it if that is wanted and nothing speaks against it; end with the exit code."""
    skipped = (
        {each.group_id for each in plan.standing_objections(operator.despite)} if operator.skip_objected else set()
    )
    objections, plan = plan.objections, plan.without_groups(skipped)
    standing = plan.standing_objections(operator.despite)
    if not operator.execute or standing or not plan.group_ids:
        show_plan(output, plan, objections, planned(plan, standing))
        click.get_current_context().exit(1 if standing or skipped else 0)
    from offsetstream.operations.execute import execute  # noqa: PLC0415 - only what is asked is imported

    output.require_writable()
    with stopped_between_groups() as is_stopped:
        tick = _ticks(len(plan.group_ids), is_stopped)
        result = execute(found.admin, plan, _folder(operator), _journal(found), tick)
    errors = [each for each in (result.ended_by, result.unrecorded) if each is not None]
    try:
        show_plan(output, plan, objections, done(plan, result), result)
    except (OSError, UsageError) as error:  # a disk or a pipe that is full by now must not hide what was done
        tell(done(plan, result))
        errors.append(OffsetstreamError(f"this could not be written where it was to be: {error}"))
    for each in errors:
        tell(f"Error: {each}")
    if result.unrecorded is not None:
        tell("The table operations does not say how this ended; what was done stands above.")
    code = errors[0].exit_code if errors else 0 if result.status(plan) == "done" and not skipped else 1
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

    return Journal(found.store, found.cluster_id, uuid4().hex[:12], command_line(sys.argv[1:]))


def command_line(arguments: Sequence[str]) -> str:
    """Return what was called, without the values of --conf, which may be secrets of Spark's."""
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
    """Give what tells whether Ctrl-C or SIGTERM came: the group in hand is done to its end. A second one ends it."""
    came = Event()

    def stop() -> None:
        came.set()
        tell("Stopping after the group in hand; once more to stop at once")

    with end_when_asked(stop, once=True):
        try:
            yield came.is_set
        except KeyboardInterrupt:
            tell("Stopped in the midst of a group: 'offsetstream offsets undo' takes back what was done.")
            raise


def _ticks(groups: int, is_stopped: Callable[[], bool]) -> Callable[[str], None]:
    """Return what is called before each group: it tells of long work how far it is, every tenth of it, and may end it.

    It raises OffsetstreamError where the operator has stopped it.
    """
    done = 0

    def tick(_: str) -> None:
        nonlocal done
        if is_stopped():
            raise OffsetstreamError(f"stopped after {done} of {counted(groups, 'group')}: the others are as they were")
        if groups >= _TOLD_FROM and done and not done % (groups // 10):
            tell(f"{done} of {groups} groups")
        done += 1

    return tick
