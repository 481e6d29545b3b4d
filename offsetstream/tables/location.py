"""Where the tables lie: a folder (local, or any store that Spark and delta-rs both reach) with one Delta table each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from offsetstream.errors import UsageError

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)  # as of dbfs:/kafka, which delta-rs does not reach


def is_utf8(text: str) -> bool:
    """Tell whether the text can be written as UTF-8: it has no lone surrogate, as Python makes of other bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True)
class TablesLocation:
    """The folder that holds one cluster's tables; ``root`` has no slash at its end."""

    root: str

    @classmethod
    def parse(cls, text: str) -> TablesLocation:
        """Return the location that a user named: a URI as it is, a local path made absolute.

        UsageError for a name that is not UTF-8, which neither Delta nor Spark takes.
        """
        if not is_utf8(text):
            raise UsageError(f"the name of the folder {text} is not UTF-8: name another one")
        if "://" in text:
            return cls(text.rstrip("/"))
        if _SCHEME.match(text):
            raise UsageError(
                f"{text} is neither a folder nor a URI with '://': name one such as s3a://lake/kafka, or the folder "
                "where the store is mounted, such as /dbfs/kafka or /Volumes/..."
            )
        try:
            return cls(str(Path(text).expanduser().absolute()))
        except RuntimeError as error:  # of a user's home that there is not
            raise UsageError(f"{text} names no folder: {error}") from error

    def table(self, name: str) -> str:
        """Return the path or URI of the table ``name``."""
        return f"{self.root}/{name}"
