"""Kafka's own Admin client confirms that the workload of all group types is what it claims to be."""

from offsetstream.cluster.group_admin import GroupState, group_admin
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.operations.deletion import plan_group_deletion
from offsetstream.operations.plan import TYPE
from offsetstream.operations.reset import Scope, Target, plan_reset
from tests.kafka.every_group.all_groups import AllGroups, group_types


def test_there_are_a_hundred_groups_of_every_type(every_group: AllGroups) -> None:
    answers = every_group.admin.answers()
    by_group = {row["group_id"]: (row["group_type"], row["state"], row["member_count"]) for row in answers.groups}
    assert len(by_group) >= 100
    assert {group_type for group_type, _, _ in by_group.values()} == group_types(every_group.kafka.version)
    assert by_group.items() >= every_group.expected.items()
    assert not every_group.deleted & by_group.keys()
    assert len(answers.members) == sum(row["member_count"] for row in answers.groups)


def test_offsets_are_committed_deleted_or_pending_as_the_workload_declares(every_group: AllGroups) -> None:
    by_group: dict[str, dict[tuple[str, int], int]] = {}
    for row in every_group.admin.answers().offsets:
        by_group.setdefault(row["group_id"], {})[row["topic"], row["partition"]] = row["committed_offset"]
    assert by_group["offsets-only"] == {("orders", 0): 7, ("orders", 1): 8}
    assert by_group["offsets-some-deleted"] == {("orders", 1): 8}
    assert by_group["offsets-made-by-admin"] == {("payments", 0): 3}
    assert by_group["transactions-committed"] == {("orders", 0): 1, ("orders", 1): 3, ("orders", 2): 4}
    for group_id in ("transactions-aborted-after-commit", "transactions-open-after-commit"):
        assert by_group[group_id] == {("orders", 0): 1, ("orders", 1): 2}
    for group_id in ("offsets-all-deleted", "offsets-in-deleted-topic", "transactions-aborted", "transactions-open"):
        assert group_id not in by_group


def test_operations_report_type_state_and_members_of_every_group(every_group: AllGroups) -> None:
    cluster = MetadataCache(every_group.kafka.bootstrap_server)
    admin_rows = every_group.admin.answers().groups
    expected = {row["group_id"]: GroupState(row["group_type"], row["state"], row["member_count"]) for row in admin_rows}
    consumer_groups = [name for name, each in expected.items() if each.group_type in {"Classic", "Consumer"}]
    with group_admin(cluster, {}, 30, ("READ", "DELETE")) as admin:
        kinds = {(each.group_type, each.state): group_id for group_id, each in expected.items()}
        for group_id in kinds.values():
            assert admin.standing(group_id) == expected[group_id]
        assert admin.standing("nobody") == GroupState(None, "Dead", 0)
        assert admin.group_ids() == sorted(consumer_groups)
        for group_type in group_types(every_group.kafka.version) - {"Classic", "Consumer"}:
            group_id = next(name for name, each in expected.items() if each.group_type == group_type)
            reset = plan_reset(cluster, admin, [group_id], Scope({"orders": None}), Target("latest"), 30)
            deletion = plan_group_deletion(cluster, admin, [group_id])
            for plan in (reset, deletion):
                assert TYPE in {each.kind for each in plan.remaining_objections((TYPE,))}, group_id
