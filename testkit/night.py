"""The night that README tells of: its tables (tests/fixtures/night/), and what commands print of them.

`python -m testkit.night` writes this into README and docs/how-to/operations.md, below the commands that stand there.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

from testkit.processes import offsetstream
from testkit.tables import append_rows, new_tables, table_schemas

FIXTURE = Path(__file__).parents[1] / "tests" / "fixtures" / "night"
README = Path(__file__).parents[1] / "README.md"
GUIDE = Path(__file__).parents[1] / "docs" / "how-to" / "operations.md"
TABLES = sorted(table_schemas().keys() - {"group_cells", "history_ledger", "job_lease"})  # which the job alone reads
SECTION = re.compile(r"^## The night of .*?(?=^## )", re.DOTALL | re.MULTILINE)
SHOWN = re.compile(r"(?<=^```text\n)\$ offsetstream (.*?)\n(.*?)(?=^```)", re.DOTALL | re.MULTILINE)


def night_tables(root: Path) -> None:
    """Make the tables."""
    new_tables(root)
    for file in sorted(FIXTURE.glob("*.parquet")):
        append_rows(root, file.stem, pq.read_table(file).to_pylist())


def answer(tables: Path, command: str) -> str:
    """What a user sees of a command."""
    done = offsetstream(*shlex.split(command), environment={"OFFSETSTREAM_TABLES": str(tables)})
    return done.stdout + done.stderr


def main() -> None:
    with TemporaryDirectory(prefix="offsetstream-") as made:
        night_tables(Path(made))
        tables = Path(made)
        told = SECTION.sub(lambda section: _answered(tables, section[0]), README.read_text("utf-8"))
        guide = _answered(tables, GUIDE.read_text("utf-8"))
    README.write_text(told, "utf-8")
    GUIDE.write_text(guide, "utf-8")


def _answered(tables: Path, text: str) -> str:
    return SHOWN.sub(lambda shown: f"$ offsetstream {shown[1]}\n{answer(tables, shown[1])}", text)


if __name__ == "__main__":
    main()
