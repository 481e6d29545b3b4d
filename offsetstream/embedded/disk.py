"""Checks that a folder's disk has room before something is started that fails badly without it."""

import shutil
from pathlib import Path

from offsetstream.errors import EnvironmentNotReadyError

MEBIBYTE = 1 << 20


def check_disk_space(folder: Path, needed_bytes: int, purpose: str) -> None:
    """Raise EnvironmentNotReadyError, one line, unless the disk of `folder` has `needed_bytes` free.

    `folder` need not exist yet: its nearest existing parent is asked.
    """
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < needed_bytes:
        raise EnvironmentNotReadyError(
            f"Too little disk for {purpose}: {folder} has {free // MEBIBYTE} MiB free, "
            f"{needed_bytes // MEBIBYTE} MiB are needed; free some or choose another folder"
        )
