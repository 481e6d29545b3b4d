"""``offsetstream reload``: have offsets partitions loaded anew, by the running job or by the next one."""

from __future__ import annotations

import time

import click

from offsetstream.errors import OffsetstreamError
from offsetstream.tables.lease import LeaseRow, read_lease, request_reload, requested_partitions
from offsetstream.tables.location import TablesLocation
from offsetstream.tables.lookup import Lookup

_POLL_SECONDS = 0.5


@click.command(
    epilog="""\b
Examples:
  offsetstream reload --tables tables
  offsetstream reload --offsets-partition 12 --offsets-partition 27 --timeout 600
"""
)
@click.option(
    "--offsets-partition",
    "wanted",
    multiple=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="A partition of __consumer_offsets, repeatable [default: all].",
)
@click.option("--tables", default="tables", show_default=True, metavar="DIR", help="Folder or URI of the tables.")
@click.option("--timeout", default=300, show_default=True, metavar="SECONDS", help="How long to wait for the end.")
def reload(wanted: tuple[int, ...], tables: str, timeout: int) -> None:
    """Have offsets partitions loaded anew, as a coordinator loads them, and wait until they are.

    The job does it between two batches; readers see the old rows of a partition until the new ones are whole. Without
    a running job the next one does it when it starts.
    """
    location = TablesLocation.parse(tables)
    existing = {row["offsets_partition"] for row in Lookup(location).rows("offsets_partitions", ["offsets_partition"])}
    unknown = sorted(set(wanted) - existing)
    if unknown:
        raise OffsetstreamError(f"the tables in {location.root} have no offsets partition {unknown[0]}")
    row = request_reload(location, wanted)
    what = f"{len(set(wanted) or existing)} offsets partitions"
    if not row.is_live:
        click.echo(f"No job writes to {location.root}: the next one loads {what} anew when it starts", err=True)
        return
    click.echo(f"Asked process {row.pid} on {row.host} to load {what} anew after its present batch", err=True)
    _wait(location, row, set(wanted) or existing, timeout)
    click.echo("Loaded", err=True)


def _wait(location: TablesLocation, asked: LeaseRow, wanted: set[int], timeout: int) -> None:
    deadline = time.monotonic() + timeout
    while (now := read_lease(location)) is not None and requested_partitions(now.reload_requested, wanted):
        if now.owner != asked.owner or not now.is_live:
            raise OffsetstreamError("the job ended before the load was done; the next one does it when it starts")
        if time.monotonic() > deadline:
            raise OffsetstreamError(f"the load was not done within {timeout} s; the job will do it, or the next one")
        time.sleep(_POLL_SECONDS)
