"""The process from which Spark forks Python workers, instead of PySpark's own. It has imported their packages.

Spark puts two archives first on the workers' path: PySpark and a jar. In each task, Python reads their directories
again (0.15 s of a core), and each process compiles modules from them again. This daemon avoids both.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

# The imports of our tasks.
_NEEDED = ("pandas", "pyarrow.compute", "pyarrow.parquet", "offsetstream.codec.udf")


def installed_instead(path: Iterable[str]) -> list[str]:
    """Return the path without archives that are inside a `pyspark` package of the same path."""
    entries = list(path)
    packages = {Path(entry).resolve() / "pyspark" for entry in entries}
    return [entry for entry in entries if packages.isdisjoint(Path(entry).resolve().parents)]


def main() -> None:
    """Fork workers on Spark's request, until it ends."""
    sys.path[:] = installed_instead(sys.path)
    sys.path_importer_cache.clear()  # Python has cached importers for the archives
    daemon = import_module("pyspark.daemon")
    for name in _NEEDED:
        import_module(name)
    # PySpark collects garbage after each task. Exclude everything that exists now.
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
