"""Job and commands, as processes in the locale C, with folder names that some engine misinterprets."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from testkit.processes import JobProcess, printed

pytestmark = pytest.mark.nightly

NASTY = "größe 50% #1 +x *?{a}"
LOCALE = {"LC_ALL": "C"}


@pytest.fixture(scope="module")
def server(own_kafka: EmbeddedKafka) -> str:
    create_topics(admin_client(own_kafka.bootstrap_server))
    return own_kafka.bootstrap_server


def committed_offsets(folder: Path) -> list[int]:
    if not (folder / "tables" / "committed_offsets" / "_delta_log" / f"{0:020}.json").exists():
        return []
    found = Lookup(PathStore(str(folder / "tables"))).rows("committed_offsets", ["committed_offset"])
    return [row["committed_offset"] for row in found]


def test_a_job_with_a_difficult_folder_name_in_the_locale_c(server: str, tmp_path: Path) -> None:
    folder = tmp_path / NASTY
    folder.mkdir()
    tables = ("--tables", str(folder / "tables"))
    commit_plainly(server, {"billing": [TopicPartition("orders", 0, 1)]})
    with JobProcess(server, folder, "--trigger", "1 second", environment=LOCALE) as job:
        job.await_(lambda: committed_offsets(folder) == [1])
        printed("stop", *tables, environment=LOCALE)
        assert job.ended() == 0, job.said()
    commit_plainly(server, {"billing": [TopicPartition("orders", 0, 2)]})
    with JobProcess(server, folder, "--once", environment=LOCALE) as job:
        assert job.ended() == 0, job.said()
        assert "Continuing from checkpoint" in job.said()
    assert committed_offsets(folder) == [2]
    assert ",2," in printed("groups", "describe", "--group", "billing", "--output", "csv", *tables, environment=LOCALE)
    printed("verify", "--bootstrap-server", server, *tables, environment=LOCALE)
    printed("maintain", "--keep-history", "1d", *tables, environment=LOCALE)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([NASTY, f"{NASTY}-said.txt"])
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoints", "tables"]
