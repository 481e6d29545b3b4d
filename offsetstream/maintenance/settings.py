"""What a user says of the maintenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated

from offsetstream.settings.kinds import DAYS
from offsetstream.settings.schema import CONF, MASTER, TABLES, TIMEOUT, Option, Settings


@dataclass(frozen=True, kw_only=True)
class MaintenanceSettings(Settings):
    """The settings of `offsetstream maintain`; `timeout` in seconds, `master` and `conf` for a catalog
    and for `fill_history`.
    """

    tables: Annotated[str, TABLES] = "tables"
    keep_history: Annotated[
        timedelta | None,
        Option(
            "Of the days before that, keep the last row of each cell: 30d, 4w [default: keep everything].",
            "DURATION",
            DAYS,
        ),
    ] = None
    fill_history: Annotated[
        bool,
        Option(
            "Decode what was recorded before the job decoded groups into their history (by Spark); may be interrupted "
            "and goes on then."
        ),
    ] = False
    end: Annotated[
        bool,
        Option(
            "Only note that no job keeps these tables any more, such as a copy that is a case: their now is their "
            "last look, and they are never stale. A job that begins takes it back.",
        ),
    ] = False
    dry_run: Annotated[bool, Option("Say what there is to do, and do nothing.")] = False
    timeout: Annotated[float, TIMEOUT] = 300.0
    master: Annotated[str | None, MASTER] = None
    conf: Annotated[Mapping[str, str], CONF] = field(default_factory=dict, repr=False)
