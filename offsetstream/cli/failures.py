"""How a command fails: a known error in one line and an exit code, an unknown one also as a file with all of it."""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
import textwrap
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from offsetstream.cli.text import print_line
from offsetstream.errors import (
    MissingPackageError,
    OffsetstreamError,
    first_line,
    is_interrupt,
    text_of,
    text_with_cause,
)
from offsetstream.settings.places import is_databricks

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


PREFIX = "offsetstream-error-"
_MOST_FILES = 10  # a job that is started again and again must not fill the disk
_MAX_LENGTH = 300  # characters of each quoted line
_STACK = re.compile(r"\s*(?:at \S+\(|\.\.\. \d+ more|File \"|\^|~)|\s{4}|\s*$")  # of Java or Python, and its source
_PLAN = re.compile(r"^(?:=== Streaming Query ===|== .*Plan ==|Driver stacktrace:|JVM stacktrace:)$", re.MULTILINE)


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
                missing_package(error, command_path(ctx, ctx.invoked_subcommand))
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
    from offsetstream.tables.location import damage_in

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


def command_path(ctx: click.Context | None, subcommand: str | None) -> str:
    """Return the words that call a command: `groups list`."""
    names = [subcommand]
    while ctx is not None and ctx.parent is not None:
        names.append(ctx.info_name)
        ctx = ctx.parent
    return " ".join(filter(None, reversed(names)))


def is_storage_error(error: Exception) -> bool:
    """Tell whether a file system, or DuckDB reading files, failed: disk full, access denied, not Parquet."""
    if isinstance(error, OSError):
        return error.errno != errno.EPIPE  # click handles a closed pipe itself
    duckdb = sys.modules.get("duckdb")  # not imported here: that would slow down --help
    return duckdb is not None and isinstance(error, duckdb.Error)


def is_of_click(error: Exception) -> bool:
    """Tell whether click handles the error itself: a usage error, an exit, an end by Ctrl-C, a closed pipe."""
    return isinstance(error, click.ClickException | click.exceptions.Exit | click.Abort | BrokenPipeError)


def is_unknown(error: Exception) -> bool:
    """Tell whether no part of the program has words for the error, or a way to handle it."""
    has_words = isinstance(error, OffsetstreamError | ModuleNotFoundError) or is_storage_error(error)
    return not (has_words or is_of_click(error) or is_interrupt(error))


def unknown_error(error: BaseException, folder: str | None = None) -> str:
    """Return a line with the first and the last line of an error, and write the complete text to a file.

    The file is in `folder` if that is a local folder, else in the folder of temporary files. The newest ten stay.
    """
    name = type(error).__name__
    first, last = _ends(text_of(error))
    said = name if not first else f"{name}: {first}"
    if last and last != first:
        said += f" ... {last}"
    file = _written("".join(traceback.format_exception(error)), folder)
    return f"Unknown error: {said}{'' if said.endswith('.') else '.'} " + (
        f"The complete error is in {file}" if file else "Its complete text cannot be written to any file"
    )


def _ends(text: str) -> tuple[str, str]:
    """Return the first line, and the last one that says a reason: not of a stack or of a query's plan."""
    plan = _PLAN.search(text)
    reasons = text[: plan.start()] if plan else text
    lines = [line.strip() for line in reasons.splitlines() if not _STACK.match(line)]
    if not lines:
        return "", ""
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return _short(lines[0]), _short((causes or lines)[-1])


def _short(line: str) -> str:
    return textwrap.shorten(line, _MAX_LENGTH, placeholder=" ...")


def _written(text: str, folder: str | None) -> Path | None:
    """Write the text to a new file that only this user can read. Return None if that is not possible."""
    name = f"{PREFIX}{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}.txt"
    local = [Path(folder)] if folder and Path(folder).is_dir() else []
    for place in (*local, Path(tempfile.gettempdir())):
        with suppress(OSError):
            file = place / name
            file.touch(0o600)
            file.write_text(text, "utf-8", "backslashreplace")
            for old in sorted(place.glob(f"{PREFIX}*.txt"))[:-_MOST_FILES]:
                old.unlink()
            return file
    return None
