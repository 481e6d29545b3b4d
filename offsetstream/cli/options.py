"""The options that many commands share; each is also read from the environment, as its help says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from offsetstream.cli.output import Output

Command = Callable[..., None]
_LONGEST = 365 * 24 * 3600


class Seconds(click.ParamType[float]):
    """A time to wait, in seconds: neither nan nor infinity, not below zero, and at most a year."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the number."""
        try:
            seconds = float(value)
        except (ValueError, OverflowError):
            seconds = math.nan
        if not 0 <= seconds <= _LONGEST:  # false of nan too
            self.fail(f"{value!r} is not a number of seconds from 0 to {_LONGEST} (a year)", param, ctx)
        return seconds


class Brokers(click.ParamType[str]):
    """The addresses of brokers to begin with, separated by commas."""

    name = "brokers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read them; at least one has to be there."""
        brokers = [broker.strip() for broker in str(value).split(",")]
        if not all(brokers):
            self.fail(f"{value!r} names no broker: give host:port, or several with commas between", param, ctx)
        return ",".join(brokers)


SECONDS, BROKERS = Seconds(), Brokers()


def tables_option(command: Command) -> Command:
    """Add ``--tables``."""
    option = click.option(
        "--tables",
        default="tables",
        show_default=True,
        metavar="DIR",
        envvar="OFFSETSTREAM_TABLES",
        show_envvar=True,
        help="Folder or URI of the tables.",
    )
    return option(command)


def output_options(command: Command) -> Command:
    """Add ``--output``, ``--file`` and ``--raw``, which :func:`output_of` takes."""
    formats = click.option(
        "--output",
        "output_format",
        type=click.Choice(["text", "json", "csv"]),
        default="text",
        show_default=True,
        envvar="OFFSETSTREAM_OUTPUT",
        show_envvar=True,
        help="Text for people; JSON and CSV have more columns.",
    )
    file = click.option(
        "--file",
        "output_file",
        metavar="FILE",
        envvar="OFFSETSTREAM_FILE",
        help="Write to this file, not to stdout.",
    )
    raw = click.option(
        "--raw",
        is_flag=True,
        envvar="OFFSETSTREAM_RAW",
        show_envvar=True,
        help="In CSV, also what a spreadsheet would take for a formula as it is, without a ' before it: for scripts.",
    )
    return formats(file(raw(command)))


def output_of(options: dict[str, Any]) -> Output:
    """Take the options of :func:`output_options` out of ``options`` and return their Output."""
    return Output(options.pop("output_format"), options.pop("output_file"), raw=options.pop("raw"))


def cluster_options(command: Command) -> Command:
    """Add ``--bootstrap-server`` and ``--command-config``, neither of them required."""
    server = click.option(
        "--bootstrap-server",
        type=BROKERS,
        metavar="HOST:PORT",
        envvar="OFFSETSTREAM_BOOTSTRAP_SERVER",
        show_envvar=True,
        help="A broker to ask for what is not in the tables.",
    )
    config = click.option(
        "--command-config",
        metavar="FILE",
        envvar="OFFSETSTREAM_COMMAND_CONFIG",
        show_envvar=True,
        help="Kafka client properties (SASL, TLS).",
    )
    return server(config(command))
