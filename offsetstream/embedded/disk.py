"""Check free disk space before starting something that fails badly without it."""

import shutil
from pathlib import Path

from offsetstream.errors import EnvironmentNotReadyError

MEBIBYTE = 1 << 20


def check_disk_space(folder: Path, needed_bytes: int, purpose: str) -> None:
    """Raise EnvironmentNotReadyError unless the disk of `folder` has `needed_bytes` free.

    If `folder` does not exist yet, its nearest existing parent is checked.
    """
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < needed_bytes:
        raise EnvironmentNotReadyError(
            f"Not enough disk space for {purpose}: {folder} has {free // MEBIBYTE} MiB free and needs "
            f"{needed_bytes // MEBIBYTE} MiB. Free some space, or choose another folder"
        )
