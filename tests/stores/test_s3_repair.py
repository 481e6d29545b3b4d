"""Objects of the tables are lost on S3: the job makes anew what it can, and `repair` gets the rest back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable

from offsetstream.demo.workload import Workload
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.tables.path_store.data_file import file_system
from testkit.processes import offsetstream
from testkit.s3_server import S3Server
from testkit.stored_job import StoredJob

pytestmark = pytest.mark.nightly


def lose_file(table: str) -> None:
    (path, *_) = pa.table(DeltaTable(table).get_add_actions())["path"].to_pylist()
    file_system(table).delete_file(path)


def lose_an_entry(table: str) -> None:
    files = file_system(table)
    found = files.get_file_info(pafs.FileSelector("_delta_log"))
    files.delete_file(max(each.path for each in found if each.path.endswith("0.json")))


def repair(job: StoredJob, *more: str) -> tuple[int, str]:
    done = offsetstream("repair", "--tables", job.tables, *more)
    return done.returncode, done.stdout + done.stderr


def test_lost_objects(s3: S3Server, own_kafka: EmbeddedKafka, workload: Workload, tmp_path: Path) -> None:
    job = StoredJob(own_kafka.bootstrap_server, s3.uri("repair"), tmp_path, s3.spark_options)
    job.once()
    workload.more()
    job.once()
    assert repair(job) == (0, "Reading every file of 21 tables\nNothing is damaged\n")

    lose_file(f"{job.tables}/committed_offsets")
    lose_an_entry(f"{job.tables}/groups")
    lose_file(f"{job.tables}/offset_commits")
    code, said = repair(job)
    assert code == 1, said
    assert all(name in said for name in ("committed_offsets", "groups", "offset_commits")), said
    code, said = repair(job, "--execute", "--bootstrap-server", own_kafka.bootstrap_server)
    assert code == 0, said
    assert "rows are back from the topic" in said
    job.once()
    job.verify()

    lose_file(f"{job.tables}/group_cells")
    workload.more()
    assert "The table group_cells is made anew" in job.once()
    job.verify()
