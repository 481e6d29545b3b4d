"""Whether this process runs in Databricks' runtime."""

from __future__ import annotations

import os


def is_databricks() -> bool:
    """Tell whether this process runs in Databricks' runtime, by the variable that it sets."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ
