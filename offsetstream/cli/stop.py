"""``offsetstream stop``: ask the job that writes to the tables to end between two batches."""

from __future__ import annotations

import time

import click

from offsetstream.errors import OffsetstreamError
from offsetstream.tables.lease import read_lease, request_stop
from offsetstream.tables.location import TablesLocation


@click.command(
    epilog="""\b
Examples:
  offsetstream stop --tables tables
  offsetstream stop --tables tables --timeout 600
"""
)
@click.option("--tables", default="tables", show_default=True, metavar="DIR", help="Folder or URI of the tables.")
@click.option("--timeout", default=300, show_default=True, metavar="SECONDS", help="How long to wait for the end.")
def stop(tables: str, timeout: int) -> None:
    """Stop the job that writes to the tables, whichever way it was started, and wait until it has."""
    location = TablesLocation.parse(tables)
    row = read_lease(location)
    if row is None or not row.is_live:
        raise OffsetstreamError(f"no job writes to {location.root}")
    request_stop(location)
    click.echo(f"Asked process {row.pid} on {row.host} to stop after its present batch", err=True)
    deadline = time.monotonic() + timeout
    while (now := read_lease(location)) is not None and now.owner == row.owner:
        if not now.is_live:
            raise OffsetstreamError("the job ended without a word, as by a kill; nothing is lost: start another")
        if time.monotonic() > deadline:
            raise OffsetstreamError(f"the job did not stop within {timeout} s; it will after its present batch")
        time.sleep(0.5)
    click.echo("Stopped", err=True)
