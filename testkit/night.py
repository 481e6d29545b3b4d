"""The recorded incident in the documents: its tables (tests/fixtures/night/), and the output of commands on them.

`python -m testkit.night` writes the output below the commands in the documents.
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
ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *(ROOT / "docs" / "how-to" / name for name in ("investigate.md", "runbooks.md"))]
TABLES = sorted(table_schemas().keys() - {"group_cells", "history_ledger", "job_lease"})  # only the job reads them
SHOWN = re.compile(r"(?<=^```text\n)\$ offsetstream (.*?)\n(.*?)(?=^```)", re.DOTALL | re.MULTILINE)


def night_tables(root: Path) -> None:
    """Create the tables of the incident."""
    new_tables(root)
    for file in sorted(FIXTURE.glob("*.parquet")):
        append_rows(root, file.stem, pq.read_table(file).to_pylist())


def answer(tables: Path, command: str) -> str:
    """Return the output of a command as users see it."""
    done = offsetstream(*shlex.split(command), environment={"OFFSETSTREAM_TABLES": str(tables)})
    return done.stdout + done.stderr


def main() -> None:
    with TemporaryDirectory(prefix="offsetstream-") as made:
        night_tables(Path(made))
        tables = Path(made)
        for page in PAGES:
            page.write_text(_answered(tables, page.read_text("utf-8")), "utf-8")


def _answered(tables: Path, text: str) -> str:
    return SHOWN.sub(lambda shown: f"$ offsetstream {shown[1]}\n{answer(tables, shown[1])}", text)


if __name__ == "__main__":
    main()
