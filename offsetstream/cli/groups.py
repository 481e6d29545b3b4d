"""`offsetstream groups`: what there is to ask of groups; only what is called is imported."""

from __future__ import annotations

import click

from offsetstream.cli.main import LazyGroup

SUBCOMMANDS = {
    "list": ("offsetstream.cli.list_groups:list_groups", "List the groups, with their type and state."),
    "describe": ("offsetstream.cli.describe_groups:describe_groups", "Describe groups as Kafka's own tool does."),
    "status": ("offsetstream.cli.status:status", "Show which groups are not well, the worst first, and why."),
    "rebalances": ("offsetstream.cli.rebalances:rebalances", "Show the rebalances of groups: who came and who left."),
    "history": ("offsetstream.cli.group_events:group_history", "Show what happened to groups and their members."),
    "delete": ("offsetstream.cli.deletions:delete_groups", "Delete groups of a cluster; a dry run unless --execute."),
}


@click.group(cls=LazyGroup, lazy_subcommands=SUBCOMMANDS)
def groups() -> None:
    """Show groups, from the tables: now, then, and what became of them."""
