"""Who plays in the demo: groups with members, groups that only commit, and names for any number more."""

import itertools
import random

from confluent_kafka import TopicPartition

from offsetstream.demo.members import GroupPlan

_KIP_848 = {"group.protocol": "consumer"}
_COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}

GROWING_GROUP = GroupPlan("billing", ("orders", "payments"), 2)  # one more joins in each phase
SHRINKING_GROUPS = (  # one leaves in the second phase
    GroupPlan("fraud-detector", ("payments",), 2, _COOPERATIVE),
    GroupPlan("search-indexer", ("orders", "inventory"), 2, _KIP_848),
)
LIVE_GROUPS = (
    GROWING_GROUP,
    *SHRINKING_GROUPS,
    GroupPlan("warehouse", ("shipments",), 2, static=True),
    GroupPlan("mobile-push", ("orders",), 1, commits=False),
    GroupPlan("recommendations", ("^page-.*",), 1, _KIP_848),
)
# Its member leaves: an Empty group with a generation and commits, unlike the groups that never had members.
LEAVING_GROUP = GroupPlan("email-sender", ("orders",), 1)

TRANSACTIONAL_GROUP = "ledger"
LAGGING_GROUP = "data-lake-export"
DELETED_GROUP = "old-checkout"
LATE_GROUP = "returns-desk"  # commits in the second phase only

_AREAS = ("checkout", "pricing", "stock", "loyalty", "refund", "tax", "invoice", "shipping", "catalog", "review")
_ROLES = ("api", "worker", "exporter", "audit", "cache", "mailer", "monitor", "archiver")
_NOTES = ("", "", "nightly run", "restored from backup", "größe ✓", '{"checkpoint": 17}')


def committing_groups(count: int) -> list[str]:
    """Return `count` readable names of groups that only commit, the same at every call."""
    rounds = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    names = (f"{area}-{role}{suffix}" for suffix in rounds for role in _ROLES for area in _AREAS)
    return list(itertools.islice(names, count))


def random_commits(ends: dict[tuple[str, int], int], rng: random.Random) -> list[TopicPartition]:
    """Choose some partitions and an offset within each, with a note or none and a leader epoch or none."""
    places = rng.sample(sorted(ends), rng.randint(1, 5))
    return [
        TopicPartition(
            topic, partition, rng.randint(0, ends[topic, partition]), rng.choice(_NOTES), rng.choice((-1, 0, 0, 3))
        )
        for topic, partition in places
    ]
