"""The settings of `offsetstream maintain`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from offsetstream.errors import UsageError
from offsetstream.settings.kinds import DAYS
from offsetstream.settings.schema import CONF, KEEP_HISTORY, MASTER, TABLES, TIMEOUT, Option, Settings
from offsetstream.tables.schema import all_schemas


def horizons(keep_history: Sequence[str], today: date) -> dict[str, date]:
    """Return for each history table before which day it is thinned; tables that keep everything are missing.

    `keep_history`: a number of days such as `30d`, and those of single tables such as `offset_commits=7d`. UsageError
    for another table.
    """
    tables = [name for name, schema in all_schemas().items() if schema.cell]
    kept: dict[str, timedelta] = {}
    for each in keep_history:
        table, _, duration = each.rpartition("=")
        if table and table not in tables:
            raise UsageError(f"the setting keep_history: {table!r} is none of the tables {', '.join(tables)}")
        kept[table] = DAYS.read(duration)
    return {table: today - kept.get(table, kept.get("", timedelta())) for table in tables if kept.keys() & {table, ""}}


@dataclass(frozen=True, kw_only=True)
class MaintenanceSettings(Settings):
    """The settings of `offsetstream maintain`.

    `timeout`: seconds. `master`, `conf`: for a catalog and `fill_history`.
    """

    tables: Annotated[str, TABLES] = "tables"
    keep_history: Annotated[tuple[str, ...], KEEP_HISTORY] = ()
    fill_history: Annotated[
        bool,
        Option(
            "Decode records of groups that were written before the job decoded them (with Spark). You can interrupt "
            "it and run it again."
        ),
    ] = False
    end: Annotated[
        bool,
        Option(
            "Only record that no job updates these tables any more, as for a copy of an incident: their last sample is "
            'their "now", and they are never stale. The next job on them undoes this.',
        ),
    ] = False
    dry_run: Annotated[bool, Option("Show what there is to do, and change nothing.")] = False
    timeout: Annotated[float, TIMEOUT] = 300.0
    master: Annotated[str | None, MASTER] = None
    conf: Annotated[Mapping[str, str], CONF] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        horizons(self.keep_history, datetime.now(UTC).date())
