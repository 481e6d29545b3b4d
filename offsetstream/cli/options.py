"""The options that many commands share; each is also read from the environment, as its help says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from offsetstream.cli.output import Output

Command = Callable[..., None]


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
    """Add ``--output`` and ``--file``, which :func:`output_of` takes."""
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
    return formats(file(command))


def output_of(options: dict[str, Any]) -> Output:
    """Take the options of :func:`output_options` out of ``options`` and return their Output."""
    return Output(options.pop("output_format"), options.pop("output_file"))


def cluster_options(command: Command) -> Command:
    """Add ``--bootstrap-server`` and ``--command-config``, neither of them required."""
    server = click.option(
        "--bootstrap-server",
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
