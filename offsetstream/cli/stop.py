"""`offsetstream stop`: stop the job that writes to the tables, between two batches."""

from __future__ import annotations

import time
from functools import partial

import click

from offsetstream.cli.messages import print_line
from offsetstream.cli.options import config_option, tables_option, timeout_option
from offsetstream.cli.own_spark import open_with_spark, own_spark, spark_options
from offsetstream.errors import OffsetstreamError
from offsetstream.tables.lease import lease_reader, request_stop
from offsetstream.tables.lease_holder import HeartbeatWatch, HolderState
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
