"""The settings file of a command: it fills the options, and `--all-clusters` asks each of its clusters.

Then a look-up queries one cluster after the other, and prints all rows as one answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from offsetstream.cli.age import NOT_OK
from offsetstream.cli.failures import is_storage_error
from offsetstream.cli.options import FILE, GATHERED, Command, Value, read_pairs
from offsetstream.cli.output import Block, Blocks, Closing, Column, Output, Row, all_columns, merge_blocks
from offsetstream.cli.text import prefix_lines, print_line
from offsetstream.errors import OffsetstreamError, UsageError, first_line, is_interrupt
from offsetstream.settings import kinds, schema
from offsetstream.settings.config_file import ConfigFile, Key
from offsetstream.settings.schema import PREFIX

if TYPE_CHECKING:
    from offsetstream.tables.store import Store

ALL_CLUSTERS = "--all-clusters"
# Keys of a context's meta: the options that select the file, what fills the context with a cluster's settings, and the
# selected clusters.
_GIVEN, _FILL, _ASKED = f"{__name__}.given", f"{__name__}.fill", f"{__name__}.asked"
_PER_CLUSTER = ("tables", "checkpoint", "bootstrap_server", "metrics_port")
_EXPLICIT = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
CLUSTER = Column("cluster", "CLUSTER", 10)
_FAILED = 1
# Options of the combined answer: a cluster's section cannot change them.
_COMMON = ("output_format", "output_file", "raw", "wide", "no_pager")


def config_option(
    command_name: str, ignored: tuple[str, ...] = (), *, is_lookup: bool = False
) -> Callable[[Command], Command]:
    """Add `--config`, whose file has a table `command_name` for the command (`groups.list` for a subcommand).

    Also add `--cluster`, which selects a section `clusters.NAME` of the file, and for look-ups `--all-clusters`: a
    look-up prints rows, and runs for one cluster after the other (`sql` reads the tables of all at once). Flags and the
    environment win over the file, as with click's default_map. `ignored` are keys that the table may have and this
    command does not use.
    """
    has_all = is_lookup or command_name == "sql"

    def take(ctx: click.Context, option: click.Parameter, value: Any) -> None:
        """Read the file after the last of these eager options: click handles them one by one."""
        given = ctx.meta.setdefault(_GIVEN, {})
        given[option.name] = value
        if len(given) < (3 if has_all else 2):
            return
        del ctx.meta[_GIVEN]
        has_flag, cluster = given.get("all_clusters"), given["cluster"]
        ctx.meta[_FILL] = partial(_fill, ctx, command_name, ignored, given["config"])
        file = ctx.meta[_FILL](None if has_flag else cluster)
        named = cluster if ctx.get_parameter_source("cluster") is ParameterSource.COMMANDLINE else None
        ctx.meta[_ASKED] = clusters_of(ctx, file, named) if has_flag else ()

    def add(command: Command) -> Command:
        eager: dict[str, Any] = {"is_eager": True, "expose_value": False, "callback": take}
        options = [
            click.option(
                "--config",
                metavar="FILE",
                envvar=schema.CONFIG_VARIABLE,
                help="Read settings from this TOML file; flags and environment win.",
                **eager,
            ),
            click.option(
                "--cluster",
                metavar="NAME",
                envvar=schema.CLUSTER_VARIABLE,
                help="Use the section clusters.NAME of the file.",
                **eager,
            ),
        ]
        if is_lookup:
            command = _over_all(command)
        if has_all:
            options.append(
                click.option(
                    ALL_CLUSTERS,
                    is_flag=True,
                    allow_from_autoenv=False,
                    help="Ask all clusters of the file; adds a column CLUSTER.",
                    **eager,
                )
            )
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _fill(
    ctx: click.Context, command_name: str, ignored: tuple[str, ...], path: str | None, cluster: str | None
) -> ConfigFile:
    """Set the context's defaults from the file, with the cluster's values; return the file."""
    file = ConfigFile.read(path, cluster)
    ctx.meta[FILE] = file
    options = configurable(ctx.command)
    values = file.values(command_name, {key: _key(option) for key, option in options.items()}, ignored)
    defaults: dict[str, Any] = {}
    for key, value in values.items():
        option = options[key]
        given = [f"{name}={text}" for name, text in value.items()] if isinstance(value, dict) else value
        try:
            option.type_cast_value(ctx, given)
        except click.BadParameter as error:
            raise UsageError(f"{file.path}: {command_name}.{key}: {error.message}") from error
        defaults[str(option.name)] = given
    ctx.default_map = defaults
    return file


def configurable(command: click.Command) -> dict[str, click.Option]:
    """Return the options that a settings file may set, by their keys: those that no other option shares a name with.

    An option that no variable may set, such as --execute, cannot come from a file either: the user gives it each time.
    """
    given = [each for each in command.params if isinstance(each, click.Option)]
    options = [each for each in given if not each.is_eager and each.allow_from_autoenv]
    names = [each.name for each in options]
    return {each.opts[0].removeprefix("--"): each for each in options if names.count(each.name) == 1}


def _key(option: click.Option) -> Key:
    kind = option.type
    if option.callback is read_pairs:
        return Key(kinds.PAIRS.toml, kinds.PAIRS.name)
    if isinstance(kind, Value):
        key = Key(kind.kind.toml, kind.name)
    else:
        key = Key.of(bool if option.is_flag else int if isinstance(kind, click.types.IntParamType) else str)
    return key.listed() if option.multiple else key


def _over_all(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a look-up so that it runs for each cluster if `--all-clusters` is given."""

    @wraps(command)
    def run(**options: Any) -> None:
        clusters = asked_clusters()
        if not clusters:
            command(**options)
            return
        _query_all_clusters(click.get_current_context(), command, clusters)

    return run


def asked_clusters() -> dict[str, Callable[[], object]]:
    """Return by cluster a function that fills the context with its settings; empty without `--all-clusters`."""
    meta = click.get_current_context().meta
    return {name: partial(meta[_FILL], name) for name in meta.get(_ASKED, ())}


def clusters_of(ctx: click.Context, file: ConfigFile, cluster: object) -> tuple[str, ...]:
    """Return the names of all clusters of a file. Raises click's UsageError if it has none, or a flag names one."""
    if cluster:
        raise click.UsageError(f"give {ALL_CLUSTERS} or --cluster, not both", ctx)
    if not file.clusters:
        reason = f"{file.path} has none" if file.path else "name a settings file by --config"
        raise click.UsageError(f"{ALL_CLUSTERS} reads the clusters of a settings file: {reason}", ctx)
    return file.clusters


def _is_explicit(ctx: click.Context, name: str) -> bool:
    """Return whether a flag or an environment variable gave an option its value."""
    return ctx.get_parameter_source(name) in _EXPLICIT


def require_from_file(ctx: click.Context) -> None:
    """Raise UsageError if a flag or variable gives all clusters one value of an option that each needs for itself."""
    for name in _PER_CLUSTER:
        if ctx.params.get(name) and _is_explicit(ctx, name):
            flag = f"--{name.replace('_', '-')}"
            by_flag = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
            given = flag if by_flag else f"{PREFIX}{name.upper()}"
            raise UsageError(f"{ALL_CLUSTERS} takes {flag} of each cluster from the file: remove {given}")


def _query_all_clusters(ctx: click.Context, ask: Command, clusters: Mapping[str, Callable[[], object]]) -> None:
    """Query each cluster, print the combined answer, and exit with the worst exit code; with `--watch`, repeat.

    `clusters` has for each name a function that fills the context with that cluster's settings. A cluster that cannot
    be queried gives one error line and exit code 1; the answer has the others. Raise UsageError if the user names
    tables for all clusters.
    """
    require_from_file(ctx)
    watch = ctx.params.get("watch")
    try:
        while True:
            gathered = Gathered()
            ctx.meta[GATHERED] = gathered
            codes = {_ask(ctx, ask, name, fill, gathered) for name, fill in clusters.items()}
            gathered.print(is_watched=watch is not None)
            if watch is None:
                ctx.exit(_worst(codes))
            time.sleep(watch)
    except (KeyboardInterrupt, RuntimeError) as error:
        if watch is None or not is_interrupt(error):
            raise


def stores_of(ctx: click.Context, clusters: Mapping[str, Callable[[], object]]) -> dict[str, Store]:
    """Return the tables of each cluster. Raise UsageError if the user names tables for all clusters."""
    from offsetstream.tables.location import store_at

    require_from_file(ctx)
    stores = {}
    for name, fill in clusters.items():
        fill()
        stores[name] = store_at(_options_of(ctx)["tables"])
    return stores


def _ask(ctx: click.Context, ask: Command, name: str, fill: Callable[[], object], gathered: Gathered) -> int:
    """Query one cluster, and return its exit code."""
    gathered.cluster = name
    fill()
    options = _options_of(ctx)
    with prefix_lines(name):
        try:
            ask(**options)
        except click.exceptions.Exit as exited:
            return exited.exit_code
        except UsageError:
            raise
        except OffsetstreamError as error:
            print_line(f"Error: {first_line(error)}")
            return error.exit_code
        except Exception as error:
            if is_interrupt(error) or not is_storage_error(error):
                raise
            print_line(f"Error: {first_line(error)}")
            return OffsetstreamError.exit_code
    return 0


def _worst(codes: set[int]) -> int:
    """Return the worst exit code: known trouble (4), then a failure (1), then the others."""
    return max(codes, key=lambda code: (code == NOT_OK, code == _FAILED, code), default=0)


def _options_of(ctx: click.Context) -> dict[str, Any]:
    """Return the values of the options, with the cluster's values from the file."""
    options, from_file = dict(ctx.params), ctx.default_map or {}
    for option in configurable(ctx.command).values():
        name = str(option.name)
        if name in from_file and name not in _COMMON and not _is_explicit(ctx, name):
            options[name] = option.process_value(ctx, from_file[name])
    if "watch" in options:
        options["watch"] = None
    return options


@dataclass
class Part:
    """The answer of one cluster."""

    cluster: str
    blocks: list[Block]
    closing: str | None


@dataclass
class Gathered:
    """The answers so far, and the current cluster. All rows are in memory."""

    cluster: str = ""
    parts: list[Part] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    is_table: bool = True
    order: str | None = None  # of the rows of a table

    def collecting_output(self, output: Output) -> Output:
        """Return an Output that collects the answer instead of printing it to `output`."""
        self.outputs.append(output)
        return _Gathering(self, output)

    def print(self, *, is_watched: bool) -> None:
        """Print all answers as one table, or as blocks. The outputs are all alike; the last one prints."""
        if not self.parts:
            return
        output = self.outputs[-1]
        if is_watched:
            output.pager = False
            output.clear()
        blocks = [_with_cluster(part.cluster, block) for part in self.parts for block in part.blocks]
        if not self.is_table:
            output.blocks(merge_blocks(blocks))
        elif blocks:
            output.table(all_columns(blocks), [row for block in blocks for row in block.rows], order=self.order)
        for part in self.parts:
            if part.closing is not None:
                print_line(f"{part.cluster}: {part.closing}", err=not (output.is_text and output.file is None))


class _Gathering(Output):
    """An Output that keeps the answer of a cluster until all have answered."""

    def __init__(self, gathered: Gathered, output: Output) -> None:
        super().__init__(output.output_format, output.file)
        self._gathered = gathered

    def table(
        self, columns: Sequence[Column], rows: Iterable[Row], *, order: str | None = None, closing: Closing = None
    ) -> None:
        """Keep the table. Read its rows now: the caller reports missing names after this call."""
        self._gathered.order = order
        self._keep([Block(columns, list(rows))], closing)

    def blocks(self, blocks: Iterable[Blocks], *, closing: Closing = None) -> None:
        """Keep the blocks."""
        self._gathered.is_table = False
        self._keep([block for some in blocks for block in some.each()], closing)

    def _keep(self, blocks: list[Block], closing: Closing) -> None:
        sentence = closing() if callable(closing) else closing
        self._gathered.parts.append(Part(self._gathered.cluster, blocks, sentence))


def _with_cluster(cluster: str, block: Block) -> Block:
    return Block((CLUSTER, *block.columns), [{**row, CLUSTER.name: cluster} for row in block.rows])
