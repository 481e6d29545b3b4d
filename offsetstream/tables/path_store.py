"""Tables at paths: a folder (local, or of any store that Spark and delta-rs both reach) with one Delta table each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PathStore:
    """One cluster's tables in a folder; ``root`` is its path or URI, without a slash at its end."""

    root: str

    def table(self, name: str) -> str:
        """Return the path or URI of the table ``name``."""
        return f"{self.root}/{name}"
