"""`offsetstream offsets`: what there is to ask of committed offsets, and to do; only what is called is imported."""

from __future__ import annotations

import click

from offsetstream.cli.main import LazyGroup

SUBCOMMANDS = {
    "list": ("offsetstream.cli.list_offsets:list_offsets", "List committed offsets."),
    "history": ("offsetstream.cli.offset_history:history", "Show each commit of groups, and how far it moved."),
    "audit": ("offsetstream.cli.offset_history:audit", "Show who moved offsets, and who lost messages."),
    "expiring": ("offsetstream.cli.offset_trouble:expiring", "Show which offsets the brokers will delete, and when."),
    "orphans": ("offsetstream.cli.offset_trouble:orphans", "Show offsets that no consumer can use as they are."),
    "export": ("offsetstream.cli.export:export", "Write offsets, of now or of an instant, for Kafka's own tool."),
    "import": (
        "offsetstream.cli.import_offsets:import_offsets",
        "Commit another cluster's offsets here; a dry run unless --execute.",
    ),
    "reset": ("offsetstream.cli.reset:reset", "Set offsets of groups; a dry run unless --execute."),
    "undo": ("offsetstream.cli.undo:undo", "Take an operation back; a dry run unless --execute."),
    "delete": ("offsetstream.cli.deletions:delete_offsets", "Delete offsets of a group; a dry run unless --execute."),
}


@click.group(cls=LazyGroup, lazy_subcommands=SUBCOMMANDS)
def offsets() -> None:
    """Show committed offsets, from the tables: now, then, and what became of them; change those of a cluster."""
