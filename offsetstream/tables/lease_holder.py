"""The holder of the lease, and whether it is alive: its heartbeat must change. Other hosts' clocks are not trusted."""

from __future__ import annotations

import enum
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

LIFETIME = timedelta(seconds=60)  # six heartbeats


@dataclass(frozen=True)
class LeaseRow:
    """The current lease: its holder, the holder's checkpoint, and the requests to the holder."""

    checkpoint_id: int
    checkpoint_location: str | None
    owner: str | None
    host: str | None
    pid: int | None
    heartbeat_at: datetime | None  # clock of the holder's host
    stop_requested_by: str | None
    reload_requested: str | None
    history_kept_from: datetime | None

    @property
    def holder(self) -> str:
        """The holder's process and host, for a message."""
        return f"process {self.pid} on {self.host}"

    @property
    def last_heartbeat(self) -> str:
        """The last heartbeat, for a message."""
        if self.heartbeat_at is None:
            return "none"
        return f"{self.heartbeat_at:%Y-%m-%d %H:%M:%S} UTC by the clock of that host"


class HolderState(enum.Enum):
    """Whether the job that holds a lease is alive, as far as known."""

    DEAD = "dead"  # or nobody holds the lease
    ALIVE = "alive"
    UNSURE = "unsure"


class HeartbeatWatch:
    """Finds out whether the holder of a lease is alive; it may need several looks.

    On this host it is known at once: the process has died, or its last heartbeat is recent by this host's clock. The
    clock of another host may be hours off. A holder there is alive once its heartbeat has changed between two looks.
    It is dead once its heartbeat has not changed for `LIFETIME`, by this process's monotonic clock.
    """

    def __init__(self) -> None:
        self._sign: tuple[str | None, datetime | None] | None = None
        self._since = 0.0
        self._has_changed = False

    def look(self, read: Callable[[], LeaseRow | None]) -> tuple[LeaseRow | None, HolderState]:
        """Read the lease; return it, and whether its holder is alive."""
        started = time.monotonic()  # taken before the read, because this process may be suspended at any line
        row = read()
        if row is None or row.owner is None:
            return row, HolderState.DEAD
        if (known := _known_here(row)) is not None:
            return row, known
        sign = (row.owner, row.heartbeat_at)
        if sign != self._sign:
            self._has_changed = self._sign is not None
            self._sign, self._since = sign, time.monotonic()
        elif started - self._since >= LIFETIME.total_seconds():
            return row, HolderState.DEAD
        return row, HolderState.ALIVE if self._has_changed else HolderState.UNSURE


def here() -> str:
    """Return a prefix that identifies this host and its process namespace.

    Containers may share a host name, but each has its own process ids.
    """
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()}/{boot_id}/{Path('/proc/self/ns/pid').stat().st_ino}/"
    except OSError:  # not on Linux
        return f"{socket.gethostname()}/"


def is_known_dead(process: str | None) -> bool:
    """Return whether the process, named by `here()` and its id, ran on this host and has died."""
    number = process.removeprefix(here()) if process and process.startswith(here()) else ""
    return number.isdigit() and int(number) != os.getpid() and not _is_another_live_process(int(number))


def _known_here(row: LeaseRow) -> HolderState | None:
    """Return whether the holder is alive if it ran on this host and this host knows; else None."""
    if row.owner is None or row.host != socket.gethostname() or not row.owner.startswith(here()):
        return None
    if not _is_another_live_process(row.pid):
        return HolderState.DEAD
    # A suspended process, or another process that now has its id, writes no heartbeat.
    age = None if row.heartbeat_at is None else datetime.now(UTC) - row.heartbeat_at
    return HolderState.ALIVE if age is not None and timedelta(0) <= age < LIFETIME else None


def _is_another_live_process(pid: int | None) -> bool:
    if pid is None or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
