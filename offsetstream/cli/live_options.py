"""The options of commands that read from a live cluster, and what they say of partitions that give nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from offsetstream.cli.options import SECONDS, Command

if TYPE_CHECKING:
    from offsetstream.cluster.reading import Reading

UNREACHABLE = 3  # the exit code
_TIMEOUT = 30.0
# Of what cannot be asked for now: another time it may.
_FOR_NOW = {"COORDINATOR_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE", "NETWORK_EXCEPTION", "REQUEST_TIMED_OUT"}


def isolation_option(command: Command) -> Command:
    """Add `--isolation-level`."""
    return click.option(
        "--isolation-level",
        type=click.Choice(["read_committed", "read_uncommitted"]),
        default="read_committed",
        show_default=True,
        help="As consumers have it: with read_committed nothing of open and aborted transactions.",
    )(command)


def reading_timeout_option(command: Command) -> Command:
    """Add `--timeout`, in seconds, after which partitions that have not answered are given up."""
    return click.option(
        "--timeout",
        type=SECONDS,
        default=_TIMEOUT,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for records.",
    )(command)


def is_unreachable(error: str | None) -> bool:
    """Tell whether an error, by Kafka's name, is that nobody answers, or nobody is there to ask."""
    return error in _FOR_NOW


def told_nothing(topic: str, reading: Reading) -> str | None:
    """Return why there is nothing more to read, in words; None where the log simply ends."""
    end = reading.end
    if reading.error == "OFFSET_OUT_OF_RANGE" and end is not None:
        return (
            f"OFFSET_OUT_OF_RANGE: the log begins at {end.log_start_offset or 0} and ends at {end.high_watermark}, "
            f"and {reading.offset} is not in it"
        )
    if reading.error is not None:
        return reading.error + (f" after {reading.errors} errors" if reading.errors else "")
    if reading.is_blocked and end is not None:
        return (
            f"blocked by an open transaction from {end.last_stable_offset} on, the log ends at {end.high_watermark}: "
            f"'partitions --blocked --topic {topic}' names it"
        )
    return None
