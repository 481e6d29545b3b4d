"""The groups of the workload with all group types, as data, sorted by what the workload does to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

_ASSIGNORS = "org.apache.kafka.clients.consumer."
_RANGE, _ROUND_ROBIN, _STICKY, _COOPERATIVE = (
    f"{_ASSIGNORS}{name}Assignor" for name in ("Range", "RoundRobin", "Sticky", "CooperativeSticky")
)
KIP_848 = {"group_protocol": "consumer"}
SHORT_LIVED = "short-lived"  # a topic that is deleted while groups have offsets in it


@dataclass(frozen=True)
class Cast:
    """A group of consumers or share consumers: its expected state after all have joined, and their subscription.

    A topic that starts with ^ is a pattern that the coordinator resolves.
    """

    group_id: str
    group_type: str
    members: int
    topics: tuple[str, ...] = ("orders", "payments")
    properties: Mapping[str, str] = field(default_factory=dict)
    static: bool = False


@dataclass(frozen=True)
class Application:
    """A group of Kafka Streams instances, which copy records, or count them by two subtopologies and a store."""

    group_id: str
    group_type: str
    instances: int
    counts: bool = False


def _classic(group_id: str, members: int, *assignors: str, static: bool = False) -> Cast:
    strategy = {"partition_assignment_strategy": ",".join(assignors)}
    return Cast(group_id, "Classic", members, properties=strategy, static=static)


def _converted(group_id: str, group_type: str, properties: Mapping[str, str]) -> Cast:
    return Cast(group_id, group_type, 1, ("shipments",), properties)


MEMBERS = (
    _classic("java-range", 2, _RANGE),
    _classic("java-round-robin", 2, _ROUND_ROBIN),
    _classic("java-sticky", 2, _STICKY),
    _classic("java-cooperative", 3, _COOPERATIVE),
    _classic("java-two-assignors", 1, _RANGE, _COOPERATIVE),
    _classic("java-static", 2, _COOPERATIVE, static=True),
    _classic("java-left", 1, _RANGE),
    _classic("java-deleted", 1, _RANGE),
    Cast("kip848-uniform", "Consumer", 2, properties={**KIP_848, "group_remote_assignor": "uniform"}),
    Cast("kip848-range", "Consumer", 2, properties={**KIP_848, "group_remote_assignor": "range"}),
    Cast("kip848-static", "Consumer", 2, properties=KIP_848, static=True),
    Cast("kip848-static-away", "Consumer", 2, properties=KIP_848, static=True),
    Cast("kip848-regex", "Consumer", 2, ("^page-.*|inv.*",), KIP_848),
    Cast("kip848-topic-deleted", "Consumer", 1, ("orders", SHORT_LIVED), KIP_848),
    Cast("kip848-left", "Consumer", 1, properties=KIP_848),
    Cast("kip848-deleted", "Consumer", 1, properties=KIP_848),
    Cast("share-orders", "Share", 2, ("orders",)),
    Cast("share-two-topics", "Share", 1),
    Cast("share-left", "Share", 1),
    Cast("share-deleted", "Share", 1),
)
APPLICATIONS = (
    Application("streams-by-classic-copy", "Classic", 1),
    Application("streams-by-classic-count", "Classic", 2, counts=True),
    Application("streams-copy", "Streams", 1),
    Application("streams-count", "Streams", 2, counts=True),
    Application("streams-left", "Streams", 1),
    Application("streams-deleted", "Streams", 1),
)
# All members leave these groups; then some of the groups are deleted.
EMPTIED = ("java-left", "kip848-left", "share-left", "streams-left")
DELETED = ("java-deleted", "kip848-deleted", "share-deleted", "streams-deleted", "offsets-only-deleted")
STATIC_AWAY = "kip848-static-away"  # one static member leaves: the group is Reconciling (reference 5.10 item 3)

# Groups that are converted (reference 5.8), as they start.
_BY_CLASSIC = {"partition_assignment_strategy": _RANGE}
CONVERTED, AND_BACK = "converted", "converted-and-back"
CONVERTED_EMPTY, BACK_EMPTY = "converted-when-empty", "back-when-empty"
CONVERSIONS = (
    _converted(CONVERTED, "Classic", _BY_CLASSIC),
    _converted(AND_BACK, "Classic", _BY_CLASSIC),
    _converted(CONVERTED_EMPTY, "Classic", _BY_CLASSIC),
    _converted(BACK_EMPTY, "Consumer", KIP_848),
)

# Groups that commit without members.
OFFSETS_ONLY = (
    "offsets-only",
    "offsets-some-deleted",
    "offsets-all-deleted",
    "offsets-altered",
    "offsets-only-deleted",
)

# How the transactions of a group end, in order; the ones that stay open come last.
COMMIT, ABORT, OPEN = "commitTransaction", "abortTransaction", None
TRANSACTIONS: dict[str, tuple[str | None, ...]] = {
    "transactions-committed": (COMMIT, COMMIT),
    "transactions-aborted-after-commit": (COMMIT, ABORT),
    "transactions-aborted": (ABORT,),
    "transactions-open-after-commit": (COMMIT, OPEN),
    "transactions-open": (OPEN,),
}
