"""The workload of all group types is what it says, by the answers of Kafka's own Admin client."""

from offsetstream.cluster.group_admin import GroupState, group_admin
from offsetstream.cluster.metadata import MetadataCache
from offsetstream.operations.deletion import plan_group_deletion
from offsetstream.operations.plan import TYPE
from offsetstream.operations.reset import Scope, plan_reset
from offsetstream.operations.targets import Target
from tests.kafka.every_group.all_groups import AllGroups, group_types


def test_there_are_a_hundred_groups_of_every_type(every_group: AllGroups) -> None:
    answers = every_group.admin.answers()
    found = {row["group_id"]: (row["group_type"], row["state"], row["member_count"]) for row in answers.groups}
    assert len(found) >= 100
    assert {group_type for group_type, _, _ in found.values()} == group_types(every_group.kafka.version)
    assert found.items() >= every_group.expected.items()
    assert not every_group.deleted & found.keys()
    assert len(answers.members) == sum(row["member_count"] for row in answers.groups)


def test_offsets_are_committed_deleted_and_left_open_as_the_workload_says(every_group: AllGroups) -> None:
    found: dict[str, dict[tuple[str, int], int]] = {}
    for row in every_group.admin.answers().offsets:
        found.setdefault(row["group_id"], {})[row["topic"], row["partition"]] = row["committed_offset"]
    assert found["offsets-only"] == {("orders", 0): 7, ("orders", 1): 8}
    assert found["offsets-some-deleted"] == {("orders", 1): 8}
    assert found["offsets-made-by-admin"] == {("payments", 0): 3}
    assert found["transactions-committed"] == {("orders", 0): 1, ("orders", 1): 3, ("orders", 2): 4}
    for group_id in ("transactions-aborted-after-commit", "transactions-open-after-commit"):
        assert found[group_id] == {("orders", 0): 1, ("orders", 1): 2}
    for group_id in ("offsets-all-deleted", "offsets-in-deleted-topic", "transactions-aborted", "transactions-open"):
        assert group_id not in found


def test_an_operator_sees_every_group_as_it_is(every_group: AllGroups) -> None:
    cluster = MetadataCache(every_group.kafka.bootstrap_server)
    told = every_group.admin.answers().groups
    expected = {row["group_id"]: GroupState(row["group_type"], row["state"], row["member_count"]) for row in told}
    of_consumers = [name for name, each in expected.items() if each.group_type in {"Classic", "Consumer"}]
    with group_admin(cluster, {}, 30, ("READ", "DELETE")) as admin:
        kinds = {(each.group_type, each.state): group_id for group_id, each in expected.items()}
        for group_id in kinds.values():
            assert admin.standing(group_id) == expected[group_id]
        assert admin.standing("nobody") == GroupState(None, "Dead", 0)
        assert admin.group_ids() == sorted(of_consumers)
        for group_type in group_types(every_group.kafka.version) - {"Classic", "Consumer"}:
            group_id = next(name for name, each in expected.items() if each.group_type == group_type)
            reset = plan_reset(cluster, admin, [group_id], Scope({"orders": None}), Target("latest"), 30)
            deletion = plan_group_deletion(cluster, admin, [group_id])
            for plan in (reset, deletion):
                assert TYPE in {each.kind for each in plan.remaining_objections((TYPE,))}, group_id
