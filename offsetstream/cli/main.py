"""The command `offsetstream`: finds its subcommands, and ends every error in one line and an exit code."""

from __future__ import annotations

import errno
import sys
from importlib import import_module
from typing import Any

import click

from offsetstream.cli.descriptors import flush_answers, hold_standard_descriptors
from offsetstream.cli.output import require_stdout
from offsetstream.cli.tell import tell
from offsetstream.embedded.file_names import start_java_in_utf8
from offsetstream.errors import MissingPackageError, OffsetstreamError, first_line, is_interrupt
from offsetstream.settings.databricks import is_databricks
from offsetstream.version import __version__

_ENVIRONMENT_PREFIX = "OFFSETSTREAM"
SETTINGS = {"auto_envvar_prefix": _ENVIRONMENT_PREFIX, "help_option_names": ["-h", "--help"]}
# name: (where it is, what it does). Only the command that is called is imported, so that looking is quick.
SUBCOMMANDS = {
    "run": ("offsetstream.cli.run:run", "Replay __consumer_offsets into Delta tables until stopped."),
    "stop": ("offsetstream.cli.stop:stop", "Stop the job that writes to the tables."),
    "reload": ("offsetstream.cli.reload:reload", "Load offsets partitions anew, in the running job."),
    "maintain": ("offsetstream.cli.maintain:maintain", "Thin the history, compact and vacuum the tables."),
    "config": ("offsetstream.cli.config:config", "Show the settings, and where each comes from."),
    "demo": ("offsetstream.cli.demo:demo", "See it all at work on a broker of its own."),
    "groups": ("offsetstream.cli.groups:groups", "Groups, from the tables: now, then, and what became of them."),
    "offsets": ("offsetstream.cli.offsets:offsets", "Committed offsets, from the tables: likewise."),
    "lag": ("offsetstream.cli.lag:lag", "Show how many messages wait for groups."),
    "partitions": ("offsetstream.cli.partitions:partitions", "Show how far each offsets partition is replayed."),
    "coordinator": ("offsetstream.cli.coordinator:coordinator", "Show which broker serves a group."),
    "topics": ("offsetstream.cli.topics:topics", "Topics of the live cluster, and the groups that read them."),
    "peek": ("offsetstream.cli.peek:peek", "Show the next records that a group would read."),
    "decode": ("offsetstream.cli.decode:decode", "Decode records from lines of JSON."),
    "encode": ("offsetstream.cli.encode:encode", "Encode decoded records again, as any release would."),
    "dump": ("offsetstream.cli.dump:dump", "Print the records of a cluster, or of log segments."),
    "replay": (
        "offsetstream.cli.replay:replay",
        "Print the groups and offsets that log files amount to.",
    ),
    "report": ("offsetstream.cli.report:report", "Write one page of what became of the groups."),
    "sql": ("offsetstream.cli.sql:sql", "Ask the tables and views by SQL, and change nothing."),
    "views": ("offsetstream.cli.views:views", "Answers in SQL: list the views, create them in a catalog."),
    "verify": ("offsetstream.cli.verify:verify", "Compare the tables with the live cluster."),
    "partition-for": ("offsetstream.cli.partition_for:partition_for", "Print the offsets partition of a group."),
}

# The extra that brings a package (pyproject.toml), and of a command that needs more than Kafka's client, the one that
# suffices.
_EXTRAS = {
    **dict.fromkeys(("confluent_kafka", "cryptography", "javaproperties"), "cluster"),
    **dict.fromkeys(
        ("delta", "pandas", "prometheus_client", "py4j", "pydantic", "pydantic_settings", "pyspark"), "spark"
    ),
    **dict.fromkeys(("jinja2", "markupsafe", "vl_convert"), "report"),
    "aws_msk_iam_sasl_signer": "msk",
}
_SUFFICES = {
    "demo": "all",
    **dict.fromkeys(("dump", "lag", "offsets list", "partitions", "peek", "verify"), "spark"),
}


class OneLineErrors(click.Command):
    """A command whose errors of ours become one line on stderr and their exit code."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the options; some, as --help, print."""
        try:
            return super().make_context(*args, **kwargs)
        except (OffsetstreamError, OSError) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise
            tell(f"Error: {first_line(error)}")
            raise click.exceptions.Exit(getattr(error, "exit_code", OffsetstreamError.exit_code)) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (OffsetstreamError, ModuleNotFoundError) as error:
            known = (
                missing_package(error, _path(ctx, ctx.invoked_subcommand))
                if isinstance(error, ModuleNotFoundError)
                else error
            )
            tell(f"Error: {' '.join(str(known).splitlines())}")
            ctx.exit(known.exit_code)
        except Exception as error:
            if is_interrupt(error):
                raise KeyboardInterrupt from error
            if not is_of_storage(error):
                raise
            tell(f"Error: {first_line(error)}")
            ctx.exit(OffsetstreamError.exit_code)


def missing_package(error: ModuleNotFoundError, path: str) -> OffsetstreamError:
    """Return the error that names the extra which suffices for the command; raise what no extra brings."""
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRAS:
        raise error
    extra = _EXTRAS[package]
    if extra in {"cluster", "spark"}:
        extra = _SUFFICES.get(path, extra)
    return MissingPackageError(package, "databricks" if extra == "spark" and is_databricks() else extra)


def _path(ctx: click.Context | None, subcommand: str | None) -> str:
    names = [subcommand]
    while ctx is not None and ctx.parent is not None:
        names.append(ctx.info_name)
        ctx = ctx.parent
    return " ".join(filter(None, reversed(names)))


def is_of_storage(error: Exception) -> bool:
    """Whether a file system has refused, or DuckDB what it found there: no room, no right, no answer, no Parquet."""
    if isinstance(error, OSError):
        return error.errno != errno.EPIPE  # which click ends quietly
    duckdb = sys.modules.get("duckdb")  # not imported for this: --help is quick
    return duckdb is not None and isinstance(error, duckdb.Error)


class LazyGroup(OneLineErrors, click.Group):
    """A group whose subcommands are imported when they are called (click's documented recipe)."""

    def __init__(self, *args: Any, lazy_subcommands: dict[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy_subcommands = lazy_subcommands

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run as a program does."""
        hold_standard_descriptors()
        try:
            return super().main(*args, **kwargs)
        except SystemExit as ended:
            error = flush_answers()
            if error is None or error.errno == errno.EPIPE or ended.code:
                raise
            tell(f"Error: {first_line(error)}")
            raise SystemExit(OffsetstreamError.exit_code) from error

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order in which the help shows them."""
        return list(self.lazy_subcommands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the subcommand; its options are also read from OFFSETSTREAM_<OPTION>."""
        if cmd_name not in self.lazy_subcommands:
            return None
        module, _, name = self.lazy_subcommands[cmd_name][0].partition(":")
        try:
            command: click.Command = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            raise missing_package(error, _path(ctx, cmd_name)) from None
        if ctx.parent is None and not isinstance(command, click.Group):
            command.context_settings.setdefault("auto_envvar_prefix", _ENVIRONMENT_PREFIX)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in self.lazy_subcommands.items()])


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        require_stdout()
        click.echo(f"offsetstream {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    lazy_subcommands=SUBCOMMANDS,
    context_settings=SETTINGS,
    epilog="""\b
Examples:
  offsetstream demo
  offsetstream run --bootstrap-server localhost:9092 --tables tables
  offsetstream groups describe --group my-group

Options may also be given by the environment: --tables as OFFSETSTREAM_TABLES, --bootstrap-server as
OFFSETSTREAM_BOOTSTRAP_SERVER.

Exit codes: 0 yes, 1 difference, not found or failed, 2 wrong usage, 3 the cluster could not be asked,
4 a group is not well (groups status).""",
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
    """Kafka's consumer-group state, replayed from __consumer_offsets into Delta tables."""
    start_java_in_utf8()
