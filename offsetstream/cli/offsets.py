"""`offsetstream offsets`: subcommands that query or change committed offsets; only the called one is imported."""

from __future__ import annotations

import click

from offsetstream.cli.main import LazyGroup

SUBCOMMANDS = {
    "Ask the tables": {
        "list": ("offsetstream.cli.list_offsets:list_offsets", "List committed offsets."),
        "history": ("offsetstream.cli.offset_history:history", "Show each commit and how far it moved the offset."),
        "audit": ("offsetstream.cli.offset_history:audit", "Show who moved offsets, and who lost messages."),
        "expiring": (
            "offsetstream.cli.offset_trouble:expiring",
            "Show which offsets will expire, and when.",
        ),
        "orphans": ("offsetstream.cli.offset_trouble:orphans", "Show offsets that no consumer can use."),
        "export": ("offsetstream.cli.export:export", "Write offsets to a file for Kafka's own tool."),
    },
    "Change the cluster (a dry run unless --execute)": {
        "reset": ("offsetstream.cli.reset:reset", "Set committed offsets of groups."),
        "undo": ("offsetstream.cli.undo:undo", "Undo a reset, an import or a deletion."),
        "delete": ("offsetstream.cli.deletions:delete_offsets", "Delete committed offsets of a group."),
        "import": ("offsetstream.cli.import_offsets:import_offsets", "Commit offsets that another cluster exported."),
    },
}


@click.group(cls=LazyGroup, sections=SUBCOMMANDS)
def offsets() -> None:
    """List committed offsets, now or at any past time; find who moved them; set them."""
