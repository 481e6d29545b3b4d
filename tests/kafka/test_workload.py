"""The demo's workload, checked by the cluster's own answers."""

import pytest

from offsetstream.demo import run_workload
from offsetstream.demo.topics import create_topics, end_offsets
from offsetstream.demo.troubles import TROUBLES, Shop
from offsetstream.embedded.clients import admin_client
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.errors import UsageError
from testkit.brokers import BrokerUnderTest
from testkit.live_logs import create_topic
from testkit.processes import offsetstream
from tests.kafka.admin_answers import DescribedGroup, committed_offsets, describe_groups, list_groups

pytestmark = pytest.mark.long


def counts(described: dict[str, DescribedGroup]) -> dict[str, tuple[str, str, int]]:
    return {group.group_id: (group.group_type, group.state, len(group.members)) for group in described.values()}


def test_the_workload_makes_and_changes_groups_of_every_kind(kafka: BrokerUnderTest) -> None:
    admin = admin_client(kafka.bootstrap_server)
    lines: list[str] = []
    with run_workload(kafka.bootstrap_server, groups=20, seed=7, say=lines.append) as workload:
        assert len(workload.groups) == 20
        assert workload.groups <= {group.group_id for group in list_groups(admin)}
        described = counts(describe_groups(admin, workload.groups))
        assert {group: described[group] for group in workload.live_groups} == {
            "billing": ("Classic", "Stable", 3),
            "fraud-detector": ("Classic", "Stable", 2),
            "mobile-push": ("Classic", "Stable", 1),
            "recommendations": ("Consumer", "Stable", 1),
            "search-indexer": ("Consumer", "Stable", 2),
            "warehouse": ("Classic", "Stable", 2),
        }
        assert described["email-sender"] == ("Classic", "Empty", 0)
        check_offsets(kafka, workload.groups)

        workload.more()
        assert len(workload.groups) == 20 + 1 - 3
        listed = {group.group_id for group in list_groups(admin)}
        assert workload.groups <= listed
        assert not workload.deleted & listed
        described = counts(describe_groups(admin, workload.live_groups))
        assert described["billing"] == ("Classic", "Stable", 4)
        assert described["fraud-detector"] == ("Classic", "Stable", 1)
        assert described["search-indexer"] == ("Consumer", "Stable", 1)
        check_offsets(kafka, workload.groups)
    assert any("aborted" in line for line in lines)
    assert counts(describe_groups(admin, ["billing"]))["billing"] == ("Classic", "Empty", 0)


def check_offsets(kafka: BrokerUnderTest, groups: set[str]) -> None:
    """All groups have committed the ends of their topics; the aborted transaction, which went back, does not show."""
    admin = admin_client(kafka.bootstrap_server)
    ends = end_offsets(admin)
    found = committed_offsets(admin, groups)
    assert {group for group, _, _ in found} == groups
    assert {place: offset.committed_offset for place, offset in found.items()} == {
        place: ends[place[1:]] for place in found
    }
    billing = {place[1:] for place in found if place[0] == "billing"}
    assert billing == {place for place in ends if place[0] in {"orders", "payments"}}
    for partition in (0, 1):
        assert ("ledger", "returns", partition) in found
        assert found["billing", "orders", partition].metadata.startswith("read by billing-")
        assert found["billing", "orders", partition].leader_epoch == 0


def test_no_kip_848_groups_on_a_broker_without_them() -> None:
    lines: list[str] = []
    with (
        EmbeddedKafka("3.9.2") as kafka,
        run_workload(kafka.bootstrap_server, groups=12, seed=7, say=lines.append) as workload,
    ):
        assert workload.live_groups == ["billing", "fraud-detector", "mobile-push", "warehouse"]
        assert len(workload.groups) == 12
        for _ in range(3):  # more rounds than there are members and groups to remove
            workload.more()
        assert workload.live_groups == ["billing", "mobile-push", "warehouse"]
        listed = {group.group_id for group in list_groups(admin_client(kafka.bootstrap_server))}
        assert workload.groups == listed
    assert any("No group uses KIP-848" in line for line in lines)


def test_each_trouble_starts_and_other_groups_keep_their_members() -> None:
    with EmbeddedKafka() as kafka:
        admin = admin_client(kafka.bootstrap_server)
        create_topics(admin)
        with Shop(kafka.bootstrap_server, 1) as shop:
            shop.open()
            for trouble in TROUBLES:
                trouble.start(shop)
            described = describe_groups(admin, [trouble.group for trouble in TROUBLES])
            assert {group: members for group, (_, _, members) in counts(described).items()} == {
                "order-archive": 0,
                "fraud-scoring": 1,
                "cart-reminder": 1,
                "invoice-mailer": 1,
                "loyalty-points": 0,
            }


def test_too_few_groups_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 12 groups"):
        run_workload("", groups=3, seed=1, say=print)


def test_the_workload_refuses_a_cluster_that_others_use(own_kafka: EmbeddedKafka) -> None:
    create_topic(own_kafka.bootstrap_server, "somebodys", 1)
    done = offsetstream("demo", "--bootstrap-server", own_kafka.bootstrap_server)
    assert done.returncode == 2
    assert "somebodys" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list_groups(admin_client(own_kafka.bootstrap_server)) == []
