"""A few groups that commit again and again, and whether a job has applied it."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import TopicPartition

from offsetstream.cluster.client import Cluster
from offsetstream.demo.topics import commit_plainly
from offsetstream.errors import NoTableError
from offsetstream.tables.path_store import PathStore
from tests.reliability.truth import behind, differences, read_topic


class FewCommits:
    """Commits of four groups on a broker, and the tables of a job in `folder`."""

    def __init__(self, server: str, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.tables = PathStore(str(folder / "tables"))
        self._commits = 0

    def commit(self) -> None:
        """Let each group commit once."""
        self._commits += 1
        place = [TopicPartition("orders", 0, self._commits)]
        name = self.folder.parent.name
        commit_plainly(self.server, {f"{name}-{number}": place for number in range(4)})

    def applied(self) -> bool:
        """Return whether the tables have all that the topic has."""
        try:
            return not behind(self.tables, read_topic(self.server)[1])
        except NoTableError:  # the job has only just started
            return False

    def differences(self) -> list[str]:
        """Return how the tables differ from the topic and the cluster."""
        names = {topic.topic_id: topic.name for topic in Cluster(self.server).topics()}
        return differences(self.tables, self.server, names)
