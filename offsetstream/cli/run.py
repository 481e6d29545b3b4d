"""``offsetstream run``: the streaming job; its options serve the entry points for spark-submit too."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import click
from pyspark.sql import SparkSession

from offsetstream.cli.options import BROKERS
from offsetstream.cluster.properties import read_properties
from offsetstream.progress import Progress
from offsetstream.spark.session import ending, local_session
from offsetstream.stream.apply.load import MAX_OFFSETS_AT_ONCE
from offsetstream.stream.job import Job
from offsetstream.stream.monitor.hanging import DEFAULT_MAX_TRANSACTION_TIMEOUT
from offsetstream.stream.settings import DEFAULT_MAX_SILENCE, JobSettings
from offsetstream.tables.location import parse_location, store_at
from offsetstream.tables.write import StateWrites

_PART = r"(\d{1,15}) +(week|day|hour|minute|second|millisecond)s?(?: +|$)"
_INTERVAL, _OF_INTERVAL = (re.compile(text, re.IGNORECASE | re.ASCII) for text in (f"(?:{_PART})+", _PART))
_LONGEST_TRIGGER = timedelta(days=365)


def _trigger(_: click.Context, __: click.Parameter, value: str) -> str:
    text = value.strip()
    if not _INTERVAL.fullmatch(text) or not _is_short(_OF_INTERVAL.findall(text)):
        raise click.BadParameter(
            f"{value!r} is no time such as '10 seconds' or '1 minute 30 seconds', of at most a year"
        )
    return text


def _is_short(parts: list[tuple[str, str]]) -> bool:
    try:
        lengths = [timedelta(**{f"{unit.lower()}s": int(number)}) for number, unit in parts]
        return sum(lengths, timedelta()) <= _LONGEST_TRIGGER
    except OverflowError:
        return False


def _minutes(_: click.Context, __: click.Parameter, value: float) -> timedelta:
    try:
        return timedelta(minutes=value)
    except OverflowError:  # for ever
        return timedelta.max
    except ValueError as error:
        raise click.BadParameter("give a number of minutes, or inf") from error


_JOB_OPTIONS = (
    click.option(
        "--bootstrap-server", required=True, type=BROKERS, metavar="HOST:PORT", help="A broker to connect to."
    ),
    click.option("--command-config", metavar="FILE", help="Kafka client properties (SASL, TLS)."),
    click.option("--tables", default="tables", show_default=True, metavar="DIR", help="Folder or URI of the tables."),
    click.option(
        "--checkpoint",
        default="checkpoints",
        show_default=True,
        metavar="DIR",
        help="Folder or URI of the checkpoints.",
    ),
    click.option(
        "--trigger",
        default="10 seconds",
        show_default=True,
        callback=_trigger,
        help="Time between two batches, in Spark's words.",
    ),
    click.option("--once", is_flag=True, help="Apply everything there is now, then stop."),
    click.option(
        "--coordinator",
        type=click.Choice(["new", "classic"]),
        help="The brokers' group coordinator [default: ask them].",
    ),
    click.option(
        "--history/--no-history",
        default=True,
        show_default=True,
        help="Keep every record in offset_commits and group_records; switched on again, all is loaded anew.",
    ),
    click.option(
        "--state-writes",
        type=click.Choice([way.value for way in StateWrites]),
        default=StateWrites.AUTO.value,
        show_default=True,
        help="Who merges into the state tables: the driver by delta-rs, Spark's MERGE, or as the size suggests.",
    ),
    click.option(
        "--max-offsets-per-trigger",
        type=click.IntRange(min=1),
        default=MAX_OFFSETS_AT_ONCE,
        show_default=True,
        metavar="N",
        help="Take at most so many offsets in one batch.",
    ),
    click.option(
        "--max-transaction-timeout",
        type=click.FloatRange(min=0),
        default=DEFAULT_MAX_TRANSACTION_TIMEOUT.total_seconds() / 60,
        callback=_minutes,
        show_default=True,
        metavar="MINUTES",
        help="Tell of a transaction that holds an offsets partition back for longer.",
    ),
    click.option(
        "--max-silence",
        type=click.FloatRange(min=0),
        default=DEFAULT_MAX_SILENCE.total_seconds() / 60,
        callback=_minutes,
        show_default=True,
        metavar="MINUTES",
        help="Wait so long for a cluster that does not answer, at the start and later; then give up.",
    ),
    click.option(
        "--force",
        is_flag=True,
        help="Take over at once from another job that holds the tables, without watching for a minute whether it "
        "lives: for one that you know to be gone. If it does run, it cannot write any more, and ends.",
    ),
)


def job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of the job."""
    for option in reversed(_JOB_OPTIONS):
        command = option(command)
    return command


def run_job(options: dict[str, Any], session: Callable[[], AbstractContextManager[SparkSession]]) -> None:
    """Run the job with the options of :func:`job_options`; SIGTERM and SIGINT end it between two batches."""
    settings = JobSettings(
        bootstrap_server=options["bootstrap_server"],
        tables=store_at(options["tables"]),
        checkpoint=parse_location(options["checkpoint"]),
        properties=read_properties(options["command_config"]),
        trigger=options["trigger"],
        once=options["once"],
        coordinator=options["coordinator"],
        max_offsets_per_trigger=options["max_offsets_per_trigger"],
        max_transaction_timeout=options["max_transaction_timeout"],
        keeps_history=options["history"],
        state_writes=StateWrites(options["state_writes"]),
        max_silence=options["max_silence"],
        force_lease=options["force"],
    )
    job = Job(settings, session, Progress())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: job.stop())
    job.run()


@click.command(
    epilog="""\b
Examples:
  offsetstream run --bootstrap-server localhost:9092 --tables tables
  offsetstream run --bootstrap-server broker:9093 --command-config client.properties --once
"""
)
@job_options
@click.option("--master", help="Spark master [default: that of spark-defaults.conf, or local[*]].")
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; repeatable.")
def run(master: str | None, conf: tuple[str, ...], **options: Any) -> None:
    """Replay __consumer_offsets into Delta tables until stopped.

    First every offsets partition is loaded, with a progress bar; then the stream goes on from there. SIGTERM, SIGINT
    and 'offsetstream stop' end it between two batches with exit code 0.
    """
    pairs = [setting.partition("=") for setting in conf]
    if any(not separator for _, separator, _ in pairs):
        raise click.BadParameter("give NAME=VALUE", param_hint="--conf")
    run_job(options, lambda: ending(local_session(master, {name: value for name, _, value in pairs})))
