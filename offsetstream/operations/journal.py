"""The table `operations`: who changes groups of the live cluster now, who did before, and with which result.

An operation holds its groups by a row with `held_until`, so that no other operation changes them at the same time. The
row has the status `taken` until the operation starts; then the row `started` replaces it. All commits carry a
transaction with the same id: of two concurrent ones, the second fails and reads again. Kafka's own tools and other
tables folders are outside this.

The table is a record, not a proof: anyone who can write the tables can change it.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import pyarrow as pa

from offsetstream.errors import OffsetstreamError, TablesError, TakenGroupError
from offsetstream.operations.plan import Plan
from offsetstream.tables.create import CLUSTER_ID
from offsetstream.tables.lease import here, is_known_dead
from offsetstream.tables.schema import OPERATIONS
from offsetstream.tables.small_tables import as_utc, read_rows
from offsetstream.tables.sql import sql_text
from offsetstream.tables.store import Snapshot, Store, Transaction, require_version
from offsetstream.tables.transaction import again_on_conflict
from offsetstream.version import __version__

TAKEN, STARTED = "taken", "started"
HOLD, RENEW_AFTER = timedelta(minutes=5), timedelta(minutes=1)
_APP_ID = "offsetstream/operations/change"
_FREE: dict[str, Any] = {"held_by": None, "held_until": None}
Row: TypeAlias = dict[str, Any]


@dataclass
class Journal:
    """Writes the rows of one operation, and holds its groups for `hold`; `keep` renews that."""

    store: Store
    cluster_id: str
    operation_id: str
    command: str
    hold: timedelta = HOLD
    _renewed_at: datetime = field(default=datetime.min.replace(tzinfo=UTC), init=False)
    _is_holding: bool = field(default=False, init=False)

    @contextmanager
    def holding(self, plan: Plan) -> Iterator[None]:
        """Hold the groups of the plan. Raises TakenGroupError if another operation holds one of them.

        A hold whose process has died, or whose time is over, is taken over.
        """
        self._commit(lambda rows: self._take(plan, rows))
        self._is_holding = True
        try:
            yield
        finally:
            with suppress(OffsetstreamError):  # then the hold ends with this process, or with its time
                if self._is_holding:
                    self._commit(lambda rows: [row | _FREE for row in self._own(rows) if row["status"] != TAKEN])

    def keep(self) -> None:
        """Renew the hold if it is due. Raises OffsetstreamError if another operation has taken the groups over.

        Tables that cannot be written for a while are no reason to stop half-way: the hold still has some minutes then.
        """
        age = datetime.now(UTC) - self._renewed_at  # not a monotonic clock: that stops while the machine sleeps
        if age < RENEW_AFTER:
            return
        try:
            self._commit(lambda rows: [row | self._mine() for row in self._held(rows)])
        except TablesError:
            if age >= self.hold - RENEW_AFTER or age >= 4 * RENEW_AFTER:
                raise

    def started(self, plan: Plan, snapshot: str) -> None:
        """Write the row that says that the operation starts. Call it before the first change."""
        changes = json.dumps([each.to_json() for each in plan.changes], ensure_ascii=False)
        row = self._row(plan, STARTED, snapshot=_utf8(snapshot), changes=changes)
        self._commit(lambda rows: [row | self._mine() for _ in self._held(rows)])

    def ended(self, plan: Plan, snapshot: str, status: str, result: Mapping[str, Any]) -> None:
        """Write the row that has the operation's result; it frees the groups."""
        row = self._row(plan, status, snapshot=_utf8(snapshot), result=json.dumps(result, ensure_ascii=False))
        self._commit(lambda rows: [*(each | _FREE for each in self._own(rows)), row])
        self._is_holding = False

    def _take(self, plan: Plan, rows: list[Row]) -> list[Row]:
        dead = [row for row in rows if _is_over(row)]
        for row in rows:
            if row not in dead and (shared := set(json.loads(row["groups"])) & set(plan.group_ids)):
                raise TakenGroupError(_taken(row, shared))
        known = [row | _FREE for row in dead if row["status"] != TAKEN]  # a row `taken` is no operation that happened
        return [*known, self._row(plan, TAKEN) | self._mine()]

    def _held(self, rows: list[Row]) -> list[Row]:
        held = [row for row in self._own(rows) if row["held_until"] is not None]
        if not held:
            raise OffsetstreamError(
                f"Another operation has taken over the groups of operation {self.operation_id}, which stood still for "
                f"more than {self.hold.total_seconds():.0f} s: this one stops. See the table operations"
            )
        return held

    def _own(self, rows: list[Row]) -> list[Row]:
        return [row for row in rows if row["operation_id"] == self.operation_id]

    def _mine(self) -> Row:
        return {"held_by": f"{here()}{os.getpid()}", "held_until": datetime.now(UTC) + self.hold}

    def _row(self, plan: Plan, status: str, **columns: str) -> Row:
        return {
            "operation_id": self.operation_id,
            "happened_at": datetime.now(UTC),
            "kind": plan.kind,
            "status": status,
            "user_name": _user(),
            "host": socket.gethostname(),
            "client_version": __version__,
            "cluster_id": self.cluster_id,
            "command": _utf8(self.command),
            "groups": json.dumps(plan.group_ids, ensure_ascii=False),
            **columns,
        }

    @again_on_conflict
    def _commit(self, change: Callable[[list[Row]], list[Row]]) -> None:
        """Replace the rows of this operation, and of holds that are over, by what `change` makes of all held rows."""
        table = _open(self.store, self.cluster_id)
        at = datetime.now(UTC)
        rows = read_rows(table, f"held_until IS NOT NULL OR operation_id = {sql_text(self.operation_id)}")
        after = change(rows)
        ids = {self.operation_id, *(row["operation_id"] for row in after)}
        ids |= {row["operation_id"] for row in rows if row["status"] == TAKEN and _is_over(row)}
        _replace(table, ids, after)
        self._renewed_at = at


def _open(store: Store, cluster_id: str) -> Snapshot:
    table = store.opened(OPERATIONS.name)
    if table is None:
        store.create(OPERATIONS, {CLUSTER_ID: cluster_id})
        table = store.open(OPERATIONS.name)
    require_version(table)
    return table


def _replace(table: Snapshot, ids: Collection[str], rows: list[Row]) -> None:
    # The number is this writer's alone: a store takes a version that it finds for its own commit whose answer was lost.
    number = ((table.transaction_version(_APP_ID) or 0) >> 32) + 1
    transaction = Transaction(_APP_ID, number << 32 | secrets.randbits(32))
    where = f"operation_id IN ({', '.join(map(sql_text, sorted(ids)))})"
    table.replace(where, [pa.Table.from_pylist(rows, schema=table.arrow)], transaction)


def _is_over(row: Row) -> bool:
    return row["held_until"] is not None and (
        as_utc(row["held_until"]) <= datetime.now(UTC) or is_known_dead(row["held_by"])
    )


def _taken(row: Row, groups: Collection[str]) -> str:
    name = min(groups)
    more = f" and {len(groups) - 1} more of these groups" if len(groups) > 1 else ""
    return (
        f"{row['user_name']}@{row['host']} has been changing group '{name}'{more} since "
        f"{as_utc(row['happened_at']):%Y-%m-%d %H:%M:%S} UTC ({row['kind']}, operation {row['operation_id']}). Nothing "
        "was changed. Run this command again when that one has ended; if it was killed on another machine, from "
        f"{as_utc(row['held_until']):%H:%M:%S} UTC on"
    )


def _utf8(text: str) -> str:
    """Return the text with invalid bytes escaped, since a command line may have bytes that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user in a container may have no name
        return "unknown"
