"""`offsetstream report`: one HTML page about the groups, which opens from disk without a network."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from offsetstream.cli.age import Age
from offsetstream.cli.answers import group_options, open_reader, period_options, require_period
from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.names import expand, require_known
from offsetstream.cli.options import PAUSE, max_age_option, tables_option
from offsetstream.cli.process import stop_on_signal
from offsetstream.cli.settings_file import config_option
from offsetstream.cli.text import capitalized, instant_text, print_line
from offsetstream.errors import OffsetstreamError, UsageError
from offsetstream.tables.location import store_at, write_file

_DAY = timedelta(days=1)
_EARLIEST = datetime.min.replace(tzinfo=UTC)


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream report --file report.html
  offsetstream report --since 03:00 --until 04:00 --group my-group --file night.html
  offsetstream report --file s3://pages/groups.html --watch 60""",
)
@config_option("report")
@click.option("--file", "file", required=True, metavar="FILE", help="Write the page to this file or object store URI.")
@group_options
@period_options
@click.option("--show-hosts", is_flag=True, help="Show hosts of clients.")
@click.option(
    "--watch",
    type=PAUSE,
    metavar="SECONDS",
    help="Write the page again this often, until Ctrl-C or SIGTERM (default: once).",
)
@max_age_option
@tables_option
def report(
    *,
    file: str,
    group: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    show_hosts: bool,
    watch: float | None,
    max_age: float | None,
    tables: str,
) -> None:
    """Write one HTML page: groups with trouble, moved offsets, lag, rebalances, owners, commits and coordinators.

    Without --since the page covers the last day. A new page replaces the old one atomically.
    """
    from offsetstream.report.queries import Period, find
    from offsetstream.report.render import render

    now = datetime.now(UTC)
    if watch is not None and until is not None:
        raise UsageError("--watch shows new data, and --until excludes it: omit one of them")
    if until is not None and until > now:
        raise UsageError(f"--until {instant_text(until)} is in the future: omit it for now")
    length = _DAY if since is None else now - since
    store, ended = store_at(tables), threading.Event()
    group = expand(store, "group_id", group, past=True)
    for message in require_known(store, group):
        print_line(f"Note: {message}")

    def write() -> None:
        reader = open_reader(tables, until, max_age=max_age)
        age = Age.of(reader)
        end = age.now
        start = since if since and watch is None else max(end, _EARLIEST + length) - length
        require_period(start, end)
        findings = find(store, Period(start, end), group, is_past=until is not None)
        warnings, as_of = age.lines(), age.as_of_text(store, group, until=until)
        if not warnings and as_of.startswith("data as of"):
            warnings = [f"{capitalized(as_of)}: later changes are not on this page"]
        page = render(findings, hosts=show_hosts, warnings=warnings)
        data = page.encode("utf-8", "backslashreplace")
        write_file(file, data)
        print_line(f"Wrote {_place(file)}: {len(data) / 1e6:.1f} MB.")

    if watch is None:
        write()
        return
    with stop_on_signal(ended.set):  # finishes the current page
        write()
        while not ended.wait(watch):
            try:
                write()
            except OffsetstreamError as error:  # the old page stays; the store may be back later
                print_line(f"Error: {error}")


def _place(file: str) -> str:
    return file if "://" in file else str(Path(file).absolute())
