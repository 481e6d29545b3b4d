"""The settings of `offsetstream maintain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated

from offsetstream.settings.kinds import DAYS
from offsetstream.settings.schema import CONF, MASTER, TABLES, TIMEOUT, Option, Settings


@dataclass(frozen=True, kw_only=True)
class MaintenanceSettings(Settings):
    """The settings of `offsetstream maintain`.

    `timeout`: seconds. `master`, `conf`: for a catalog and `fill_history`.
    """

    tables: Annotated[str, TABLES] = "tables"
    keep_history: Annotated[
        timedelta | None,
        Option(
            "Thin older history: keep the last row of each cell and day. Such as 30d or 4w (default: keep all).",
            "DURATION",
            DAYS,
        ),
    ] = None
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
