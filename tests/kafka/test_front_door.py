"""`offsetstream.run` as a notebook calls it: in the notebook's own Spark session, which stays unchanged."""

import signal
import threading
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

import offsetstream
from offsetstream.demo.topics import commit_plainly, create_topics
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import EnvironmentNotReadyError
from offsetstream.spark.settings import wanted
from testkit.waiting import SECONDS

_ZONE = "spark.sql.session.timeZone"


@pytest.mark.long
def test_run_in_the_callers_session_leaves_it_unchanged(
    own_kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    create_topics(admin_client(own_kafka.bootstrap_server))
    commit_plainly(own_kafka.bootstrap_server, {"billing": [TopicPartition("orders", 0, 41, "by hand")]})
    mine = spark.newSession()
    mine.conf.set(_ZONE, "Asia/Tokyo")
    names = [*wanted(spark), "spark.sql.redaction.options.regex"]
    before = {name: mine.conf.get(name, None) for name in names}
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    settings = offsetstream.JobSettings(
        bootstrap_server=own_kafka.bootstrap_server,
        tables=str(tmp_path / "tables"),
        checkpoint=str(tmp_path / "checkpoints"),
        once=True,
    )
    thread = threading.Thread(target=offsetstream.run, args=(settings, mine))  # a thread cannot handle signals
    thread.start()
    thread.join(2 * SECONDS)
    assert not thread.is_alive()
    (found,) = offsetstream.open_tables(tmp_path / "tables").committed_offsets(group="billing").to_pylist()
    assert found["committed_offset"] == 41
    with pytest.raises(EnvironmentNotReadyError, match="pass its session"):
        offsetstream.run(settings)  # this would stop somebody's session
    offsetstream.run(settings, mine)  # once more, in the main thread
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert {name: mine.conf.get(name, None) for name in names} == before
    assert (mine.conf.get(_ZONE), mine.range(3).count()) == ("Asia/Tokyo", 3)
