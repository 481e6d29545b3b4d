"""`offsetstream groups`: the commands about groups; only the called one is imported."""

from __future__ import annotations

import click

from offsetstream.cli.main import LazyGroup

SUBCOMMANDS = {
    "Ask the tables": {
        "list": ("offsetstream.cli.list_groups:list_groups", "List groups with their type and state."),
        "describe": ("offsetstream.cli.describe_groups:describe_groups", "Describe groups as Kafka's own tool does."),
        "status": ("offsetstream.cli.status:status", "Show which groups have trouble, the worst first, and why."),
        "rebalances": ("offsetstream.cli.group_history:rebalances", "Show rebalances: who joined, who left, how long."),
        "history": ("offsetstream.cli.group_history:group_history", "Show each change of a group and its members."),
    },
    "Change the cluster (a dry run unless --execute)": {
        "delete": ("offsetstream.cli.deletions:delete_groups", "Delete groups."),
    },
}


@click.group(cls=LazyGroup, sections=SUBCOMMANDS)
def groups() -> None:
    """List and describe consumer groups, now or at any past time, and find out what happened to them."""
