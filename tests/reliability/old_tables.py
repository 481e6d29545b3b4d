"""Tables, checkpoint and cluster as an older commit left them (tests/fixtures/, made by make_old_tables.py)."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.tables.names import JOB_LEASE as LEASE
from offsetstream.tables.sql import sql_text
from tests.kafka.every_group.all_groups import broker_properties as properties_of_all_groups

FIXTURES = Path(__file__).parent.parent / "fixtures"
RELEASE = "4.3.1"  # version of the broker that wrote them and reads them again
QUESTIONS = (
    ("groups", "list"),
    ("groups", "describe", "--all-groups"),
    ("groups", "describe", "--all-groups", "--members", "--verbose"),
    ("groups", "describe", "--all-groups", "--state"),
    ("offsets", "list"),
)
_YEARS_MS = str(100 * 365 * 86_400_000)


def broker_properties() -> dict[str, str]:
    """A broker that deletes nothing, so that years later the tables still match it."""
    return {
        **properties_of_all_groups(RELEASE),
        "log.cleaner.enable": "false",
        "log.cleaner.delete.retention.ms": _YEARS_MS,
        "log.retention.ms": "-1",
        "log.roll.ms": _YEARS_MS,
        "offsets.retention.minutes": "2147483647",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "86400000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "86400000",
    }


@contextmanager
def old_kafka(name: str) -> Iterator[EmbeddedKafka]:
    """Run the cluster of a fixture: same cluster id, topic ids and records."""
    with EmbeddedKafka(RELEASE, properties=broker_properties()) as kafka:
        kafka.stop_broker(1, kill=True)
        shutil.rmtree(data_of(kafka))
        _unpack(name, "kafka", data_of(kafka).parent)
        (data_of(kafka).parent / "kafka").rename(data_of(kafka))
        kafka.start_broker(1)
        yield kafka


def unpack_tables(name: str, folder: Path) -> None:
    """Unpack a fixture's tables and checkpoints into a folder, as if made there."""
    for part in ("tables", "checkpoints"):
        _unpack(name, part, folder)
    lease = DeltaTable(folder / "tables" / LEASE)
    location = f"{folder / 'checkpoints'}/1"
    lease.update(updates={"checkpoint_location": sql_text(location)})


def old_answers(name: str) -> dict[str, Any]:
    """Return the look-up outputs of the older commit, by command."""
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
        stored = archive.extractfile("answers.json")
        assert stored is not None
        answers: dict[str, Any] = json.load(stored)
    return answers


def data_of(kafka: EmbeddedKafka) -> Path:
    """The folder of the broker's logs."""
    (node,) = kafka.folder.glob("*/broker-1")
    return node / "data"


def _unpack(name: str, part: str, folder: Path) -> None:
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
        members = [each for each in archive.getmembers() if each.name.split("/")[0] == part]
        archive.extractall(folder, members, filter="data")
