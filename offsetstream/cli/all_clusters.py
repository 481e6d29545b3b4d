"""`--all-clusters`: which commands have it, and which options cannot be given for all clusters at once."""

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
# Keys of a click context: the function that fills it with a cluster's settings, and the selected clusters.
FILL, ASKED = f"{__name__}.fill", f"{__name__}.asked"
# Look-ups that print rows and run for one cluster after the other; `sql` reads the tables of all at once.
LOOKUPS = frozenset(
    {
        *("groups.list", "groups.describe", "groups.status", "groups.rebalances", "groups.history", "lag"),
        *("offsets.list", "offsets.history", "offsets.audit", "offsets.expiring", "offsets.orphans"),
        *("partitions", "coordinator"),
    }
)
_PER_CLUSTER = ("tables", "checkpoint", "bootstrap_server", "metrics_port")
_EXPLICIT = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


def over_all(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a look-up so that it runs for each cluster if `--all-clusters` is given."""

    @wraps(command)
    def run(**options: Any) -> None:
        clusters = asked_clusters()
        if not clusters:
            command(**options)
            return
        from offsetstream.cli.many_clusters import query_all_clusters  # noqa: PLC0415 - only for --all-clusters

        query_all_clusters(click.get_current_context(), command, clusters)

    return run


def asked_clusters() -> dict[str, Callable[[], object]]:
    """Return by cluster a function that fills the context with its settings; empty without `--all-clusters`."""
    meta = click.get_current_context().meta
    return {name: partial(meta[FILL], name) for name in meta.get(ASKED, ())}


def clusters_of(ctx: click.Context, file: ConfigFile, cluster: object) -> tuple[str, ...]:
    """Return the names of all clusters of a file. Raises click's UsageError if it has none, or a flag names one."""
    if cluster:
        raise click.UsageError(f"give {FLAG} or --cluster, not both", ctx)
    if not file.clusters:
        reason = f"{file.path} has none" if file.path else "name a settings file by --config"
        raise click.UsageError(f"{FLAG} reads the clusters of a settings file: {reason}", ctx)
    return file.clusters


def is_explicit(ctx: click.Context, name: str) -> bool:
    """Return whether a flag or an environment variable gave an option its value."""
    return ctx.get_parameter_source(name) in _EXPLICIT


def require_from_file(ctx: click.Context) -> None:
    """Raise UsageError if a flag or variable gives all clusters one value of an option that each needs for itself."""
    for name in _PER_CLUSTER:
        if ctx.params.get(name) and is_explicit(ctx, name):
            flag = f"--{name.replace('_', '-')}"
            by_flag = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
            given = flag if by_flag else f"{PREFIX}{name.upper()}"
            raise UsageError(f"{FLAG} takes {flag} of each cluster from the file: remove {given}")
