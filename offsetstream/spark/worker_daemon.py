"""The process that Spark forks its Python workers from, instead of PySpark's own: what they need is there already.

Spark puts archives first on their path, one of PySpark and a jar. In each task PySpark has Python read the directories
of these anew (0.15 s of a core), and what comes from them is compiled in each process.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

# What the tasks of batches and loads import.
_NEEDED = ("pandas", "pyarrow.compute", "pyarrow.parquet", "offsetstream.codec.udf")


def installed_instead(path: Iterable[str]) -> list[str]:
    """Return the path without the archives that are within a package `pyspark` of one of its folders."""
    entries = list(path)
    packages = {Path(entry).resolve() / "pyspark" for entry in entries}
    return [entry for entry in entries if packages.isdisjoint(Path(entry).resolve().parents)]


def main() -> None:
    """Fork workers as Spark asks for them, until it ends."""
    sys.path[:] = installed_instead(sys.path)
    sys.path_importer_cache.clear()  # this module was looked for in the archives
    daemon = import_module("pyspark.daemon")
    for name in _NEEDED:
        import_module(name)
    # PySpark looks for garbage after each task: not among all of this.
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
