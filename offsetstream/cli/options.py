"""Options of commands: made from declared settings, or shared by many commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from offsetstream.cli.output import Chosen, Output
from offsetstream.cli.text import ParamType
from offsetstream.errors import UsageError
from offsetstream.settings import kinds, schema
from offsetstream.settings.config_file import ConfigFile
from offsetstream.settings.places import is_databricks
from offsetstream.settings.schema import Setting, Settings, settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from offsetstream.cluster.client import Cluster
    from offsetstream.cluster.reading import Reading
    from offsetstream.tables.store import Store

    Asked = TypeVar("Asked", bound=Cluster)

Command = Callable[..., None]
_LIVE_SERVER = "Connect to the live cluster at this broker."
# Keys of a context's meta: the settings file, and the collector of clusters' answers.
FILE, GATHERED = f"{__name__}.file", f"{__name__}.gathered"


class Value(ParamType[Any]):
    """A parameter type for a kind of value."""

    def __init__(self, kind: kinds.Kind) -> None:
        self.kind = kind
        self.name = kind.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the value."""
        try:
            return self.kind.read(value)
        except ValueError as error:
            return self.fail(str(error), param, ctx)


SECONDS, PAUSE, BROKERS = Value(kinds.SECONDS), Value(kinds.PAUSE), Value(kinds.BROKERS)


def typed_flags(names: Iterable[str]) -> list[str]:
    """Return the flags of those options that were typed: neither the environment nor a file gave them."""
    source = click.get_current_context().get_parameter_source
    return [f"--{name.replace('_', '-')}" for name in names if source(name) is ParameterSource.COMMANDLINE]


def settings_options(declared: type[Settings], excluded: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Add an option for each setting whose name is not in `excluded`."""

    def add(command: Command) -> Command:
        for setting in reversed(settings_of(declared)):
            if setting.name not in excluded:
                command = _option(setting)(command)
        return command

    return add


def _option(setting: Setting) -> Callable[[Command], Command]:
    flag, default = f"--{setting.key}", setting.default
    attributes: dict[str, Any] = {"help": setting.option.help, "envvar": setting.variable}
    if setting.type is bool:
        flags = f"{flag}/--no-{setting.key}" if default else flag
        return click.option(flags, setting.name, is_flag=True, default=default, show_default=default, **attributes)
    if setting.option.kind is kinds.PAIRS:
        return click.option(
            flag, setting.name, multiple=True, callback=read_pairs, metavar=setting.option.metavar, **attributes
        )
    kind = _type(setting)
    if setting.is_list:
        return click.option(flag, setting.name, multiple=True, type=kind, metavar=setting.option.metavar, **attributes)
    if not setting.is_required:
        attributes |= {"default": _written(kind, default), "show_default": default is not None}
    return click.option(
        flag, setting.name, required=setting.is_required, type=kind, metavar=setting.option.metavar, **attributes
    )


def _type(setting: Setting) -> click.ParamType[Any]:
    if setting.option.kind is not None:
        return Value(setting.option.kind)
    if setting.choices is not None:
        return click.Choice(setting.choices)
    return click.IntRange(min=setting.option.minimum) if setting.type is int else click.STRING


def written(option: click.Option, value: Any) -> Any:
    """Return a value of the option in the form that a user writes."""
    return _written(option.type, value)


def _written(kind: click.ParamType[Any], value: Any) -> Any:
    return kind.kind.write(value) if isinstance(kind, Value) and value is not None else value


def read_pairs(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Read the values KEY=VALUE of an option. Raise click's BadParameter for another form."""
    try:
        pairs: dict[str, str] = kinds.PAIRS.read(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return pairs


def client_properties(command_config: str | None) -> dict[str, str]:
    """Return Kafka client properties from the file of `--command-config`, else from the settings file."""
    from offsetstream.cluster.properties import read_properties

    return read_properties(command_config, properties_of_config(click.get_current_context()))


def require_server(bootstrap_server: str | None, who: str = "this command") -> str:
    """Return the broker to connect to. Raise UsageError if none is named; `who` reads the live cluster."""
    if bootstrap_server is None:
        raise UsageError(f"{who} reads the live cluster: name a broker by --bootstrap-server")
    return bootstrap_server


def connect_to_tables_cluster(
    asked: type[Asked], tables: Store, bootstrap_server: str, command_config: str | None
) -> Asked:
    """Return an `asked` for the cluster at the address. Raise TablesError if the tables are of another cluster."""
    from offsetstream.tables.create import require_cluster

    cluster = asked(bootstrap_server, client_properties(command_config))
    require_cluster(tables, cluster.cluster_id())
    return cluster


def properties_of_config(ctx: click.Context) -> dict[str, str]:
    """Return the Kafka client properties in the settings file."""
    file: ConfigFile | None = ctx.meta.get(FILE)
    return {} if file is None else file.kafka


def file_of_config(ctx: click.Context) -> ConfigFile:
    """Return the settings file, with the values of the selected cluster."""
    file: ConfigFile = ctx.meta[FILE]
    return file


def shared_option(name: str, option: schema.Option, *, default: str | None = None) -> Callable[[Command], Command]:
    """Add a declared option that many commands share."""
    return _option(Setting(name, str, default, option))


tables_option = shared_option("tables", schema.TABLES, default="tables")


max_age_option = shared_option("max_age", schema.MAX_AGE)  # in seconds; infinite for 'none'


def timeout_option(command: Command) -> Command:
    """Add `--timeout`, in seconds."""
    return _option(Setting("timeout", float, 300.0, schema.TIMEOUT))(command)


def cluster_options(command: Command) -> Command:
    """Add `--bootstrap-server` and `--command-config`; both are optional."""
    server = shared_option("bootstrap_server", replace(schema.BOOTSTRAP_SERVER, help=_LIVE_SERVER))
    config = shared_option("command_config", schema.COMMAND_CONFIG)
    return server(config(command))


def spark_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--master` and `--conf`, the arguments of `own_spark`."""
    return shared_option("master", schema.MASTER)(shared_option("conf", schema.CONF)(command))


@contextmanager
def open_with_spark(tables: str, session: Callable[[], AbstractContextManager[SparkSession]]) -> Iterator[Store]:
    """Yield the tables, in a Spark session if they need one."""
    from offsetstream.tables.location import store_at

    store = store_at(tables)
    if store.needs_spark:
        with session() as spark:
            yield store.read_by(spark)
    else:
        yield store


@contextmanager
def own_spark(master: str | None, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a Spark session: one that starts and stops here, or the session of Databricks."""
    from offsetstream.spark.failures import explain_ended_java
    from offsetstream.spark.local import LocalSpark
    from offsetstream.spark.session import launchers_session

    session = launchers_session() if is_databricks() else LocalSpark(master, conf).running()
    with explain_ended_java(), session as spark:
        yield spark


def output_options(command: Command) -> Command:
    """Add `--output`, `--file`, `--raw`, `--wide` and `--no-pager`, which `output_of` reads."""
    options = [
        click.option(
            "--output",
            "output_format",
            type=click.Choice(["text", "json", "csv"]),
            default="text",
            show_default=True,
            envvar="OFFSETSTREAM_OUTPUT",
            help="Set the format; JSON and CSV have more columns.",
        ),
        click.option(
            "--file",
            "output_file",
            metavar="FILE",
            envvar="OFFSETSTREAM_FILE",
            help="Write to this file (default, or -: stdout).",
        ),
        click.option(
            "--raw",
            is_flag=True,
            envvar="OFFSETSTREAM_RAW",
            help="Do not put ' before CSV values that look like formulas.",
        ),
        click.option(
            "--wide", is_flag=True, envvar="OFFSETSTREAM_WIDE", help="Cut no cell to the width of the terminal."
        ),
        click.option(
            "--no-pager",
            is_flag=True,
            envvar="OFFSETSTREAM_NO_PAGER",
            help="Do not show a long answer in a pager (OFFSETSTREAM_PAGER, PAGER, or less).",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def row_options(command: Command, names: Sequence[str] = ()) -> Command:
    """Add `--sort` and `--limit` to `output_options`, for look-ups. `names`: the columns that a shell completes."""
    sort = click.option(
        "--sort",
        allow_from_autoenv=False,
        metavar="COLUMN[:desc]",
        shell_complete=lambda _, __, typed: [name for name in names if name.startswith(typed)],
        help="Sort by this column, named as in text or JSON; rows without a value come last.",
    )
    limit = click.option(
        "--limit",
        type=click.IntRange(min=1),
        allow_from_autoenv=False,
        metavar="N",
        help="Show only the first N rows.",
    )
    return sort(limit(output_options(command)))


def output_of(options: dict[str, Any]) -> Output:
    """Remove the options of `output_options` and `row_options` from `options` and return their Output."""
    file = options.pop("output_file")
    output = Output(
        options.pop("output_format"),
        None if file == "-" else file,
        raw=options.pop("raw"),
        wide=options.pop("wide"),
        pager=not options.pop("no_pager"),
        chosen=Chosen(options.pop("sort", None), options.pop("limit", None)),
    )
    gathered = click.get_current_context().meta.get(GATHERED)
    return output if gathered is None else gathered.collecting_output(output)


UNREACHABLE = 3  # exit code: a broker does not answer
_READING_TIMEOUT = 30.0
# Errors of brokers that do not answer now, but may later.
_TEMPORARY = {"COORDINATOR_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE", "NETWORK_EXCEPTION", "REQUEST_TIMED_OUT"}


def isolation_option(command: Command) -> Command:
    """Add `--isolation-level`."""
    return click.option(
        "--isolation-level",
        type=click.Choice(["read_committed", "read_uncommitted"]),
        default="read_committed",
        show_default=True,
        help="Isolation level, as for consumers: read_committed skips open and aborted transactions.",
    )(command)


def reading_timeout_option(command: Command) -> Command:
    """Add `--timeout`, in seconds: how long to wait for partitions to answer."""
    return click.option(
        "--timeout",
        type=SECONDS,
        default=_READING_TIMEOUT,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for answers, in seconds.",
    )(command)


def is_unreachable(error: str | None) -> bool:
    """Return whether an error, by Kafka's name, means that a broker is missing or does not answer."""
    return error in _TEMPORARY


def no_record_reason(topic: str, reading: Reading) -> str | None:
    """Return why there is no record to read, as text; None if the log simply ends there."""
    end = reading.end
    if reading.error == "OFFSET_OUT_OF_RANGE" and end is not None:
        return (
            f"OFFSET_OUT_OF_RANGE: the log starts at {end.log_start_offset or 0} and ends at {end.high_watermark}; "
            f"{reading.offset} is not in it"
        )
    if reading.error is not None:
        return reading.error + (f" after {reading.errors} errors" if reading.errors else "")
    if reading.is_blocked and end is not None:
        return (
            f"blocked by an open transaction from offset {end.last_stable_offset} to {end.high_watermark}: "
            f"'partitions --blocked --topic {topic}' names it"
        )
    return None
