"""The demo's clients on a cluster of the user's, for as long as he likes: groups come, change, go, and come again."""

import itertools
from threading import Event

from confluent_kafka import KafkaException

from offsetstream.cluster.client import Cluster
from offsetstream.demo.topics import LEDGER, PARTITIONS
from offsetstream.demo.workload import Say, run_workload
from offsetstream.errors import ClusterError, UsageError

_CHANGES = 10  # of a workload, before all its members leave and another one begins: with each a group has one more
_NAMED = 3


def keep_busy(bootstrap_server: str, *, groups: int, pause: float, stopped: Event, say: Say) -> None:
    """Run one workload after the other until `stopped` is set, with `pause` seconds between two changes.

    Groups and topics keep their names, so that a cluster never has more than those of one workload. Raises UsageError
    for a cluster that is in use by others, ClusterError where it does not answer, or as `run_workload` does.
    """
    _refuse_one_in_use(bootstrap_server)
    try:
        for seed in itertools.count(1):
            with run_workload(bootstrap_server, groups=groups, seed=seed, say=say) as workload:
                for _ in range(_CHANGES):
                    if stopped.wait(pause):
                        return
                    workload.more()
    except KafkaException as error:
        raise ClusterError(f"{bootstrap_server} does not serve the demo's clients: {error.args[0].str()}") from error


def _refuse_one_in_use(bootstrap_server: str) -> None:
    """Refuse a cluster that never had the demo, but has topics: groups are deleted, whose names others may have too."""
    existing = {topic.name for topic in Cluster(bootstrap_server).topics() if not topic.is_internal}
    if existing and not existing >= {*PARTITIONS, LEDGER}:
        raise UsageError(
            f"{bootstrap_server} has topics that are not the demo's ({', '.join(sorted(existing)[:_NAMED])}): "
            "the demo's clients delete groups, so they take a cluster that nobody else uses"
        )
