"""`offsetstream reload`: have offsets partitions loaded anew, by the running job or by the next one."""

from __future__ import annotations

import time
from functools import partial

import click

from offsetstream.cli.options import config_option, tables_option, timeout_option
from offsetstream.cli.own_spark import own_spark, reached, spark_options
from offsetstream.cli.tell import tell
from offsetstream.errors import OffsetstreamError
from offsetstream.tables.lease import lease_reader, read_lease, request_reload, requested_partitions
from offsetstream.tables.lease_holder import HeartbeatWatch, LeaseRow, Life
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.store import Store

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
    help="A partition of __consumer_offsets, repeatable [default: all].",
)
@tables_option
@timeout_option
@spark_options
def reload(wanted: tuple[int, ...], tables: str, timeout: float, master: str | None, conf: dict[str, str]) -> None:
    """Have offsets partitions loaded anew, as a coordinator loads them, and wait until they are.

    The job does it between two batches; readers see the old rows of a partition until the new ones are whole. Without
    a running job the next one does it when it starts.
    """
    with reached(tables, partial(own_spark, master, conf)) as store:
        _reload(store, wanted, timeout)


def _reload(store: Store, wanted: tuple[int, ...], timeout: float) -> None:
    existing = {row["offsets_partition"] for row in Lookup(store).rows("offsets_partitions", ["offsets_partition"])}
    unknown = sorted(set(wanted) - existing)
    if unknown:
        raise OffsetstreamError(f"the tables in {store.name} have no offsets partition {unknown[0]}")
    request_reload(store, wanted)
    watch = HeartbeatWatch()
    row, life = watch.look(partial(read_lease, store))
    what = f"{len(set(wanted) or existing)} offsets partitions"
    if row is None or life is Life.DEAD:
        click.echo(f"No job writes to {store.name}: the next one loads {what} anew when it starts", err=True)
        return
    tell(f"Asked {row.holder} to load {what} anew after its present batch; last sign of life {row.sign_of_life}")
    _wait(store, row, watch, set(wanted) or existing, timeout)
    click.echo("Loaded", err=True)


def _wait(store: Store, asked: LeaseRow, watch: HeartbeatWatch, wanted: set[int], timeout: float) -> None:
    deadline, read = time.monotonic() + timeout, lease_reader(store)
    while True:
        now, life = watch.look(read)
        if now is None or not requested_partitions(now.reload_requested, wanted):
            return
        if now.owner != asked.owner or life is Life.DEAD:
            raise OffsetstreamError("the job ended before the load was done; the next one does it when it starts")
        if time.monotonic() > deadline:
            raise OffsetstreamError(f"the load was not done within {timeout:g} s; the job will do it, or the next one")
        time.sleep(_POLL_SECONDS)
