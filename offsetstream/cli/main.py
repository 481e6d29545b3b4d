"""The command `offsetstream`: loads its subcommands, and turns every error into one line and an exit code."""

from __future__ import annotations

import errno
from importlib import import_module
from typing import Any

import click

from offsetstream.cli.descriptors import end_quietly, flush_answers, hold_standard_descriptors
from offsetstream.cli.messages import print_line
from offsetstream.cli.output import require_stdout
from offsetstream.cli.unknown_errors import is_of_click, is_storage_error, unknown_error
from offsetstream.embedded.file_names import start_java_in_utf8
from offsetstream.errors import MissingPackageError, OffsetstreamError, first_line, is_interrupt, text_with_cause
from offsetstream.settings.databricks import is_databricks
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
        "stop": ("offsetstream.cli.stop:stop", "Stop the running job after its current batch."),
        "reload": ("offsetstream.cli.reload:reload", "Reload offsets partitions in the running job."),
        "maintain": ("offsetstream.cli.maintain:maintain", "Compact and vacuum the tables, and thin old history."),
        "repair": ("offsetstream.cli.repair:repair", "Find damaged files of the tables, and repair the tables."),
        "config": ("offsetstream.cli.config:config", "Show each setting and where its value comes from."),
    },
    "Ask it": {
        "groups": (
            "offsetstream.cli.groups:groups",
            "List and describe groups; find what is wrong and why.",
        ),
        "offsets": ("offsetstream.cli.offsets:offsets", "List committed offsets; find who moved them; set them."),
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
        "decode": ("offsetstream.cli.decode:decode", "Decode records from lines of JSON."),
        "encode": ("offsetstream.cli.encode:encode", "Encode decoded records as a Kafka release writes them."),
        "partition-for": ("offsetstream.cli.partition_for:partition_for", "Print the offsets partition of a group."),
    },
}

# The extra that installs a package (pyproject.toml). _SUFFICES: the extra for a command that needs more than one.
_EXTRAS = {
    **dict.fromkeys(("confluent_kafka", "cryptography", "javaproperties"), "cluster"),
    **dict.fromkeys(("delta", "pandas", "prometheus_client", "py4j", "pyspark"), "spark"),
    **dict.fromkeys(("jinja2", "markupsafe", "vl_convert"), "report"),
    "aws_msk_iam_sasl_signer": "msk",
}
_SUFFICES = {
    "demo": "all",
    **dict.fromkeys(("dump", "lag", "offsets list", "partitions", "peek", "repair", "verify"), "spark"),
}


class OneLineErrors(click.Command):
    """A command whose known errors become one line on stderr and an exit code."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the options; some, such as --help, print."""
        try:
            return super().make_context(*args, **kwargs)
        except (OffsetstreamError, OSError) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise
            print_line(f"Error: {first_line(error)}")
            raise click.exceptions.Exit(getattr(error, "exit_code", OffsetstreamError.exit_code)) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (OffsetstreamError, ModuleNotFoundError) as error:
            reported = (
                missing_package(error, _path(ctx, ctx.invoked_subcommand))
                if isinstance(error, ModuleNotFoundError)
                else _damage(error) or error
            )
            print_line(f"Error: {' '.join(str(reported).splitlines())}")
            ctx.exit(reported.exit_code)
        except Exception as error:
            if is_interrupt(error):
                raise KeyboardInterrupt from error
            if is_of_click(error):
                raise
            known = _damage(error) or (first_line(error) if is_storage_error(error) else None)
            print_line(f"Error: {known or unknown_error(error)}")
            ctx.exit(OffsetstreamError.exit_code)


def _damage(error: Exception) -> OffsetstreamError | None:
    """Return an error that names the damaged file of a table, if that is why the command failed."""
    if not any(mark in text_with_cause(error) for mark in (".parquet", "_delta_log")):
        return None
    from offsetstream.tables.damage import damage_in  # noqa: PLC0415 - rarely needed

    return damage_in(error)


def missing_package(error: ModuleNotFoundError, path: str) -> OffsetstreamError:
    """Return an error that names the extra to install for the command. Raise `error` if no extra has the package."""
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
            from difflib import get_close_matches  # noqa: PLC0415 - for errors only

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
            raise missing_package(error, _path(ctx, cmd_name)) from None
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
