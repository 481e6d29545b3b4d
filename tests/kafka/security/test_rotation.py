"""Certificates, passwords and tokens that change while a job runs, on the broker first: the job goes on."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.properties import read_properties
from offsetstream.cluster.rights import COMMANDS
from offsetstream.stream.apply import raw_reader
from offsetstream.stream.apply.raw_reader import RawReader
from offsetstream.stream.monitor.broker_channel import Leaders
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.path_store import PathStore
from testkit.certificates import sign
from testkit.processes import JobProcess, within
from testkit.waiting import SECONDS
from tests.kafka.security.broker import Secured, secured_kafka, write_properties

pytestmark = pytest.mark.long

Change = Callable[[Secured], Callable[[], object]]  # changes the broker, and returns what changes the client's files


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[Secured]:
    """A broker of one test, which may spoil its files, and a group."""
    with secured_kafka(tmp_path) as secured, secured.granted("alice", {*COMMANDS["run"], *COMMANDS["verify"]}):
        secured.admin.create_topics([NewTopic("orders", 1)])["orders"].result(SECONDS)
        secured.commit("before", "orders")
        yield secured


def job(secured: Secured, login: str, *options: str) -> JobProcess:
    settings = ("--command-config", str(secured.files[login]), "--trigger", "1 second", "--sample-interval", "1")
    return JobProcess(secured.servers[login], secured.folder / "job", *settings, *options)


def groups(secured: Secured) -> set[str]:
    """Return the groups that the job's tables have."""
    tables = PathStore(str(secured.folder / "job" / "tables"))
    if tables.opened("committed_offsets") is None:
        return set()
    return {row["group_id"] for row in Lookup(tables).rows("committed_offsets", ["group_id"])}


def verified(secured: Secured, login: str) -> str:
    connection = ("--bootstrap-server", secured.servers[login], "--command-config", str(secured.files[login]))
    return within("verify", *connection, "--tables", str(secured.folder / "job" / "tables"), "--history").stderr


def trust_in_clients(secured: Secured) -> Callable[[], object]:
    """The broker trusts only a new authority, which signs another certificate for the client."""
    authority = sign("new", is_authority=True)
    (secured.folder / "clients.pem").write_text(authority.pem)
    return lambda: sign("alice", authority).pkcs12(secured.folder / "alice.p12")


def certificate_of_the_broker(secured: Secured) -> Callable[[], object]:
    authority = sign("new", is_authority=True)
    broker = sign("broker", authority)
    (secured.folder / "broker.pem").write_text(broker.key_pem() + broker.chain)
    return lambda: (secured.folder / "root.pem").write_text(authority.pem)


def password(secured: Secured) -> Callable[[], object]:
    secured.set_password("new-sesame")
    properties = secured.properties("scram-256")
    properties["sasl.jaas.config"] = properties["sasl.jaas.config"].replace("alice-secret", "new-sesame")
    return lambda: write_properties(secured.files["scram-256"], properties)


def tokens(secured: Secured) -> Callable[[], object]:
    """The token endpoint fails for a while."""
    secured.tokens.status = 503
    return lambda: setattr(secured.tokens, "status", 200)


@pytest.mark.parametrize(
    ("login", "change"),
    [
        ("mtls-p12", trust_in_clients),
        ("scram-512", certificate_of_the_broker),
        ("scram-256", password),
        ("oauth", tokens),
    ],
)
def test_the_job_goes_on_when_its_files_have_changed_too(changing: Secured, login: str, change: Change) -> None:
    changing.tokens.seconds = 20
    with job(changing, login) as running:
        running.await_(lambda: "Starting checkpoint" in running.said())
        change_files = change(changing)
        changing.kafka.restart()  # ends the connections
        changing.commit("meanwhile", "orders")
        running.await_(lambda: " WARN " in running.said())
        change_files()
        running.await_(lambda: groups(changing) == {"before", "meanwhile"})
        running.signal(signal.SIGTERM)
        assert running.ended() == 0
    assert "Traceback" not in running.said()
    assert "2 groups compared: 0 unexplained differences" in verified(changing, login)


def test_a_login_that_stays_refused_ends_the_job_with_one_line_and_a_restart_goes_on(changing: Secured) -> None:
    with job(changing, "scram-256", "--max-silence", "0.2") as running:
        running.await_(lambda: "Starting checkpoint" in running.said())
        change_files = password(changing)
        changing.kafka.restart()
        changing.commit("meanwhile", "orders")
        assert running.ended() == 3
    *_, last = running.said().splitlines()
    assert "ERROR" in last
    assert f"{changing.servers['scram-256']} refuses this login" in last
    assert last.endswith("check the file that --command-config names")
    change_files()
    with job(changing, "scram-256", "--once") as again:
        assert again.ended() == 0, again.said()
    assert "2 groups compared: 0 unexplained differences" in verified(changing, "scram-256")


def test_tokens_are_replaced_before_they_expire(changing: Secured) -> None:
    changing.tokens.seconds = 6
    with job(changing, "oauth") as running:
        running.await_(lambda: "Starting checkpoint" in running.said())
        first = changing.tokens.given
        running.await_(lambda: changing.tokens.given > first + 20)  # several of each client
        changing.commit("late", "orders")
        running.await_(lambda: "late" in groups(changing))
    assert " WARN " not in running.said()


def test_a_long_raw_read_renews_its_token(
    changing: Secured, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker ends a connection whose token has expired, unless the client logs in again (KIP-368)."""
    for number in range(60):
        changing.commit(f"group-{number}", "orders")
    changing.tokens.seconds = 6
    server, properties = changing.servers["oauth"], read_properties(str(changing.files["oauth"]))
    cluster = Cluster(server, properties)
    ends = cluster.available_ends(range(50))
    stable = {number: end.last_stable_offset for number, end in ends.items()}
    epochs = {number: end.coordinator_epoch for number, end in ends.items()}
    monkeypatch.setattr(raw_reader, "_ANSWER_BYTES", 1)
    system = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]  # never None while Spark runs
    system.clearProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls")  # tests before had another server of tokens
    before, rows = changing.tokens.given, 0
    for batch in RawReader(Leaders(spark, cluster, properties)).read(dict.fromkeys(stable, 0), stable, epochs):
        rows += batch.num_rows
        time.sleep(0.3)
    assert rows == sum(stable.values()) > 60
    assert changing.tokens.given > before + 3
