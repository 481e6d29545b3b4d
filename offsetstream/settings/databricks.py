"""Detect Databricks' runtime."""

from __future__ import annotations

import os


def is_databricks() -> bool:
    """Tell whether this process runs in Databricks' runtime, which sets the variable."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ
