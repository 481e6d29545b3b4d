"""The table `operations`: who did what to the live cluster, when and with which result. It is recorded, not proven."""

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
from offsetstream.tables.beside import OPERATIONS
from offsetstream.tables.conflict import again_on_conflict
from offsetstream.tables.create import CLUSTER_ID
from offsetstream.tables.store import Store
from offsetstream.version import __version__


@dataclass(frozen=True)
class Journal:
    """Where one operation leaves its rows."""

    store: Store
    cluster_id: str
    operation_id: str
    command: str

    def started(self, plan: Plan, snapshot: str) -> None:
        """Note that an operation begins: before anything is done."""
        changes = json.dumps([change_to_json(each) for each in plan.changes], ensure_ascii=False)
        self._append(plan, "started", snapshot, changes=changes)

    def ended(self, plan: Plan, snapshot: str, status: str, result: Mapping[str, Any]) -> None:
        """Note how it ended."""
        self._append(plan, status, snapshot, result=json.dumps(result, ensure_ascii=False))

    def _append(self, plan: Plan, status: str, snapshot: str, **more: str) -> None:
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
            **more,
        }
        _append(self.store, self.cluster_id, row)


@again_on_conflict
def _append(store: Store, cluster_id: str, row: Mapping[str, Any]) -> None:
    store.create(OPERATIONS, {CLUSTER_ID: cluster_id})
    store.open(OPERATIONS.name).append([pa.Table.from_pylist([dict(row)], schema=OPERATIONS.arrow)])


def _utf8(text: str) -> str:
    """Return a text that may have bytes of a command line which are none, as a table can keep it."""
    return text.encode("utf-8", "backslashreplace").decode()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return "unknown"
