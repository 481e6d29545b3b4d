"""The time of a batch on tables of a catalog and on tables in a folder: `python -m benchmarks.catalog`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

import click

from offsetstream.spark.local import local_session
from offsetstream.spark.session import ending
from offsetstream.tables.catalog_store import CatalogStore
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.store import Store
from testkit.metastore import metastore_in
from testkit.simulated_job import SimulatedJob

SIZES = {"near-empty (10 commits)": 10, "10,000 commits": 10_000}


@click.command()
@click.option("--batches", default=5, show_default=True, help="Measured batches of each size, after two to warm up.")
def main(batches: int) -> None:
    """Print the median time of a batch, by store and size."""
    with tempfile.TemporaryDirectory() as folder:
        metastore = metastore_in(Path(folder))
        with metastore.running(), ending(local_session("local[2]", metastore.conf)) as spark:
            for size, commits in SIZES.items():
                stores: dict[str, Store] = {
                    "folder": PathStore(f"{folder}/tables-{commits}"),
                    "catalog": CatalogStore("spark_catalog", f"kafka_{commits}").read_by(spark),
                }
                for name, store in stores.items():
                    job = SimulatedJob(spark, store, cells=20_000, commits=commits)
                    taken = [_seconds(job, number) for number in range(2 + batches)]
                    click.echo(f"{name}, {size}: {median(taken[2:]):.2f} s ({min(taken[2:]):.2f} to {max(taken):.2f})")


def _seconds(job: SimulatedJob, number: int) -> float:
    began = time.monotonic()
    job.batch(number)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
