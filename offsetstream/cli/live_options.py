"""Options of commands that read from a live cluster, and their notes about partitions without records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from offsetstream.cli.options import SECONDS, Command

if TYPE_CHECKING:
    from offsetstream.cluster.reading import Reading

UNREACHABLE = 3  # exit code: a broker does not answer
_TIMEOUT = 30.0
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
        default=_TIMEOUT,
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
