"""Write the table `operations`: who changed what on the live cluster, when, and with which result.

It is a record, not a proof: anyone who can write the tables can change it.
"""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from offsetstream.operations.plan import Plan
from offsetstream.operations.snapshot import change_to_json
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.create import CLUSTER_ID
from offsetstream.tables.optional_tables import OPERATIONS
from offsetstream.tables.store import Store
from offsetstream.version import __version__


@dataclass(frozen=True)
class Journal:
    """Writes the rows of one operation."""

    store: Store
    cluster_id: str
    operation_id: str
    command: str

    def started(self, plan: Plan, snapshot: str) -> None:
        """Write the row that says that the operation starts. Call it before the first change."""
        changes = json.dumps([change_to_json(each) for each in plan.changes], ensure_ascii=False)
        self._append(plan, "started", snapshot, changes=changes)

    def ended(self, plan: Plan, snapshot: str, status: str, result: Mapping[str, Any]) -> None:
        """Write the row that has the operation's result."""
        self._append(plan, status, snapshot, result=json.dumps(result, ensure_ascii=False))

    def _append(self, plan: Plan, status: str, snapshot: str, **columns: str) -> None:
        row = {
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
            "snapshot": _utf8(snapshot),
            **columns,
        }
        _append(self.store, self.cluster_id, row)


@again_on_conflict
def _append(store: Store, cluster_id: str, row: Mapping[str, Any]) -> None:
    store.create(OPERATIONS, {CLUSTER_ID: cluster_id})
    store.open(OPERATIONS.name).append([pa.Table.from_pylist([dict(row)], schema=OPERATIONS.arrow)])


def _utf8(text: str) -> str:
    """Return the text with invalid bytes escaped, since a command line may have bytes that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user in a container may have no name
        return "unknown"
