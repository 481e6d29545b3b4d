"""One secured broker with a group, and one finished job on it, for all tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from offsetstream.cluster.rights import COMMANDS
from testkit.live_logs import numbered, write
from testkit.waiting import SECONDS
from tests.kafka.security.broker import Secured, secured_kafka
from tests.kafka.security.watched import WatchedJob, watched_job


@pytest.fixture(scope="package")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as secured:
        for created in secured.admin.create_topics([NewTopic("orders", 1), NewTopic("payments", 1)]).values():
            created.result(SECONDS)
        for topic in ("orders", "payments"):
            write(secured.kafka.bootstrap_server, topic, *numbered(6), properties=secured.kafka.librdkafka_properties())
        secured.commit("billing", "orders", "payments")
        with secured.granted("alice", {*COMMANDS["run"], *COMMANDS["verify"]}):
            yield secured


@pytest.fixture(scope="package")
def job(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> WatchedJob:
    """A job that streamed and ended when it lost its right to read, with everything that it exposed."""
    return watched_job(secured, tmp_path_factory.mktemp("job"))


@pytest.fixture
def tables(job: WatchedJob) -> Path:
    return job.tables
