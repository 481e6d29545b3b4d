"""`offsetstream repair`: show lost and damaged files of the tables, and repair the tables."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from offsetstream.cli.failures import OneLineErrors
from offsetstream.cli.options import client_properties, cluster_options, output_of, output_options, tables_option
from offsetstream.cli.output import Column
from offsetstream.cli.settings_file import config_option
from offsetstream.cli.text import print_line
from offsetstream.cluster.client import Cluster
from offsetstream.errors import UsageError
from offsetstream.stream.controls import Heartbeat
from offsetstream.tables.create import create_again, require_cluster
from offsetstream.tables.files import Damage
from offsetstream.tables.lease import take_lease
from offsetstream.tables.location import store_at
from offsetstream.tables.names import JOB_LEASE
from offsetstream.tables.schema import all_schemas
from offsetstream.tables.store import Store
from offsetstream.verify.repair import Repair, damaged_records, find_damage, remedy

_COLUMNS = (
    Column("table", "TABLE"),
    Column("damage", "DAMAGE"),
    Column("rows", "ROWS", 0, "number"),
    Column("remedy", "REMEDY"),
    Column("file", None),
)
_DAMAGED = 1


@click.command(
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream repair --tables tables
  offsetstream repair --tables tables --bootstrap-server localhost:9092 --execute

ROWS is how many rows a file had, by Delta's log. Damaged files are moved to the folder _damaged beside the tables.

Exit codes: 0 nothing is damaged, or all is repaired; 1 some tables are damaged.""",
)
@config_option("repair")
@cluster_options
@tables_option
@output_options
@click.option("--execute", is_flag=True, help="Repair the tables (default: only show the damage).")
@click.option("--force", is_flag=True, help="Repair them even if another job seems to write to them.")
@click.pass_context
def repair(
    context: click.Context,
    /,
    bootstrap_server: str | None,
    command_config: str | None,
    tables: str,
    execute: bool,
    force: bool,
    **options: Any,
) -> None:
    """Find lost and damaged files of the tables, and repair the tables.

    This reads every file. A state table is moved away, and the next job fills it again from the topic. A history keeps
    its readable rows, gets back what the topic still has, and says what is lost: in the table partition_events, and by
    negative entries in history_ledger. history_complete_from then moves to the next load.

    With --execute no job may run on the tables.
    """
    store, output = store_at(tables), output_of(options)
    if store.needs_spark:
        raise UsageError(
            f"repair reads the files of a folder, and {tables} is in a catalog: use its own means, such as FSCK REPAIR "
            "TABLE or RESTORE TABLE on Databricks"
        )
    if not execute:
        damage = find_damage(store, print_line)
        if damage or not output.is_text:
            output.table(_COLUMNS, _rows(damage))
        print_line("Repair this with --execute" if damage else "Nothing is damaged")
        context.exit(_DAMAGED if damage else 0)
    properties = client_properties(command_config)
    _repair(store, bootstrap_server, properties, force=force)


def _rows(damage: Mapping[str, list[Damage]]) -> list[dict[str, Any]]:
    return [
        {"table": name, "file": each.file, "damage": str(each), "rows": each.rows, "remedy": remedy(name)}
        for name, found in damage.items()
        for each in found
    ]


def _repair(store: Store, bootstrap_server: str | None, properties: dict[str, str], *, force: bool) -> None:
    create = partial(create_again, store)
    folder = store.folder(JOB_LEASE)
    if folder is not None and folder.damage():
        print_line(f"{JOB_LEASE}: moved to {folder.set_aside()}")
        create([JOB_LEASE])
    lease = take_lease(store, print_line, threading.Event(), force=force)
    assert lease is not None  # noqa: S101 - nobody stops the wait
    with Heartbeat(lease, lambda _: None, lambda: None):  # a lease that is lost ends the context with its error
        damage = find_damage(store, print_line)
        if not damage:
            print_line("Nothing is damaged")
            return
        cluster = None
        if records := damaged_records(damage):
            if bootstrap_server is None:
                raise UsageError(
                    f"the topic may still have rows that {' and '.join(records)} lost: name a broker by "
                    "--bootstrap-server"
                )
            cluster = Cluster(bootstrap_server, properties)
            require_cluster(store, cluster.cluster_id())
        checkpoint_id = lease.next_checkpoint_id(store, all_schemas().keys() - damage.keys())
        lease.use_checkpoint(checkpoint_id, None)  # the next job continues no older checkpoint
        losses = Repair(store, damage, cluster, properties, create, checkpoint_id, print_line).run()
    for loss in losses:
        print_line(f"Offsets partition {loss.log[0]}: {loss}")
    print_line("Repaired. Start the job: it fills what is missing")
