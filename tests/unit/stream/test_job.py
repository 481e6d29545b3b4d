from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from offsetstream.progress import Progress
from offsetstream.stream import job as module
from offsetstream.stream.job import Job
from offsetstream.stream.lifecycle.attempt import OffsetsTopic
from offsetstream.stream.monitor.watch import TopicChangedError
from offsetstream.stream.settings import JobSettings


def test_a_stop_while_the_topic_changes_removes_no_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a stop, the list of partitions is empty. That does not mean that all partitions are gone."""
    settings = JobSettings(bootstrap_server="127.0.0.1:1", tables=str(tmp_path), checkpoint=str(tmp_path))
    job = Job(settings, nullcontext(None), Progress(Console(file=StringIO())))  # type: ignore[arg-type]
    attempted: list[list[int]] = []

    class Attempt:
        def __init__(self, *arguments: Any) -> None:
            self.positions: dict[int, int] = {}
            (topic,) = (each for each in arguments if isinstance(each, OffsetsTopic))
            attempted.append(topic.partitions)

        def run(self, *, may_continue: bool) -> None:
            job.stop()
            raise TopicChangedError(f"the topic has another count; {may_continue=}")

    monkeypatch.setattr(module, "Attempt", Attempt)
    topic = OffsetsTopic(job._cluster, job._leaders, [0, 1, 2], "new")
    job._work(SimpleNamespace(tables=None), topic, None)  # type: ignore[arg-type]
    assert attempted == [[0, 1, 2]]
