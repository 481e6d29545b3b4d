"""A batch on tables of a catalog and on tables in a folder: time, commits, and a catalog's statements and Spark jobs.

Then runs with `--once` on a catalog, from command to end. `python -m benchmarks.catalog`
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click
from pyspark.sql import SparkSession

from benchmarks.broker import empty_broker
from benchmarks.commit_log import Groups, write
from offsetstream.spark.local import local_session
from offsetstream.spark.session import ending
from offsetstream.tables.catalog_store import CatalogStore
from offsetstream.tables.path_store import PathStore
from offsetstream.tables.schema import all_schemas
from offsetstream.tables.store import Store
from testkit.metastore import Metastore, metastore_in
from testkit.processes import printed
from testkit.simulated_job import SimulatedJob

SIZES = {"near-empty (10 commits)": 10, "10,000 commits": 10_000}


class _Batch(NamedTuple):
    seconds: float
    commits: int
    statements: int
    jobs: int


@click.command()
@click.option("--batches", default=5, show_default=True, help="Measured batches of each size, after two to warm up.")
def main(batches: int) -> None:
    """Print the median of the batches, by store and size."""
    with tempfile.TemporaryDirectory() as folder:
        metastore = metastore_in(Path(folder))
        with metastore.running():
            _measure_batches(metastore, Path(folder), batches)
            _measure_runs(metastore, Path(folder))


def _measure_batches(metastore: Metastore, folder: Path, batches: int) -> None:
    with ending(local_session("local[2]", metastore.conf)) as spark:
        for size, commits in SIZES.items():
            stores: dict[str, Store] = {
                "folder": PathStore(f"{folder}/tables-{commits}"),
                "catalog": CatalogStore("spark_catalog", f"kafka_{commits}").read_by(spark),
            }
            for name, store in stores.items():
                job = SimulatedJob(spark, store.for_job(), cells=20_000, commits=commits)
                found = [_measured(spark, job, store, number) for number in range(2 + batches)][2:]
                seconds = [batch.seconds for batch in found]
                click.echo(
                    f"{name}, {size}: {median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f}); "
                    f"{median(batch.commits for batch in found):g} commits, "
                    f"{median(batch.statements for batch in found):g} statements, "
                    f"{median(batch.jobs for batch in found):g} Spark jobs"
                )


def _measure_runs(metastore: Metastore, folder: Path) -> None:
    groups, tables = Groups(20_000), "spark_catalog.kafka_once"
    options = ("--tables", tables, "--checkpoint", str(folder / "once"), "--once", *metastore.options)
    with empty_broker() as kafka:
        for number, commits in enumerate((groups.cells, 10_000, 10_000, 10_000)):
            write(kafka.bootstrap_server, groups.commits(number * groups.cells, commits))
            began = time.monotonic()
            printed("run", "--bootstrap-server", kafka.bootstrap_server, *options)
            click.echo(f"run --once, {commits:,} commits: {time.monotonic() - began:.1f} s")


def _measured(spark: SparkSession, job: SimulatedJob, store: Store, number: int) -> _Batch:
    versions, (statements, jobs), began = _versions(store), _run_by(spark), time.monotonic()
    job.batch(number)
    seconds, (statements_after, jobs_after) = time.monotonic() - began, _run_by(spark)
    return _Batch(seconds, _versions(store) - versions, statements_after - statements, jobs_after - jobs)


def _versions(store: Store) -> int:
    return sum(store.open(name).version for name in all_schemas())


def _run_by(spark: SparkSession) -> tuple[int, int]:
    """Return how many SQL statements and jobs this Spark ever ran."""
    jvm: Any = spark._jsparkSession
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    statements = jvm.sharedState().statusStore().executionsList()
    last = statements.last().executionId() if statements.nonEmpty() else -1  # Spark forgets the first ones
    return last + 1, spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()


if __name__ == "__main__":
    main()
