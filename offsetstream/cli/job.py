"""`offsetstream stop` and `reload`: ask the job that writes to the tables, from any machine."""

from __future__ import annotations

import time
from functools import partial

import click

from offsetstream.cli.options import open_with_spark, own_spark, spark_options, tables_option, timeout_option
from offsetstream.cli.settings_file import config_option
from offsetstream.cli.text import counted, print_line
from offsetstream.errors import OffsetstreamError
from offsetstream.tables.lease import (
    HeartbeatWatch,
    HolderState,
    LeaseRow,
    lease_reader,
    read_lease,
    request_reload,
    request_stop,
    requested_partitions,
)
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.store import Store


@click.command(
    epilog="""\b
Examples:
  offsetstream stop --tables tables
  offsetstream stop --tables tables --timeout 600
"""
)
@config_option("stop")
@tables_option
@timeout_option
@spark_options
def stop(tables: str, timeout: float, master: str | None, conf: dict[str, str]) -> None:
    """Stop the job that writes to the tables, and wait until it has stopped.

    This works from any machine that reaches the tables, however the job was started.
    """
    with open_with_spark(tables, partial(own_spark, master, conf)) as store:
        _stop(store, timeout)
    click.echo("Stopped", err=True)


def _stop(store: Store, timeout: float) -> None:
    watch, read = HeartbeatWatch(), lease_reader(store)
    row, life = watch.look(read)
    if row is None or life is HolderState.DEAD:
        raise OffsetstreamError(f"no job writes to {store.name}")
    request_stop(store)
    print_line(f"Asked {row.holder} to stop after its current batch; last sign of life {row.last_heartbeat}")
    deadline = time.monotonic() + timeout
    while True:
        now, life = watch.look(read)
        if now is None or now.owner != row.owner:
            break
        if life is HolderState.DEAD:
            raise OffsetstreamError("the job died before it stopped, as after a kill. Nothing is lost: start it again")
        if time.monotonic() > deadline:
            raise OffsetstreamError(f"the job did not stop within {timeout:g} s; it will stop after its current batch")
        time.sleep(0.5)


_POLL_SECONDS = 0.5


@click.command(
    epilog="""\b
Examples:
  offsetstream reload --tables tables
  offsetstream reload --offsets-partition 12 --offsets-partition 27 --timeout 600
"""
)
@config_option("reload")
@click.option(
    "--offsets-partition",
    "wanted",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Reload only this partition of __consumer_offsets (repeatable; default: all).",
)
@tables_option
@timeout_option
@spark_options
def reload(wanted: tuple[int, ...], tables: str, timeout: float, master: str | None, conf: dict[str, str]) -> None:
    """Reload offsets partitions from the topic, as a coordinator does, and wait until they are loaded.

    The job reloads between two batches. Readers see the old rows of a partition until all new ones are there. Without a
    running job, the next one reloads when it starts.
    """
    with open_with_spark(tables, partial(own_spark, master, conf)) as store:
        _reload(store, wanted, timeout)


def _reload(store: Store, wanted: tuple[int, ...], timeout: float) -> None:
    existing = {row["offsets_partition"] for row in Lookup(store).rows("offsets_partitions", ["offsets_partition"])}
    unknown = sorted(set(wanted) - existing)
    if unknown:
        raise OffsetstreamError(f"the tables in {store.name} have no offsets partition {unknown[0]}")
    request_reload(store, wanted)
    watch = HeartbeatWatch()
    row, life = watch.look(partial(read_lease, store))
    partitions = counted(len(set(wanted) or existing), "offsets partition")
    if row is None or life is HolderState.DEAD:
        click.echo(f"No job writes to {store.name}: the next one reloads {partitions} when it starts", err=True)
        return
    print_line(
        f"Asked {row.holder} to reload {partitions} after its current batch; last sign of life {row.last_heartbeat}"
    )
    _wait(store, row, watch, set(wanted) or existing, timeout)
    click.echo("Reloaded", err=True)


def _wait(store: Store, asked: LeaseRow, watch: HeartbeatWatch, wanted: set[int], timeout: float) -> None:
    deadline, read = time.monotonic() + timeout, lease_reader(store)
    while True:
        now, life = watch.look(read)
        if now is None or not requested_partitions(now.reload_requested, wanted):
            return
        if now.owner != asked.owner or life is HolderState.DEAD:
            raise OffsetstreamError("the job ended before it reloaded all; the next one reloads when it starts")
        if time.monotonic() > deadline:
            raise OffsetstreamError(
                f"the reload did not finish within {timeout:g} s; this job or the next one will do it"
            )
        time.sleep(_POLL_SECONDS)
