"""The incident that README shows, with readable names: `python -m tests.kafka.incident.night` records it again.

It writes tests/fixtures/night/, from which `tests/unit/cli/test_night.py` makes the tables again for README's commands,
and prints the script's book, which has the names and times for the commands in README.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from pprint import pprint

import pyarrow as pa
import pyarrow.parquet as pq

from offsetstream.spark.local import local_session
from offsetstream.views.reader import ViewReader
from testkit.night import FIXTURE, TABLES
from testkit.tables import table_schemas
from tests.kafka.incident.actions import Actions
from tests.kafka.incident.recording import Recorded, record
from tests.kafka.incident.script import Incident

_NAMES = {
    "goods": "orders",
    "queue": "payments",
    "rising": "page-views",
    "resetters": "billing",
    "watchers": "warehouse",
    "sleepers": "monthly-report",
    "emptied": "tax-import",
    "rewound": "fraud-detector",
    "stalled": "stuck-importer",
    "catching-up": "data-lake-export",
    "late": "email-sender",
    "stopped": "mobile-push",
    "falling-behind": "recommendations",
    "healthy": "stock-sync",
    "dead": "nightly-batch",
    "storm": "search-indexer",
    "storm-848": "search-suggester",
    "cleaners": "invoice-archive",
    "rereaders": "price-feed",
    "again": "prices",
    "doomed": "old-checkout",
    "bookers": "ledger",
    "tourists": "trial-users",
    "fleeting": "trial",
    "growers": "clickstream",
    "growing": "clicks",
    "slow-readers": "audit-log",
    "trimmed": "audit",
    "upgraded": "shipping",
    "sharers": "thumbnails",
    "copier": "currency-converter",
}
_SEED = 1
_PARTITIONS = 8  # so that there is a partition 7


class Night(Incident):
    """The same steps with other names."""

    def __init__(self, actions: Actions, seed: int) -> None:
        super().__init__(actions, seed)
        self.count = _PARTITIONS

    def name(self, role: str) -> str:
        return _NAMES.get(role, role)


def save(recorded: Recorded, folder: Path) -> None:
    """Write the tables that commands read, one file for each table that has rows."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    reader = ViewReader(recorded.runner.tables)
    for name in TABLES:
        reader.define_table(name)
        rows = reader.connection.sql(f'FROM "{name}" ORDER BY ALL').to_arrow_table()
        if rows.num_rows:
            table = pa.Table.from_pylist(rows.to_pylist(), schema=table_schemas()[name].arrow)
            pq.write_table(table, folder / f"{name}.parquet", compression="zstd", compression_level=19)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="offsetstream-") as folder_name:
        spark = local_session("local[2]")
        recorded = record(spark, Path(folder_name), _SEED, Night)
        spark.stop()
        save(recorded, FIXTURE)
    printed = asdict(recorded.book) | {"since": recorded.since.isoformat(), "now": recorded.now.isoformat()}
    pprint({name: value for name, value in printed.items() if name not in {"coordinators", "topic_names"}}, width=120)


if __name__ == "__main__":
    main()
