"""Where the tables lie: a folder (local, or any store that Spark and delta-rs both reach) with one Delta table each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class TablesLocation:
    """The folder that holds one cluster's tables; ``root`` has no slash at its end."""

    root: str

    @classmethod
    def parse(cls, text: str) -> TablesLocation:
        """Return the location that a user named: a URI as it is, a local path made absolute."""
        if "://" in text:
            return cls(text.rstrip("/"))
        return cls(str(Path(text).expanduser().absolute()))

    def table(self, name: str) -> str:
        """Return the path or URI of the table ``name``."""
        return f"{self.root}/{name}"
