"""The command `offsetstream`: loads its subcommands, and turns every error into one line and an exit code."""

from __future__ import annotations

import errno
from importlib import import_module
from typing import Any

import click

from offsetstream.cli.failures import (
    OneLineErrors,
    command_path,
    missing_package,
)
from offsetstream.cli.output import require_stdout
from offsetstream.cli.process import end_quietly, flush_answers, hold_standard_descriptors
from offsetstream.cli.text import print_line
from offsetstream.embedded.file_names import start_java_in_utf8
from offsetstream.errors import OffsetstreamError, first_line
from offsetstream.version import __version__

_ENVIRONMENT_PREFIX = "OFFSETSTREAM"
SETTINGS = {
    "auto_envvar_prefix": _ENVIRONMENT_PREFIX,
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,  # columns of help, where the terminal has as many
}
# By section of the help: the name of each command, its place, and its summary. Only the called command is imported:
# importing all takes seconds.
SUBCOMMANDS = {
    "Run it": {
        "demo": ("offsetstream.cli.demo:demo", "Run the whole pipeline on a temporary local Kafka."),
        "run": ("offsetstream.cli.run:run", "Replay __consumer_offsets into Delta tables until stopped."),
        "stop": ("offsetstream.cli.job:stop", "Stop the running job after its current batch."),
        "reload": ("offsetstream.cli.job:reload", "Reload offsets partitions in the running job."),
        "maintain": ("offsetstream.cli.maintain:maintain", "Compact and vacuum the tables, and thin old history."),
        "repair": ("offsetstream.cli.repair:repair", "Find damaged files of the tables, and repair the tables."),
        "config": ("offsetstream.cli.config:config", "Show each setting and where its value comes from."),
    },
    "Ask it": {
        "groups": (
            "offsetstream.cli.main:groups",
            "List and describe groups; find what is wrong and why.",
        ),
        "offsets": ("offsetstream.cli.main:offsets", "List committed offsets; find who moved them; set them."),
        "lag": ("offsetstream.cli.lag:lag", "Show lag in messages and in time."),
        "report": ("offsetstream.cli.report:report", "Write one HTML page with what is wrong and why."),
        "sql": ("offsetstream.cli.sql:sql", "Query all tables and views with SQL, read-only."),
        "partitions": ("offsetstream.cli.partitions:partitions", "Show how far each offsets partition is replayed."),
        "coordinator": ("offsetstream.cli.coordinator:coordinator", "Show which broker serves a group."),
        "views": ("offsetstream.cli.views:views", "List the SQL views, create them in a catalog, serve JDBC."),
    },
    "Ask the live cluster, or change it (also: offsets reset, groups delete)": {
        "topics": ("offsetstream.cli.topics:topics", "Describe topics and the groups that read them."),
        "peek": ("offsetstream.cli.peek:peek", "Show the next records that a group would read."),
        "verify": ("offsetstream.cli.verify:verify", "Check the tables against the live cluster."),
    },
    "Without a cluster": {
        "load": ("offsetstream.cli.load:load", "Load log segments into tables of their own."),
        "replay": ("offsetstream.cli.replay:replay", "Rebuild groups and offsets from log segments."),
        "dump": ("offsetstream.cli.dump:dump", "Print the records of log segments, or of a cluster."),
        "decode": ("offsetstream.cli.lines:decode", "Decode records from lines of JSON."),
        "encode": ("offsetstream.cli.lines:encode", "Encode decoded records as a Kafka release writes them."),
        "partition-for": ("offsetstream.cli.coordinator:partition_for", "Print the offsets partition of a group."),
    },
}

_OF_GROUPS = {
    "Ask the tables": {
        "list": ("offsetstream.cli.groups:list_groups", "List groups with their type and state."),
        "describe": ("offsetstream.cli.describe:describe_groups", "Describe groups as Kafka's own tool does."),
        "status": ("offsetstream.cli.groups:status", "Show which groups have trouble, the worst first, and why."),
        "rebalances": ("offsetstream.cli.group_history:rebalances", "Show rebalances: who joined, who left, how long."),
        "history": ("offsetstream.cli.group_history:group_history", "Show each change of a group and its members."),
    },
    "Change the cluster (a dry run unless --execute)": {
        "delete": ("offsetstream.cli.change_offsets:delete_groups", "Delete groups."),
    },
}
_OF_OFFSETS = {
    "Ask the tables": {
        "list": ("offsetstream.cli.offsets:list_offsets", "List committed offsets."),
        "history": ("offsetstream.cli.offset_history:history", "Show each commit and how far it moved the offset."),
        "audit": ("offsetstream.cli.offset_history:audit", "Show who moved offsets, and who lost messages."),
        "expiring": (
            "offsetstream.cli.offsets:expiring",
            "Show which offsets will expire, and when.",
        ),
        "orphans": ("offsetstream.cli.offsets:orphans", "Show offsets that no consumer can use."),
        "export": ("offsetstream.cli.export:export", "Write offsets to a file for Kafka's own tool."),
    },
    "Change the cluster (a dry run unless --execute)": {
        "reset": ("offsetstream.cli.change_offsets:reset", "Set committed offsets of groups."),
        "undo": ("offsetstream.cli.change_offsets:undo", "Undo a reset, an import or a deletion."),
        "delete": ("offsetstream.cli.change_offsets:delete_offsets", "Delete committed offsets of a group."),
        "import": ("offsetstream.cli.change_offsets:import_offsets", "Commit offsets that another cluster exported."),
    },
}


class LazyGroup(OneLineErrors, click.Group):
    """A group that imports a subcommand when it is called (click's documented recipe)."""

    def __init__(self, *args: Any, sections: dict[str, dict[str, tuple[str, str]]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self.lazy_subcommands = {name: place for each in sections.values() for name, (place, _) in each.items()}

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run as the program: guard the standard descriptors, and flush output at the end."""
        hold_standard_descriptors()
        try:
            return super().main(*args, **kwargs)
        except SystemExit as ended:
            error = flush_answers()
            if error is not None and error.errno != errno.EPIPE and not ended.code:
                print_line(f"Error: {first_line(error)}")
                ended.code = OffsetstreamError.exit_code
            end_quietly(ended)
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of the help."""
        return list(self.lazy_subcommands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the subcommand; for an unknown one, the error names the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            if alike := get_close_matches(args[0], self.lazy_subcommands, 1):
                raise click.UsageError(f"{error.message} Did you mean {alike[0]}?", ctx) from None
            raise

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the subcommand. Its options also come from OFFSETSTREAM_<OPTION>."""
        if cmd_name not in self.lazy_subcommands:
            return None
        module, _, name = self.lazy_subcommands[cmd_name].partition(":")
        try:
            command: click.Command = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            raise missing_package(error, command_path(ctx, cmd_name)) from None
        if ctx.parent is None and not isinstance(command, click.Group):
            command.context_settings.setdefault("auto_envvar_prefix", _ENVIRONMENT_PREFIX)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of subcommands from `sections`, without importing them."""
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:13}", summary) for name, (_, summary) in commands.items()])


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        require_stdout()
        click.echo(f"offsetstream {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    sections=SUBCOMMANDS,
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  offsetstream demo
  offsetstream run --bootstrap-server localhost:9092 --tables tables
  offsetstream groups status --tables tables
  offsetstream lag --all-groups --tables tables
  offsetstream report --file report.html --tables tables

Options can also come from the environment (--tables: OFFSETSTREAM_TABLES, --bootstrap-server:
OFFSETSTREAM_BOOTSTRAP_SERVER) and from a TOML file (--config).

Exit codes: 0 success; 1 difference, not found, or failed; 2 wrong usage; 3 the cluster did not answer;
4 a group has trouble; 5 no known trouble, but the samples of some groups are too old (groups status).""",
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    callback=_print_version,
    expose_value=False,
    is_eager=True,
    help="Show the version.",
)
def main() -> None:
    """Replay Kafka's consumer-group state from __consumer_offsets into Delta tables, and query it."""
    start_java_in_utf8()


@click.group(cls=LazyGroup, sections=_OF_GROUPS)
def groups() -> None:
    """List and describe consumer groups, now or at any past time, and find out what happened to them."""


@click.group(cls=LazyGroup, sections=_OF_OFFSETS)
def offsets() -> None:
    """List committed offsets, now or at any past time; find who moved them; set them."""
