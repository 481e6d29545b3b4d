"""Who holds the lease, and whether that job lives: by whether its heartbeat changes, never by another host's clock."""

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
    """The lease as it stands: who holds it, under which checkpoint, and what the holder is asked to do."""

    checkpoint_id: int
    checkpoint_location: str | None
    owner: str | None
    host: str | None
    pid: int | None
    heartbeat_at: datetime | None  # by the clock of the holder's host
    stop_requested_by: str | None
    reload_requested: str | None
    history_kept_from: datetime | None

    @property
    def holder(self) -> str:
        """The holder's process and host, for a message."""
        return f"process {self.pid} on {self.host}"

    @property
    def sign_of_life(self) -> str:
        """The last heartbeat, for a message."""
        if self.heartbeat_at is None:
            return "none"
        return f"{self.heartbeat_at:%Y-%m-%d %H:%M:%S} UTC by the clock of that host"


class Life(enum.Enum):
    """Whether the job that holds a lease lives, as far as one can tell by now."""

    DEAD = "dead"  # or nobody holds it
    ALIVE = "alive"
    UNSURE = "unsure"


class HeartbeatWatch:
    """Tells whether the holder of a lease lives, the better the longer it looks.

    A dead process of this host is known to be dead, and one that has just written a heartbeat by this host's clock to
    be alive. Of any other the clock may be hours off: it is alive once its heartbeat was seen to change, and dead once
    the same heartbeat was seen for the lifetime, by the monotonic clock of this process.
    """

    def __init__(self) -> None:
        self._sign: tuple[str | None, datetime | None] | None = None
        self._since = 0.0
        self._has_changed = False

    def look(self, read: Callable[[], LeaseRow | None]) -> tuple[LeaseRow | None, Life]:
        """Read the lease; return it, and whether its holder lives."""
        asked = time.monotonic()  # before it is read: this process may stand still at any line
        row = read()
        if row is None or row.owner is None:
            return row, Life.DEAD
        if (known := _known_here(row)) is not None:
            return row, known
        sign = (row.owner, row.heartbeat_at)
        if sign != self._sign:
            self._has_changed = self._sign is not None
            self._sign, self._since = sign, time.monotonic()
        elif asked - self._since >= LIFETIME.total_seconds():
            return row, Life.DEAD
        return row, Life.ALIVE if self._has_changed else Life.UNSURE


def here() -> str:
    """Return where a process's number is its own: containers may share a host's name, and each counts for itself."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()}/{boot_id}/{Path('/proc/self/ns/pid').stat().st_ino}/"
    except OSError:  # not on Linux
        return f"{socket.gethostname()}/"


def _known_here(row: LeaseRow) -> Life | None:
    """Return what this host's processes and its own clock say of the holder; None if that is nothing."""
    if row.owner is None or row.host != socket.gethostname() or not row.owner.startswith(here()):
        return None
    if not _is_another_live_process(row.pid):
        return Life.DEAD
    # A process that stands still, or another one that got its number, gives no heartbeat.
    age = None if row.heartbeat_at is None else datetime.now(UTC) - row.heartbeat_at
    return Life.ALIVE if age is not None and timedelta(0) <= age < LIFETIME else None


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
