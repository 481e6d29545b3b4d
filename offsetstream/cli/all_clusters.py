"""`--all-clusters`: what has it, and what cannot be said for all clusters at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import click
from click.core import ParameterSource

from offsetstream.errors import UsageError
from offsetstream.settings.config_file import ConfigFile
from offsetstream.settings.schema import PREFIX

FLAG = "--all-clusters"
# Where a context keeps what fills it by the file as a cluster has it, and the clusters that are asked for.
FILL, ASKED = f"{__name__}.fill", f"{__name__}.asked"
# Look-ups that print rows, which are asked of one cluster after the other; `sql` asks the tables of all at once.
LOOKUPS = frozenset(
    {
        *("groups.list", "groups.describe", "groups.status", "groups.rebalances", "groups.history", "lag"),
        *("offsets.list", "offsets.history", "offsets.audit", "offsets.expiring", "offsets.orphans"),
        *("partitions", "coordinator"),
    }
)
_EACH_ONES = ("tables", "checkpoint", "bootstrap_server", "metrics_port")
_SAID = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


def over_all(command: Callable[..., None]) -> Callable[..., None]:
    """Return what runs a look-up for all clusters, where these are asked for."""

    @wraps(command)
    def run(**options: Any) -> None:
        clusters = asked_clusters()
        if not clusters:
            command(**options)
            return
        from offsetstream.cli.over_all import ask_all  # noqa: PLC0415 - only who asks for it

        ask_all(click.get_current_context(), command, clusters)

    return run


def asked_clusters() -> dict[str, Callable[[], object]]:
    """Return, where all clusters are asked for, what has the context take its settings as each of them has them."""
    meta = click.get_current_context().meta
    return {name: partial(meta[FILL], name) for name in meta.get(ASKED, ())}


def clusters_of(ctx: click.Context, file: ConfigFile, cluster: object) -> tuple[str, ...]:
    """Return the names of all clusters of a file; click's UsageError where there is none, or a flag names one."""
    if cluster:
        raise click.UsageError(f"{FLAG} is of all, --cluster of one: give one of them", ctx)
    if not file.clusters:
        where = f"{file.path} has none" if file.path else "name the file that has them by --config"
        raise click.UsageError(f"{FLAG} are those of a file of settings: {where}", ctx)
    return file.clusters


def is_said(ctx: click.Context, name: str) -> bool:
    """Tell whether a flag or a variable gave an option its value."""
    return ctx.get_parameter_source(name) in _SAID


def require_of_file(ctx: click.Context) -> None:
    """Raise UsageError where a flag or a variable says for all clusters what is each one's own."""
    for name in _EACH_ONES:
        if ctx.params.get(name) and is_said(ctx, name):
            flag = f"--{name.replace('_', '-')}"
            by_flag = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
            unneeded = flag if by_flag else f"{PREFIX}{name.upper()}"
            raise UsageError(f"{FLAG} takes {flag} of each cluster from the file: leave out {unneeded}")
