"""The commands below a command of click's, groups opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from offsetstream.cli.main import main


def leaves(command: click.Command, path: Sequence[str]) -> Iterator[tuple[list[str], click.Command]]:
    """Yield each command that is no group, with its words from `path` on."""
    if not isinstance(command, click.Group):
        yield list(path), command
        return
    ctx = click.Context(command, parent=click.Context(main))
    for name in command.list_commands(ctx):
        child = command.get_command(ctx, name)
        assert child is not None
        yield from leaves(child, [*path, name])
