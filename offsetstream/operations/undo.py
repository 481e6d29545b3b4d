"""The snapshot of an operation, with the offsets from before it, and the plan of its undo.

A snapshot is written before the first change. It is JSON with mode 0600, since clients may put anything into offset
metadata. In an undo, each partition gets its offset from the snapshot, unless somebody moved the group meanwhile. An
operation may have been killed halfway. So each partition has either its old offset or the operation's new one. If it
has another offset, somebody else moved it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from offsetstream.cluster.answers import CommittedOffset, Place, with_offsets
from offsetstream.cluster.client import require_to_read
from offsetstream.cluster.group_admin import GroupAdmin
from offsetstream.cluster.log_ends import Answers, LogEnd, TopicPartitionKey
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.cluster.reading import ends_of
from offsetstream.errors import OffsetstreamError, UsageError, first_line
from offsetstream.operations.plan import MOVED, OUT_OF_RANGE, Change, Objection, Plan
from offsetstream.operations.reset import (
    EVERYTHING,
    Scope,
    is_another,
    long_metadata,
    objections_to_group,
    open_transactions,
    recreation_objections,
    require_some,
    without_epochs,
)

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
        "changes": [each.to_json() for each in snapshot.changes],
    }


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


def plan_undo(
    cluster: MetadataCache, admin: GroupAdmin, snapshot: Snapshot, timeout: float, *, scope: Scope = EVERYTHING
) -> Plan:
    """Return the plan that reverts the snapshot's operation, or the part of it in `scope`.

    Skips deleted topics, which cannot have offsets. Raises whatever `GroupAdmin` and `Connection` raise.
    """
    plan = Plan("undo")
    require_some(scope, {each.place for each in snapshot.changes})
    wanted = [each for each in snapshot.changes if _is_in(scope, each.place)]
    require_to_read(cluster, {each.topic for each in wanted})
    ends = ends_of(cluster, {each.place for each in wanted}, time.monotonic() + timeout)
    gone = {each.place for each in wanted if TopicPartitionKey(*each.place) not in ends}
    plan.notes += [f"{topic}-{number} no longer exists and is skipped" for topic, number in sorted(gone)]
    by_group: dict[str, list[Change]] = {}
    for each in wanted:
        if each.place not in gone:
            by_group.setdefault(each.group_id, []).append(each)
    for group_id, changes in sorted(by_group.items()):
        committed = with_offsets(admin.offsets(group_id))
        plan.objections += objections_to_group(group_id, admin.standing(group_id), committed, may_be_new=True)
        plan.objections += open_transactions(admin, group_id, {each.place for each in changes})
        for each in changes:
            for found in _reverted(each, committed.get(each.place), ends):
                (plan.objections if isinstance(found, Objection) else plan.changes).append(found)  # type: ignore[arg-type]
    ids = {(each.group_id, each.place): {each.topic_id} for each in wanted if each.topic_id}
    plan.objections += [*recreation_objections(plan.changes, ids), *long_metadata(cluster, plan.changes)]
    plan.changes = without_epochs(plan.changes, plan.objections)
    return plan


def _is_in(scope: Scope, place: Place) -> bool:
    topic, number = place
    numbers = scope.topics.get(topic, ())
    return scope.all_topics or numbers is None or number in numbers


def _reverted(done: Change, committed: CommittedOffset | None, ends: Answers) -> Iterator[Change | Objection]:
    if committed == done.present:
        return  # never done, or already reverted
    found = ends.get(TopicPartitionKey(*done.place))
    end = found if isinstance(found, LogEnd) else None
    yield Change(
        done.group_id,
        *done.place,
        committed,
        done.present,
        *((end.log_start_offset, end.high_watermark, end.topic_id) if end else (None, None, None)),
    )
    is_recreated = end is not None and is_another(end.topic_id, [done.topic_id] if done.topic_id else ())
    # A deleted topic loses its offsets: then nobody moved the group, and `recreation_objections` yields the objection.
    if committed != done.new and not (committed is None and is_recreated):
        yield Objection(
            MOVED,
            done.group_id,
            done.place,
            f"the group has moved since: its committed offset is now {_offset_text(committed)}",
        )
    if done.present is None:
        return
    if end is not None and not (end.log_start_offset or 0) <= (done.present.offset or 0) <= end.high_watermark:
        reason = (
            f"offset {done.present.offset} is now outside the log ({end.log_start_offset or 0} to "
            f"{end.high_watermark}): it would still be committed"
        )
        yield Objection(OUT_OF_RANGE, done.group_id, done.place, reason)


def _offset_text(committed: CommittedOffset | None) -> str:
    return "none" if committed is None else str(committed.offset)
