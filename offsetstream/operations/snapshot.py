"""The snapshot of an operation: a file with the offsets from before it, and all that an undo needs.

It is written before the first change. It is JSON with mode 0600, since clients may put anything into offset metadata.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from offsetstream.cluster.answers import CommittedOffset
from offsetstream.errors import OffsetstreamError, UsageError, first_line
from offsetstream.operations.plan import Change, Plan

_FORMAT = 1
_FOLDER = "snapshots"
Row = dict[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """The changes of an operation, with the offsets from before it. `operation_id` is part of its file's name."""

    operation_id: str
    kind: str
    cluster_id: str
    written_at: datetime
    changes: tuple[Change, ...]
    deleted_groups: tuple[str, ...] = ()

    @classmethod
    def of_plan(cls, plan: Plan, operation_id: str, cluster_id: str) -> Snapshot:
        """Return the snapshot for a plan."""
        groups = tuple(plan.deleted_groups)
        return cls(operation_id, plan.kind, cluster_id, datetime.now(UTC), tuple(plan.changes), groups)


def default_folder(tables: str) -> Path:
    """Return the snapshot folder next to the tables. Raises UsageError if the tables are not on this machine."""
    if "://" in tables or not Path(tables).is_dir():
        raise UsageError(f"{tables} is not a folder on this machine. Name a folder for snapshots with --snapshots")
    return Path(tables) / _FOLDER


def write_snapshot(folder: Path, snapshot: Snapshot) -> Path:
    """Write the snapshot and sync it to disk. Return its path. Raises UsageError if that fails."""
    path = folder / f"{snapshot.written_at:%Y%m%dT%H%M%S.%fZ}-{snapshot.kind}-{snapshot.operation_id}.json"
    unfinished = path.with_name(f"{path.stem}.unfinished")
    try:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(_to_json(snapshot), file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        for each in {folder, *(each.parent for each in missing)}:
            _sync(each)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink()
        raise UsageError(f"Cannot write a snapshot to {folder}: {first_line(error)}. Nothing was changed") from error
    return path


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot. Raises OffsetstreamError if it is invalid or has another version's format."""
    try:
        found = json.loads(path.read_text("utf-8"))
        if found["format"] != _FORMAT:
            raise OffsetstreamError(f"Another version of offsetstream wrote {path}. Use that version")
        return Snapshot(
            _text(found["operation_id"]),
            _text(found["kind"]),
            _text(found["cluster_id"]),
            datetime.fromisoformat(found["written_at"]),
            tuple(_change(each) for each in found["changes"]),
            tuple(map(_text, found["deleted_groups"])),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise OffsetstreamError(f"Cannot read the snapshot {path}: {first_line(error)}") from error


def newest_snapshot(folder: Path) -> Path:
    """Return the newest snapshot in the folder, except those of undos: a second undo then changes nothing.

    Raises OffsetstreamError if there is none.
    """
    found = sorted(path for path in folder.glob("*.json") if "-undo-" not in path.name)
    if not found:
        raise OffsetstreamError(f"There is no snapshot in {folder}. Name a snapshot, or its folder with --snapshots")
    return found[-1]


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _to_json(snapshot: Snapshot) -> Row:
    return {
        "format": _FORMAT,
        "operation_id": snapshot.operation_id,
        "kind": snapshot.kind,
        "cluster_id": snapshot.cluster_id,
        "written_at": snapshot.written_at.isoformat(),
        "deleted_groups": list(snapshot.deleted_groups),
        "changes": [change_to_json(each) for each in snapshot.changes],
    }


def change_to_json(change: Change) -> Row:
    """Return a change as plain values, with the offset before and after it."""
    return {
        "group": change.group_id,
        "topic": change.topic,
        "topic_id": change.topic_id,
        "partition": change.partition,
        "before": _offset_to_json(change.present),
        "after": _offset_to_json(change.new),
    }


def _offset_to_json(committed: CommittedOffset | None) -> Row | None:
    if committed is None:
        return None
    return {"offset": committed.offset, "leader_epoch": committed.leader_epoch, "metadata": committed.metadata}


def _change(row: Mapping[str, Any]) -> Change:
    return Change(
        _text(row["group"]),
        _text(row["topic"]),
        _number(row["partition"]),
        _offset(row["before"]),
        _offset(row["after"]),
        topic_id=None if row["topic_id"] is None else _text(row["topic_id"]),
    )


def _offset(row: Mapping[str, Any] | None) -> CommittedOffset | None:
    if row is None:
        return None
    epoch = row["leader_epoch"]
    return CommittedOffset(_number(row["offset"]), None if epoch is None else _number(epoch), _text(row["metadata"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, not {value!r}")
    value.encode()  # JSON may have unpaired surrogates
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"expected a number, not {value!r}")
    return value
